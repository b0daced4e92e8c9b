"""Which processors are left to the processes around an engine that computes on processors?

vLLM binds each worker of such an engine to processors of its own, and leaves some to everything
else. The system knows nothing of that: what it puts on a worker's processor, for want of an idle
one, holds up every step. So everything else is kept on those that are left.
"""

import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

GIVES_WAY = 10
"""How much nicer the process around an engine is than the engine's own."""

_PROC = Path("/proc")
_PARENT = 1  # of the fields of /proc/PID/stat behind the name of the command

Processors = frozenset[int]


def keep_off_workers() -> Processors:
    """Keep this process, and those it started that are not bound, off the processors of the bound.

    Returns what is left to them, for whoever else works for the engine; empty where nothing is
    bound, nothing is left, or the system does not tell.
    """
    if not hasattr(os, "sched_getaffinity"):
        return frozenset()
    ours = _allowed(os.getpid())
    everything = {pid: _allowed(pid) for pid in _started_by(os.getpid())}
    bound = [theirs for theirs in everything.values() if theirs < ours]
    left = ours.difference(*bound)
    if not bound or not left:
        return frozenset()
    for pid, theirs in everything.items():
        if theirs == ours:
            _confine(_threads(pid), left)
    return left


def confine_this_thread(processors: Processors) -> Callable[[], None]:
    """Let the thread that asks run on *processors* alone, all of them where empty.

    Returns what lets it run where it did, for any thread to call.
    """
    thread = threading.get_native_id()
    before = frozenset(os.sched_getaffinity(thread)) if processors else frozenset()
    # Another engine of this process may have confined it already.
    if not processors < before:
        return lambda: None
    _confine([thread], processors)
    return lambda: _confine([thread], before)


def give_way() -> None:
    """Let the processes that this one has started go first where they share a processor with it.

    The engine's core waits for its workers, and a step that they have finished waits for the core.
    """
    for thread in _threads(os.getpid()):
        with suppress(OSError):  # it has ended
            niceness = os.getpriority(os.PRIO_PROCESS, thread)
            os.setpriority(os.PRIO_PROCESS, thread, niceness + GIVES_WAY)


def _confine(threads: Iterable[int], processors: Processors) -> None:
    for thread in threads:
        with suppress(OSError):  # it has ended
            os.sched_setaffinity(thread, processors)


def _allowed(pid: int) -> Processors:
    try:
        return frozenset(os.sched_getaffinity(pid))
    except OSError:
        return frozenset()


def _threads(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(one.name) for one in (_PROC / str(pid) / "task").iterdir()]
    return []


def _started_by(root: int) -> set[int]:
    """Return *root* and every living process that descends from it."""
    parents = {}
    for folder in _PROC.glob("[0-9]*"):
        with suppress(OSError):
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[int(folder.name)] = int(stat[_PARENT])
    found, before = {root}, 0
    while len(found) > before:
        before = len(found)
        found |= {pid for pid, parent in parents.items() if parent in found}
    return found
