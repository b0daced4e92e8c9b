"""Lets the processes of a vLLM on a CPU be forks of the one that starts them, as on a GPU.

Python runs it at its start where this folder is on the path. A process that vLLM spawns loads all
libraries again, which is nearly all that the start of an engine takes.
"""

import multiprocessing
from multiprocessing.context import BaseContext

_context = multiprocessing.get_context


def forking(method: str | None = None) -> BaseContext:
    return _context("fork" if method == "spawn" else method)


multiprocessing.get_context = forking  # type: ignore[assignment]
