"""How the processes of a vLLM come to be: forks of the one that starts them, or programs anew.

vLLM forks them on a GPU and spawns them on a CPU, where each loads all libraries again: nearly all
that a start takes. Tests let it fork everywhere, but where it is the processes that they are about.
"""

import os
import shutil
from pathlib import Path

import pytest

_FORKED = Path(__file__).with_name("forked_vllm")
_FORKING = {
    # What a worker would be given when it is spawned.
    "OMP_NUM_THREADS": "1",
    "TORCH_COMPILE_DISABLE": "1",
}


def let_vllm_fork(patch: pytest.MonkeyPatch) -> None:
    if shutil.which("nvidia-smi") is None:
        patch.setenv("PYTHONPATH", str(_FORKED), prepend=os.pathsep)
        for name, value in _FORKING.items():
            patch.setenv(name, value)


def let_vllm_spawn(patch: pytest.MonkeyPatch) -> None:
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    patch.setenv("PYTHONPATH", os.pathsep.join(one for one in path if one != str(_FORKED)))
    for name in _FORKING:
        patch.delenv(name, raising=False)
