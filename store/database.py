"""One connection to a job file: opened safely, written in transactions, errors made plain.

A quick commit survives the death of the process, a durable one the loss of power: in WAL mode,
SQLite's ``synchronous`` setting decides whether a commit waits for the disk.
"""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from blend.core.causes import cause_of
from blend.core.command_line import command_line
from blend.core.errors import BlendError
from blend.store.migrations import (
    APPLICATION_ID,
    MIGRATIONS,
    application_id,
    format_version,
    migrate,
)
from blend.store.read_only import Frozen, frozen
from blend.store.sqlite_errors import explained, is_refusal, job_beside

CACHE_KIB = 16 * 1024
CHECKPOINT_PAGES = 8 * 1024
"""So many pages in the write-ahead log are moved into the job's file, by a commit or a thread."""

LATE_CHECKPOINT_PAGES = 4 * CHECKPOINT_PAGES
"""So many are moved by a commit where a thread is to do it, and does not keep up."""
_CHECKED_EVERY = 10_000  # instructions of SQLite
_FROZEN = "ro&immutable=1"


@dataclass(frozen=True, slots=True)
class Database:
    """An open job file."""

    path: Path
    connection: sqlite3.Connection
    wait_s: float
    frozen: Frozen | None = None

    @contextmanager
    def write(self, *, durable: bool, size_bytes: int = 0) -> Iterator[sqlite3.Connection]:
        """Hold one transaction: all of it is committed, or none when anything is raised.

        ``size_bytes``, about what is written, is named when the disk is full.
        """
        with explained(self.path, size_bytes):
            self.connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            try:
                self.connection.execute("BEGIN IMMEDIATE")
                yield self.connection
                self.connection.execute("COMMIT")
            except BaseException:
                # SQLite has already rolled back after a full disk or an input/output error.
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Hold one state of the job for several queries."""
        with explained(self.path):
            try:
                self.connection.execute("BEGIN")
                with self._unchanged():
                    yield self.connection
            finally:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """Hold one state of the job on a connection of its own, while this one goes on writing."""
        mode = _FROZEN if self.frozen else "rw"
        with explained(self.path), closing(connect(self.path, mode, self.wait_s)) as connection:
            connection.execute("PRAGMA query_only = 1")
            connection.execute("BEGIN")
            with self._unchanged():
                yield connection

    @contextmanager
    def _unchanged(self) -> Iterator[None]:
        # Of a file that changed, SQLite may also have read nonsense.
        try:
            yield
        except (sqlite3.Error, ValueError):
            if self.frozen:
                self.frozen.require_unchanged()
            raise
        if self.frozen:
            self.frozen.require_unchanged()

    def damage(self, *, limit_s: float) -> str | None:
        """Return the first damage that SQLite finds in the file, None for none in *limit_s*."""
        until_s = time.monotonic() + limit_s
        self.connection.set_progress_handler(lambda: time.monotonic() > until_s, _CHECKED_EVERY)
        try:
            found: str = self.connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                raise
            return None
        except sqlite3.DatabaseError as error:
            return str(error)
        finally:
            self.connection.set_progress_handler(None, 0)
        return None if found == "ok" else found

    def leave_checkpoints(self) -> None:
        """Let commits move no pages from the log into the file, unless nobody else does it."""
        self.connection.execute(f"PRAGMA wal_autocheckpoint = {LATE_CHECKPOINT_PAGES}")

    def close(self) -> None:
        """Close the connection; the last one folds the write-ahead log into the file."""
        self.connection.close()


def open_database(path: Path, *, create: bool, wait_s: float) -> Database:
    """Open the job file at *path*, brought to the present format; *create* makes a missing one.

    ``wait_s`` bounds the wait for another process's transaction. A job in a folder that may not be
    written is opened to be read.
    """
    _require_file(path, create)
    with explained(path):
        try:
            connection = _opened(path, "rwc" if create else "rw", create=create, wait_s=wait_s)
        except sqlite3.Error as error:
            as_it_is = frozen(path) if is_refusal(error) and path.exists() else None
            if as_it_is is None:
                raise
            connection = _opened(path, _FROZEN, create=create, wait_s=wait_s)
            return Database(path, connection, wait_s, as_it_is)
    return Database(path, connection, wait_s)


def _opened(path: Path, mode: str, *, create: bool, wait_s: float) -> sqlite3.Connection:
    connection = connect(path, mode, wait_s)
    try:
        _require_job(connection, path, create)
        if mode == _FROZEN:
            _require_format(connection, path)
        elif format_version(connection) < len(MIGRATIONS):
            connection.execute("PRAGMA journal_mode = WAL")
            migrate(connection, MIGRATIONS)
    except BaseException:
        connection.close()
        raise
    return connection


def connect(path: Path, mode: str, wait_s: float) -> sqlite3.Connection:
    """Open a connection to the job file at *path*, whatever it holds."""
    connection = sqlite3.connect(
        f"file:{quote(os.fsencode(path.absolute()))}?mode={mode}",
        uri=True,
        timeout=wait_s,
        isolation_level=None,
    )
    connection.execute("PRAGMA foreign_keys = 1")
    connection.create_function("cause_of", 1, cause_of, deterministic=True)
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
    # The log is never longer than what is in it, so that its length says how much that is.
    connection.execute("PRAGMA journal_size_limit = 0")
    return connection


def _require_file(path: Path, create: bool) -> None:
    if path.is_dir():
        raise BlendError(f"job is a directory: {path}", hint="name a file, such as batch.blend")
    if path.exists() and not path.is_file():
        # SQLite would leave a journal beside a device.
        raise BlendError(f"job is no regular file: {path}", hint="name a file, such as batch.blend")
    # Not to be read here: closing any descriptor of a file drops every lock that this process has
    # on it, SQLite's too, and another process would then delete the log of an open connection.
    if path.exists():
        return
    if not create:
        raise BlendError(
            f"no such job: {path}",
            hint=job_beside(path) or "make it with `blend ingest IN --job JOB`",
        )
    if not path.parent.is_dir():
        raise BlendError(
            f"no such folder: {path.parent}",
            hint=f"make it: `{command_line('mkdir', '-p', path.parent)}`",
        )


def _require_job(connection: sqlite3.Connection, path: Path, create: bool) -> None:
    version = format_version(connection)
    if version > len(MIGRATIONS) and application_id(connection) == APPLICATION_ID:
        raise BlendError(
            f"job was written by a newer blend: {path}: format {version}, "
            f"this one reads up to {len(MIGRATIONS)}",
            hint="use that one, or upgrade this: `pip install --upgrade blend-batch`",
        )
    if application_id(connection) == APPLICATION_ID:
        return
    if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] or version:
        raise BlendError(
            f"not a job, but another program's SQLite file: {path}",
            hint="jobs are made by `blend ingest`",
        )
    if not create:
        raise BlendError(f"job is empty: {path}", hint="fill it with `blend ingest IN --job JOB`")


def _require_format(connection: sqlite3.Connection, path: Path) -> None:
    if (version := format_version(connection)) < len(MIGRATIONS):
        raise BlendError(
            "job is of an older format, and may not be written to migrate it: "
            f"{path}: format {version}, this blend reads {len(MIGRATIONS)}",
            hint=f"copy it to a folder where you may write: `{command_line('cp', path, 'FOLDER')}`",
        )
