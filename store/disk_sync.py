"""Results that have been committed reach the disk from a thread, so that saving does not wait.

A disk takes milliseconds to say that it has something, and up to seconds while an engine keeps all
processors busy. Whoever feeds the engine would let it run dry meanwhile. The same thread moves what
has gathered in the write-ahead log into the job's file, which takes two such waits.
"""

import errno
import os
import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path

from blend.store.database import CHECKPOINT_PAGES, connect
from blend.store.read_only import log_path
from blend.store.sqlite_errors import disk_failed, disk_full

_PAGE_BYTES = 4096
CHECKPOINT_BYTES = CHECKPOINT_PAGES * _PAGE_BYTES

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class DiskSync:
    """Brings the write-ahead log of an open job to the disk, again and again when asked to.

    The log may be opened and closed beside SQLite, which holds no lock on it, unlike the job's own
    file. It must be there: the job has been written since it was opened, and stays open.
    """

    def __init__(self, job_path: Path):
        self._path = job_path
        self._log = os.open(log_path(job_path), os.O_RDWR)
        self._due = threading.Event()
        self._ending = False
        self._failure: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="disk sync", daemon=True)
        self._thread.start()

    def ask(self) -> None:
        """Have what is committed by now brought to the disk, without waiting for it.

        Raises BlendError when that has failed before.
        """
        self._raise_failure()
        self._due.set()

    def close(self) -> None:
        """Wait until the disk has all that is committed by now; BlendError when it cannot."""
        self._ending = True
        self._due.set()
        self._thread.join()
        self._raise_failure()

    def _run(self) -> None:
        try:
            self._sync()
        finally:
            os.close(self._log)

    def _sync(self) -> None:
        last = False
        while not last:
            self._due.wait()
            self._due.clear()
            last = self._ending
            try:
                os.fsync(self._log)
            except OSError as error:
                self._failure = error
                return
            if os.fstat(self._log).st_size >= CHECKPOINT_BYTES:
                self._checkpoint()

    def _checkpoint(self) -> None:
        # As when a commit does it, nothing is lost where it fails: what is in the log stays there.
        with suppress(sqlite3.Error), closing(connect(self._path, "rw", 0.0)) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def _raise_failure(self) -> None:
        if (failure := self._failure) is None:
            return
        if failure.errno in _NO_ROOM:
            raise disk_full(self._path) from failure
        raise disk_failed(self._path, failure.strerror or str(failure)) from failure
