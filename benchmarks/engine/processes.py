"""Which processes did a command start, and how much CPU time have they taken?"""

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


def cpu_seconds_around(root: int) -> float:
    """Return those of them that are no part of vLLM's engine, which names its processes."""
    stats = _stats()
    around = [pid for pid in _tree(stats, root) if not _name(pid).startswith("VLLM::")]
    ticks = sum(int(stats[pid][_USER]) + int(stats[pid][_SYSTEM]) for pid in around)
    return ticks / _TICKS_A_SECOND


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""


def tree(root: int) -> set[int]:
    """Return *root* and the living processes that descend from it."""
    return _tree(_stats(), root)


def marked(variable: str, value: str) -> set[int]:
    """Return the living processes in whose environment *variable* has *value*.

    A process cannot lose it by leaving its parent, its group or its session.
    """
    wanted = f"{variable}={value}".encode()
    found = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if wanted in path.read_bytes().split(b"\0") and not _dead(path.parent):
                found.add(int(path.parent.name))
        except OSError:
            continue
    return found


def _dead(process: Path) -> bool:
    return (process / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"


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
