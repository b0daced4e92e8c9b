"""What can a person do about an error of SQLite?"""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from blend.core.command_line import command_line
from blend.core.errors import IN_USE, RESUMABLE, BlendError
from blend.store.read_only import frozen, index_path, log_path

WORK_BYTES = 32 * 1024
"""What SQLite must write beside a job before it can so much as read it."""

_REFUSED = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)


class DiskFullError(BlendError):
    """The disk has no room for what is to be written."""


def job_beside(path: Path) -> str | None:
    """Return a hint at the job of a result file, where that is what was named."""
    job = path.with_suffix(".blend") if path.name else path
    return f"did you mean {job}?" if job != path and job.is_file() else None


def is_refusal(error: sqlite3.Error) -> bool:
    """Return whether the system did not let SQLite open or write a file."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _REFUSED


@contextmanager
def explained(path: Path, size_bytes: int = 0) -> Iterator[None]:
    """Raise BlendError, with what helps, for an error of SQLite that is no fault of ours.

    ``size_bytes``, about what is written, is named when the disk is full.
    """
    try:
        yield
    except sqlite3.Error as error:
        known = _explanation(error, path, size_bytes)
        if known is None:
            raise
        raise known from error


def _explanation(error: sqlite3.Error, path: Path, size_bytes: int) -> BlendError | None:
    """Return what the user can do about *error*; None for a fault of ours."""
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return BlendError(
                f"job is locked by another process: {path}",
                hint="wait for it, or find it with `fuser`",
                exit_code=IN_USE,
            )
        case sqlite3.SQLITE_FULL:
            return disk_full(path, size_bytes)
        case sqlite3.SQLITE_NOTADB:
            return BlendError(
                f"not a job: {path}", hint=job_beside(path) or "jobs are made by `blend ingest`"
            )
        case sqlite3.SQLITE_CORRUPT:
            return BlendError(
                f"job is damaged: {path}: {error}",
                hint=f"save what is left: `{command_line('sqlite3', path, '.recover')}"
                " | sqlite3 recovered.db`",
            )
        case _ if is_refusal(error):
            return _refusal(error, path)
        case sqlite3.SQLITE_IOERR if _free_bytes(path) < WORK_BYTES:
            # SQLite could not make its index of the write-ahead log, which readers need too.
            return disk_full(path, max(size_bytes, WORK_BYTES))
        case sqlite3.SQLITE_IOERR:
            return disk_failed(path, str(error))
        case _:
            return None


def disk_failed(path: Path, cause: str) -> BlendError:
    """Return what to say where the disk has failed."""
    return BlendError(
        f"job cannot be read or written: {path}: {cause}",
        hint="check the disk; a job belongs on a local one",
        exit_code=RESUMABLE,
    )


def disk_full(path: Path, size_bytes: int | None = None) -> DiskFullError:
    """Return what to say where ``size_bytes``, about what is to be written, do not fit."""
    to_write = "" if size_bytes is None else f"{size_bytes:,} bytes to write, "
    return DiskFullError(
        f"disk full: {path}: {to_write}{_free_bytes(path):,} free",
        hint="free some space and run the same command again; what was saved stays",
        exit_code=RESUMABLE,
    )


def _free_bytes(path: Path) -> int:
    return shutil.disk_usage(path.parent).free


def _refusal(error: sqlite3.Error, path: Path) -> BlendError:
    if not os.access(path, os.R_OK, effective_ids=True):
        return BlendError(
            f"job cannot be read: {path}: permission denied",
            hint="ask its owner, or check the permissions of the file and of its folder",
        )
    if frozen(path) is None and not index_path(path).exists():
        log = log_path(path)
        return BlendError(
            f"job cannot be read here: a part of it is in {log}, and nothing may be written beside",
            hint="copy both to a folder where you may write: "
            f"`{command_line('cp', path, log, 'FOLDER')}`",
        )
    return BlendError(
        f"job cannot be written: {path}: {error}",
        hint="check the permissions of the file and of its folder",
    )
