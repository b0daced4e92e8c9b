"""Which files a command's inputs name."""

import glob
from collections.abc import Sequence
from pathlib import Path

from blend.core.errors import BlendError
from blend.core.utf8 import as_utf8


def expand_inputs(names: Sequence[str]) -> list[str]:
    """Return the input files in the order given, globs expanded and sorted, each file once.

    ``-`` stands for stdin. A name that exists is never taken for a glob. Raises BlendError for a
    name that matches nothing.
    """
    found: dict[str | Path, str] = {}
    for name in names:
        for path in _matches(name):
            found.setdefault("-" if path == "-" else Path(path).resolve(), path)
    return list(found.values())


def _matches(name: str) -> list[str]:
    if name == "-" or Path(name).exists():
        return [name]
    if not glob.has_magic(name):
        raise BlendError(
            f"no such file: {name}", hint=f"check the path; it is taken from {_here()}"
        )
    # Not Path.glob: it takes no absolute patterns.
    found = glob.glob(name, recursive=True)  # noqa: PTH207
    paths = sorted(path for path in found if Path(path).is_file())
    if not paths:
        raise BlendError(
            f"no file matches: {name}", hint=f"check the pattern; it is taken from {_here()}"
        )
    return paths


def _here() -> str:
    try:
        return as_utf8(str(Path.cwd()))
    except OSError:
        return "a folder that was removed"
