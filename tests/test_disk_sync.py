"""Results reach the disk without anyone waiting for it, and a disk that fails is heard of."""

import errno
import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from blend.core.errors import RESUMABLE, BlendError
from blend.store import disk_sync
from blend.store.job import DiskFullError, Job
from blend.store.read_only import log_path
from blend.store.recorder import BATCH_ROWS, Recorder
from tests.filled_job import answer, filled_job

WAIT_S = 60


def stands_still() -> float:
    return 0.0


def begun(job: Job) -> int:
    return job.begin_run(purpose="execute", engine="sim", settings={})


def answered_in(path: Path) -> int:
    with Job.open(path) as job:
        return job.counts().answered


def failing(number: int) -> Callable[[int], None]:
    def fsync(_descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    return fsync


def test_results_are_saved_while_the_disk_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answered = threading.Event(), threading.Event()

    def slow(_descriptor: int) -> None:
        asked.set()
        assert answered.wait(WAIT_S)

    monkeypatch.setattr("os.fsync", slow)
    with (
        filled_job(tmp_path / "j.db", rows=2 * BATCH_ROWS) as job,
        Recorder(job, begun(job), clock=stands_still) as recorder,
    ):
        recorder.add(answer(row) for row in range(BATCH_ROWS))
        assert asked.wait(WAIT_S)
        recorder.add(answer(row) for row in range(BATCH_ROWS, 2 * BATCH_ROWS))
        seen = answered_in(job.path)
        answered.set()

    assert seen == 2 * BATCH_ROWS


def test_what_is_saved_last_reaches_the_disk_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    path = tmp_path / "j.db"
    with filled_job(path, rows=1) as job:
        run = begun(job)
        monkeypatch.setattr("os.fsync", lambda _: synced.append(answered_in(path)))
        with Recorder(job, run, clock=stands_still) as recorder:
            recorder.add([answer(0)])

    assert synced[-1] == 1


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (errno.ENOSPC, DiskFullError, "disk full"),
        (errno.EIO, BlendError, "job cannot be read or written: .*j.db: Input/output error"),
    ],
)
def test_a_disk_that_fails_ends_the_run_resumable(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    kind: type[BlendError],
    words: str,
) -> None:
    with filled_job(tmp_path / "j.db", rows=1) as job:
        monkeypatch.setattr("os.fsync", failing(number))
        with (
            pytest.raises(kind, match=words) as raised,
            Recorder(job, begun(job), clock=stands_still) as recorder,
        ):
            recorder.add([answer(0)])
        kept = job.counts().answered

    assert raised.value.exit_code == RESUMABLE
    assert kept == 1


@pytest.mark.parametrize("fails", [False, True])
def test_what_has_gathered_in_the_log_is_moved_into_the_file_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """No commit has to, and nothing is lost where it cannot be done."""
    monkeypatch.setattr(disk_sync, "CHECKPOINT_BYTES", 1 << 20)
    if fails:
        monkeypatch.setattr(disk_sync, "connect", refusing)
    with filled_job(tmp_path / "j.db", rows=2) as job:
        before = job.path.stat().st_size
        with Recorder(job, begun(job), clock=stands_still) as recorder:
            recorder.add([answer(0, text="long" * (1 << 19))])
        grown = job.path.stat().st_size - before
        with Recorder(job, begun(job), clock=stands_still) as recorder:
            recorder.add([answer(1)])
        log = log_path(job.path).stat().st_size

        assert job.counts().answered == 2
    assert (grown >= 1 << 20, log < 1 << 20) == (not fails, not fails)


def refusing(*_: object) -> None:
    raise sqlite3.OperationalError("unable to open database file")


def test_a_full_disk_is_said_where_the_disk_has_failed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with filled_job(tmp_path / "j.db", rows=1) as job:
        sql, run = job._database.connection, begun(job)
        pages = sql.execute("PRAGMA page_count").fetchone()[0]
        sql.execute(f"PRAGMA max_page_count = {pages}")
        monkeypatch.setattr("os.fsync", failing(errno.EIO))
        with (
            pytest.raises(DiskFullError, match=r"80,\d\d\d bytes to write"),
            Recorder(job, run, clock=stands_still) as recorder,
        ):
            recorder.add([answer(0, text="long" * 20_000)])


def test_a_job_without_a_write_ahead_log_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with filled_job(tmp_path / "j.db", rows=1) as job:
        job._database.connection.execute("PRAGMA journal_mode = DELETE")
        monkeypatch.setattr("os.fsync", failing(errno.EIO))
        with Recorder(job, begun(job), clock=stands_still) as recorder:
            recorder.add([answer(0)])

        assert job.counts().answered == 1
