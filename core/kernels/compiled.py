"""How a kernel is compiled: once for each state of all kernels, kept beside the source.

numba keeps compiled code by the date of one file, so that a kernel would go on calling an old
version of a kernel in another file. The folder is named after the text of all of them instead.
It lies in the user's cache where nobody but an administrator may write beside the source.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

_SOURCES = Path(__file__).parent


def cache_folder(beside: Path) -> str:
    """Return where compiled kernels are kept: *beside* their source where that can be."""
    digest = hashlib.sha256()
    for source in sorted(_SOURCES.glob("*.py")):
        digest.update(source.read_bytes())
    if not os.access(beside, os.W_OK):
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111
        return str(Path(cache, "blend", "kernels", digest.hexdigest()[:16]))
    return str(beside / "__pycache__" / digest.hexdigest()[:16])


_CACHE_FOLDER = cache_folder(_SOURCES)


def kept(kernel: str) -> bool:
    """Tell whether a kernel, ``module.function``, was compiled before for the present sources."""
    return any(Path(_CACHE_FOLDER).glob(f"**/{kernel}-*.nbc"))


def compiled(kernel: Kernel) -> Kernel:
    """Return *kernel* as machine code that is kept for the next process."""
    kept, numba.config.CACHE_DIR = numba.config.CACHE_DIR, _CACHE_FOLDER
    try:
        fast: Kernel = numba.njit(cache=True, error_model="numpy")(kernel)
    finally:
        numba.config.CACHE_DIR = kept
    return fast
