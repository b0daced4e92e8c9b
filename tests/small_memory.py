"""A real vLLM engine with little memory and every way of pacing, held between two steps at will."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from blend.core.engines.vllm import VllmEngine
from tests.stepped_scheduler import SCHEDULER, STEPS_VARIABLE, Steps
from tests.tiny_engine import engine_core, settings, wait_until

BLOCK_TOKENS = 32
KV_TOKENS = 4096
"""Of the cache and of the context: one request may fill it."""

STEP_TOKENS = 1536
THRESHOLD = 64

WAIT_S = 120.0


@dataclass(frozen=True)
class SmallMemory:
    """The engine, and its log, which names each request as it enters."""

    engine: VllmEngine
    log_path: Path
    steps: Steps

    @contextmanager
    def held(self, arriving: int) -> Iterator[None]:
        """Let no step begin until so many more requests have arrived."""
        before = self._entered()
        core = engine_core(self.engine.pid)
        os.kill(core, signal.SIGSTOP)
        try:
            yield
            assert wait_until(lambda: self._entered() - before == arriving, timeout_s=WAIT_S)
        finally:
            os.kill(core, signal.SIGCONT)

    def _entered(self) -> int:
        return self.log_path.read_bytes().count(b"Added request ")


@contextmanager
def opened_small_memory(model: Path, folder: Path) -> Iterator[SmallMemory]:
    """Start the engine on a model whose context it can hold."""
    asked = settings(
        model,
        folder / "engine.log",
        kv_cache_memory_bytes=str(2048 * (KV_TOKENS + BLOCK_TOKENS)),
        **{
            "max-num-seqs": "24",
            "max-model-len": str(KV_TOKENS),
            "long-prefill-token-threshold": str(THRESHOLD),
            "max-num-scheduled-tokens": str(STEP_TOKENS),
            "scheduler-cls": SCHEDULER,
        },
    )
    steps = Steps.create(folder / "steps")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(STEPS_VARIABLE, str(folder / "steps"))
        patch.setenv("PYTHONPATH", str(Path(__file__).parent.parent), prepend=os.pathsep)
        engine = VllmEngine.start(replace(asked, pacing="step budget", seeded=False))
    try:
        engine.wait_ready()
        yield SmallMemory(engine, folder / "engine.log", steps)
    finally:
        engine.close()
