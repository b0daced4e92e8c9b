"""How much CPU time have a process and all that it started taken, and which are they?"""

import os
from pathlib import Path

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_PARENT, _USER, _SYSTEM = 1, 11, 12


def _stats() -> dict[int, list[str]]:
    """Return the fields behind the name in /proc/PID/stat of every process."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            found[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def cpu_seconds(root: int) -> float:
    """Return the CPU seconds of the living processes that descend from *root*, itself included."""
    stats = _stats()
    ticks = sum(int(stats[pid][_USER]) + int(stats[pid][_SYSTEM]) for pid in _tree(stats, root))
    return ticks / _TICKS_A_SECOND


def tree(root: int) -> set[int]:
    """Return *root* and the living processes that descend from it."""
    return _tree(_stats(), root)


def _tree(stats: dict[int, list[str]], root: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, fields in stats.items():
        children.setdefault(int(fields[_PARENT]), []).append(pid)
    found: set[int] = set()
    left = [root] if root in stats else []
    while left:
        pid = left.pop()
        found.add(pid)
        left += children.get(pid, [])
    return found
