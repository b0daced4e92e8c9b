"""Results reach the job in small batches, and all of them whatever happens."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from blend.core.errors import BlendError
from blend.store.job import Job
from blend.store.recorder import Recorder
from tests.filled_job import answer, filled_job


class Clock:
    """A clock that stands still until it is set."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def recorded(job: Job) -> int:
    return job.counts().answered


def begun(job: Job) -> int:
    return job.begin_run(purpose="execute", engine="sim", settings={})


def test_sixty_four_results_are_saved_at_once(tmp_path: Path) -> None:
    with filled_job(tmp_path / "j.db", rows=70) as job:
        recorder = Recorder(job, begun(job), clock=Clock())
        recorder.add(answer(row) for row in range(63))
        before = recorded(job)
        recorder.add([answer(63)])

        assert (before, recorded(job)) == (0, 64)


def test_a_result_waits_a_second_at_most(tmp_path: Path) -> None:
    clock = Clock()
    with filled_job(tmp_path / "j.db", rows=3) as job:
        recorder = Recorder(job, begun(job), clock=clock)
        recorder.add([answer(0)])
        clock.now_s += 0.9
        recorder.add([answer(1)])
        before = recorded(job)
        clock.now_s += 0.1
        recorder.add([])

        assert (before, recorded(job)) == (0, 2)


def test_a_run_without_results_says_every_five_seconds_that_it_is_alive(tmp_path: Path) -> None:
    clock = Clock()
    filled_job(tmp_path / "j.db", rows=3).close()
    with Job.open(tmp_path / "j.db", clock=clock) as job:
        recorder = Recorder(job, begun(job), clock=clock)
        heard = []
        for _ in range(14):
            clock.now_s += 1
            recorder.add([])
            heard.append(job.runs()[0].heartbeat)

    assert heard == [100.0] * 4 + [105.0] * 5 + [110.0] * 5


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_nothing_that_arrived_is_lost_at_the_end(
    tmp_path: Path, error: type[BaseException] | None
) -> None:
    with filled_job(tmp_path / "j.db", rows=3) as job:
        try:
            with Recorder(job, begun(job), clock=Clock()) as recorder:
                recorder.add([answer(0), answer(2)])
                if error:
                    raise error
        except (ValueError, KeyboardInterrupt):
            pass

        assert job.pending().tolist() == [False, True, False]


def test_at_the_end_what_fits_on_the_disk_is_saved(tmp_path: Path) -> None:
    with filled_job(tmp_path / "j.db", rows=3) as job:
        sql = job._database.connection
        recorder = Recorder(job, begun(job), clock=Clock())
        recorder.add([answer(0, text="long" * 20_000), answer(1), answer(2)])
        # A page for each small one's table and index, none for the long one.
        pages = sql.execute("PRAGMA page_count").fetchone()[0]
        sql.execute(f"PRAGMA max_page_count = {pages + 4}")
        with pytest.raises(BlendError, match=r"disk full: .* 80,\d\d\d bytes"), recorder:
            pass

        assert job.pending().tolist() == [True, False, False]


def test_of_a_locked_job_no_row_waits_by_itself(tmp_path: Path) -> None:
    """With half a minute for each the end would take half an hour."""
    begun_to_write: list[str] = []
    filled_job(tmp_path / "j.db", rows=9).close()
    with (
        closing(sqlite3.connect(tmp_path / "j.db", isolation_level=None)) as other,
        Job.open(tmp_path / "j.db", wait_s=0.01) as job,
    ):
        recorder = Recorder(job, begun(job), clock=Clock())
        recorder.add(answer(row) for row in range(9))
        other.execute("BEGIN IMMEDIATE")
        job._database.connection.set_trace_callback(begun_to_write.append)
        with pytest.raises(BlendError, match="locked by another process"), recorder:
            pass

    assert begun_to_write.count("BEGIN IMMEDIATE") == 1


def test_a_batch_that_could_not_be_saved_is_saved_by_the_next_flush(tmp_path: Path) -> None:
    with filled_job(tmp_path / "j.db", rows=3) as job:
        sql = job._database.connection
        pages = sql.execute("PRAGMA page_count").fetchone()[0]
        recorder = Recorder(job, begun(job), clock=Clock())
        recorder.add([answer(0, text="long" * 20_000)])
        sql.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(BlendError, match="disk full"):
            recorder.flush()
        sql.execute("PRAGMA max_page_count = 100000")
        recorder.flush()

        assert recorded(job) == 1
