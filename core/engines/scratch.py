"""The folder of one engine: what its processes leave behind, and who clears it away.

Every process of an engine has the folder as TMPDIR in its environment. The name of a folder never
comes twice, so that whoever has it belongs to that engine: no process with a recycled number is
ever taken for one. The folder says who owns it; when that process is dead, what it left can go.
Only Linux tells enough of processes; elsewhere nothing is found and nothing is cleared away.
"""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

_PREFIX = "blend-"
_OWNER = "owner.json"
_PROC = Path("/proc")
_SHARED_MEMORY = "/dev/shm/psm_"
# Fields of /proc/PID/stat behind the name of the command, which may hold anything.
_STARTED = 19


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, so named that no other ever has the same name."""

    pid: int
    started: int
    pid_space: str
    boot_id: str
    host: str


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """What was cleared away of an engine: its owner, and the processes that still ran."""

    owner_pid: int
    processes: int


def make_scratch(parent: str | None = None) -> Path:
    """Make a folder for an engine of this process, in the temporary folder unless told where."""
    scratch = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    if (owner := _owner(os.getpid())) is not None:
        (scratch / _OWNER).write_bytes(orjson.dumps(asdict(owner)))
    return scratch


def clear_left_behind() -> list[LeftBehind]:
    """End the processes of engines whose owner is dead, and remove their folders."""
    cleared = []
    for folder, owner in left_behind().items():
        cleared.append(LeftBehind(owner.pid, end_processes(folder)))
        shutil.rmtree(folder, ignore_errors=True)
    return cleared


def left_behind() -> dict[Path, Owner]:
    """Return the folders of engines whose owner is dead, with that."""
    found = {}
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        owner = _recorded_owner(folder)
        if owner is not None and _is_dead(owner):
            found[folder] = owner
    return found


def end_processes(scratch: Path) -> int:
    """Kill every process of an engine, remove the memory they shared; return how many they were."""
    processes = list(_processes(scratch))
    shared = {name for pid in processes for name in _shared_memory(pid)}
    killed = sum(_kill(pid, scratch) for pid in processes)
    for name in shared:
        Path(name).unlink(missing_ok=True)
    return killed


def _processes(scratch: Path) -> Iterator[int]:
    for folder in _PROC.glob("[0-9]*"):
        if _belongs(int(folder.name), scratch):
            yield int(folder.name)


def _belongs(pid: int, scratch: Path) -> bool:
    with suppress(OSError):
        environment = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
        return b"TMPDIR=" + os.fsencode(scratch) in environment
    return False


def _shared_memory(pid: int) -> Iterator[str]:
    with suppress(OSError):
        for line in (_PROC / str(pid) / "maps").read_text().splitlines():
            name = line.split(maxsplit=5)[-1]
            if name.startswith(_SHARED_MEMORY) and not name.endswith(" (deleted)"):
                yield name


def _kill(pid: int, scratch: Path) -> bool:
    # The descriptor stays that of one process, whatever becomes of its number meanwhile.
    with suppress(OSError):
        descriptor = os.pidfd_open(pid)
        try:
            if _belongs(pid, scratch):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                return True
        finally:
            os.close(descriptor)
    return False


def _recorded_owner(folder: Path) -> Owner | None:
    with suppress(OSError, ValueError, TypeError):
        if folder.stat().st_uid == os.geteuid():
            return Owner(**orjson.loads((folder / _OWNER).read_bytes()))
    return None


def _is_dead(owner: Owner) -> bool:
    """Whether *owner* is known to be dead; that of another machine or container may live.

    The same host name with another boot is a reboot, or another machine of that name which shares
    the folder: what nobody can tell apart stays.
    """
    ours = _owner(os.getpid())
    if ours is None or _place(ours) != _place(owner):
        return False
    return _owner(owner.pid) != owner


def _place(owner: Owner) -> tuple[str, str, str]:
    """Return where the numbers of processes mean the same as to *owner*."""
    return owner.host, owner.boot_id, owner.pid_space


def _owner(pid: int) -> Owner | None:
    with suppress(OSError):
        stat = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return Owner(
            pid,
            int(stat[_STARTED]),
            str((_PROC / "self" / "ns" / "pid").readlink()),
            (_PROC / "sys" / "kernel" / "random" / "boot_id").read_text().strip(),
            os.uname().nodename,
        )
    return None
