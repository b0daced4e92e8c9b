"""Killed at any moment and started again, a writer brings every result once and loses none."""

import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from blend.store.job import Job
from tests.filled_job import filled_job

ROWS = 3000
KILLS = 5
IN_FLIGHT = 40

EXECUTION = f"""
import sys, time
from pathlib import Path
from blend.store.job import Job
from blend.store.recorder import Recorder
from tests.filled_job import answer

last = int(sys.argv[2])
with Job.open(Path(sys.argv[1])) as job, job.lock("execute"):
    job.release()
    run = job.begin_run(purpose="execute", engine="sim", settings={{}})
    print("begun", flush=True)
    rows = [row for row, left in enumerate(job.pending()) if left][: -last or None]
    with Recorder(job, run, clock=time.monotonic) as recorder:
        for lo in range(0, len(rows), {IN_FLIGHT}):
            job.start_rows(run, rows[lo:lo + {IN_FLIGHT}])
            for row in rows[lo:lo + {IN_FLIGHT}]:
                recorder.add([answer(row)])
            time.sleep(0.001)
        time.sleep(60 if last else 0)
    job.end_run(run, "finished")
"""


INGEST = f"""
import sys, time
from pathlib import Path
from blend.store.job import Job
from tests.filled_job import new_row

last = int(sys.argv[2])
with Job.open(Path(sys.argv[1]), create=True) as job, job.lock("ingest"):
    source = job.open_source("in.jsonl", size=1, digest="d")
    print("begun", flush=True)
    for lo in range(source.offset, {ROWS} - last, {IN_FLIGHT}):
        rows = [new_row(row) for row in range(lo, min(lo + {IN_FLIGHT}, {ROWS}))]
        job.append(source, rows, [], offset=lo + len(rows), line=lo + len(rows))
        time.sleep(0.001)
    time.sleep(60 if last else 0)
"""


def write(script: str, path: Path, *, kill_after_s: float | None) -> None:
    """Run a writer to its end, or kill it; one to be killed never ends, however late the kill."""
    leave_rows = "0" if kill_after_s is None else str(IN_FLIGHT)
    with subprocess.Popen(
        [sys.executable, "-c", script, path, leave_rows],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parent.parent,
    ) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        if kill_after_s is not None:
            time.sleep(kill_after_s)
            writer.send_signal(signal.SIGKILL)


def assert_sound(path: Path) -> None:
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()


def test_every_row_has_one_result_after_kills_at_random_moments(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    filled_job(path, rows=ROWS).close()
    moment = random.Random(5)
    saved: dict[str, bytes] = {}
    for _ in range(KILLS):
        write(EXECUTION, path, kill_after_s=moment.uniform(0.0, 0.06))
        with Job.open(path) as job:
            now = {custom_id: completion.body for custom_id, completion in job.results()}
            running = job.counts().running

            assert saved.items() <= now.items()
            # A batch of 64 and those started since: what is recomputed stays within that.
            assert running <= 64 + IN_FLIGHT
            saved = now
    interrupted = len(saved)
    write(EXECUTION, path, kill_after_s=None)

    assert interrupted < ROWS
    with Job.open(path) as job:
        counts = job.counts()
        attempts = [job.attempts(row) for row in range(ROWS)]

        assert (counts.answered, counts.running, counts.pending) == (ROWS, 0, 0)
        assert len(list(job.results())) == ROWS
        assert sum(attempts) - ROWS <= KILLS * (64 + IN_FLIGHT)
        assert [run.outcome for run in job.runs()] == ["killed"] * KILLS + ["finished"]
    assert_sound(path)


def test_an_ingest_killed_at_random_moments_brings_every_line_once(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    moment = random.Random(7)
    for _ in range(KILLS):
        write(INGEST, path, kill_after_s=moment.uniform(0.0, 0.03))
        with Job.open(path) as job:
            assert len(job) == job.sources()[0].offset < ROWS
    write(INGEST, path, kill_after_s=None)

    with Job.open(path) as job:
        assert job.custom_ids(range(len(job))) == [f"request-{row}" for row in range(ROWS)]
    assert_sound(path)
