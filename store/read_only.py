"""How is a job read where nothing may be written beside it?

SQLite reads the write-ahead log of a job through an index, a file in the job's folder. Where a
process is at work on the job, or was killed, that file is there and may be read like the job
itself. Where it is not there and cannot be made, only a job with an empty log can be read: as a
file that does not change (SQLite's ``immutable``), without any lock. Nothing keeps another process
from changing it all the same, so that every read ends with a look at whether it has: what may be
of two states is never given out.
"""

from dataclasses import dataclass
from pathlib import Path

from blend.core.errors import RESUMABLE, BlendError


@dataclass(frozen=True, slots=True)
class Frozen:
    """A job file as it was when it was opened as one that does not change."""

    path: Path
    state: tuple[int, ...]

    def require_unchanged(self) -> None:
        """Raise BlendError where the file has been written since."""
        if _state(self.path) != self.state:
            raise BlendError(
                f"job was written by another process while it was read: {self.path}",
                hint="run the same command again",
                exit_code=RESUMABLE,
            )


def frozen(path: Path) -> Frozen | None:
    """Return the job at *path* as it is now; None where a part of it is in its log."""
    # Before the look at the log: what is moved from the log into the file later is a change.
    state = _state(path)
    log = log_path(path)
    return None if log.exists() and log.stat().st_size else Frozen(path, state)


def log_path(job: Path) -> Path:
    """Return the write-ahead log of a job."""
    return _beside(job, "-wal")


def index_path(job: Path) -> Path:
    """Return the index of the write-ahead log of a job."""
    return _beside(job, "-shm")


def _beside(job: Path, suffix: str) -> Path:
    real = job.resolve()
    return real.with_name(real.name + suffix)


def _state(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
