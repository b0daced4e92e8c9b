"""At most one process works on a job: a lock file beside it, held by the kernel.

The kernel frees the lock when its holder dies, however it dies, so that a stale lock cannot exist:
a file that names a dead process, or one of before the last boot, is taken over. What the file says
about the holder is for the message alone.
"""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from blend.core.command_line import command_line
from blend.core.errors import IN_USE, BlendError
from blend.store.runs import here

_held: set[int] = set()


def _close_inherited() -> None:
    # A forked child shares the lock, and would keep it after the death of its parent.
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_close_inherited)


def lock_path(job: Path) -> Path:
    """Return the lock file of a job."""
    return job.with_name(job.name + ".lock")


@contextmanager
def locked(
    job: Path, *, purpose: str, now: float, heard_of: Callable[[], float | None]
) -> Iterator[None]:
    """Hold the job for *purpose*; raise BlendError, naming the holder, when another has it.

    *heard_of* returns when the holder last gave a sign of life, in Unix time as *now*, where that
    is known.
    """
    path = lock_path(job.resolve())
    descriptor = _open(path)
    _held.add(descriptor)
    try:
        if not _taken(descriptor, path):
            raise _in_use(job, _holder(path), now=now, heard_of=heard_of())
        _sign(descriptor, purpose, now)
        try:
            yield
        finally:
            # The file stays: removed, two processes could lock two different files of its name.
            if descriptor in _held:
                os.ftruncate(descriptor, 0)
    finally:
        # In a forked child it is closed already, and its number may be another file's.
        if descriptor in _held:
            _held.discard(descriptor)
            os.close(descriptor)


def holder(job: Path) -> dict[str, Any] | None:
    """Return what is known of the process that holds the job: None where none does.

    Nothing is locked to find out. {} where it has not signed yet, or the system does not tell.
    """
    path = lock_path(job.resolve())
    try:
        inode = path.stat().st_ino
        held = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    for line in held:
        _, kind, _, _, _, file, *_ = line.split()
        if kind == "FLOCK" and file.rpartition(":")[2] == str(inode):
            return _holder(path)
    return None


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise BlendError(
            f"job cannot be locked: {path}: {error.strerror}",
            hint="check the permissions of the folder",
        ) from error


def _taken(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise BlendError(
                f"file system has no locks: {path}: {error.strerror}",
                hint="move the job to a local disk",
            ) from error
        return False
    return True


def _sign(descriptor: int, purpose: str, now: float) -> None:
    host, pid, boot_id = here()
    since = datetime.fromtimestamp(now).astimezone().isoformat(" ", "seconds")
    os.ftruncate(descriptor, 0)
    holder = {"pid": pid, "host": host, "boot": boot_id, "purpose": purpose, "since": since}
    os.pwrite(descriptor, orjson.dumps(holder), 0)


def _holder(path: Path) -> dict[str, Any]:
    with suppress(OSError, orjson.JSONDecodeError):
        return dict(orjson.loads(path.read_bytes()))
    return {}


def _in_use(job: Path, holder: dict[str, Any], *, now: float, heard_of: float | None) -> BlendError:
    # Between taking the lock and writing its name, a holder is unknown for a moment.
    who = "another process"
    if holder:
        known = {"boot": "unknown"} | holder
        who = "`{purpose}`, process {pid} on {host}, boot {boot:.8}, since {since}".format(**known)
    if heard_of is not None:
        who += f", last sign of life {max(now - heard_of, 0):,.0f} s ago"
    return BlendError(
        f"job is in use by {who}: {job}",
        hint=f"wait for it or stop it; look in with `{command_line('blend', 'status', job)}`",
        exit_code=IN_USE,
    )
