"""A job is read where nothing may be written: a read-only disk, another user's folder."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from blend.cli.app import main
from blend.cli.job_health import job_checks
from blend.core.errors import RESUMABLE, USAGE, BlendError
from blend.store.job import Job
from tests.filled_job import answer, filled_job

NOBODY = 65_534
WRITER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("INSERT INTO meta VALUES ('model', '\\"m\\"')")
print("written", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path() -> Iterator[Path]:
    """A job of three rows, one answered, in a folder that all may look into."""
    folder = Path(tempfile.mkdtemp(prefix="blend-test-"))
    path = folder / "j.blend"
    with filled_job(path, rows=3) as job:
        run = job.begin_run(purpose="execute", engine="sim", settings={})
        job.record(run, [answer(1)])
        job.end_run(run, "stopped")
    path.chmod(0o644)
    folder.chmod(0o755)
    yield path
    folder.chmod(0o755)
    shutil.rmtree(folder)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Be, for a while, somebody who may not write into *folder*; root becomes nobody."""
    root = os.geteuid() == 0
    folder.chmod(0o755 if root else 0o555)
    try:
        if root:
            os.seteuid(NOBODY)
        if os.access(folder, os.W_OK, effective_ids=True):
            pytest.skip("everything may be written here, whoever asks")
        yield
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o755)


@contextmanager
def writer(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the job open and has written what is in its log alone."""
    command = [sys.executable, "-S", "-c", WRITER, path]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        yield process
        process.kill()


def beside(path: Path) -> set[str]:
    """The suffixes of the files that SQLite has made beside the job."""
    return {suffix for suffix in ("-wal", "-shm") if path.with_name(path.name + suffix).exists()}


def test_a_job_at_rest_is_read(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = path.with_name("out")
    outputs.mkdir()
    outputs.chmod(0o777)
    commands = [
        ["status", str(path)],
        ["show", str(path)],
        ["report", str(path), "-o", "-"],
        ["export", str(path), "-o", str(outputs / "out.jsonl"), "--overwrite"],
    ]
    # Once as root: what a command imports need not be there for nobody.
    codes = [main(command) for command in commands]
    said, checks = capsys.readouterr().out, list(job_checks(path))
    with read_only(path.parent):
        again = [main(command) for command in commands]
        checks_again = list(job_checks(path))

    assert codes == again == [0, 0, 0, 0]
    assert capsys.readouterr().out == said
    assert (checks[0].state, checks_again[0].state) == ("ok", "warn")
    assert checks_again[1:] == checks[1:]
    assert beside(path) == set()


def test_what_writes_says_that_it_cannot(path: Path) -> None:
    with read_only(path.parent), Job.open(path) as job:
        with pytest.raises(BlendError, match="cannot be written") as set_meta:
            job.set_meta(a=1)
        with pytest.raises(BlendError, match="cannot be locked"), job.lock("execute"):
            pass

        assert set_meta.value.exit_code == USAGE
        assert (len(job), job.meta("a")) == (3, None)


def test_a_job_that_another_process_works_on_is_read_with_its_log(path: Path) -> None:
    with writer(path), read_only(path.parent), Job.open(path) as job:
        found, frozen = job.meta("model"), job.frozen

    assert (found, frozen) == ("m", False)


def test_a_job_that_a_killed_process_left_is_read_with_its_log(path: Path) -> None:
    with writer(path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        with read_only(path.parent), Job.open(path) as job:
            found = job.meta("model")
        left = beside(path)

    assert left == {"-wal", "-shm"}
    assert found == "m"


def test_nothing_is_left_out_where_the_log_cannot_be_read(path: Path) -> None:
    with writer(path) as process:
        process.kill()
        process.wait()
    path.with_name(path.name + "-shm").unlink()
    with read_only(path.parent), pytest.raises(BlendError, match="blend-wal") as caught:
        Job.open(path)

    assert "cp " in (caught.value.hint or "")


def test_a_job_that_is_written_while_it_is_read_is_not_given_out(path: Path) -> None:
    with read_only(path.parent):
        job = Job.open(path)
    with closing(job):
        with closing(sqlite3.connect(path)) as other, other:
            other.execute("INSERT INTO meta VALUES ('model', '1')")
        for read in (job.counts, lambda: list(job.results())):
            with pytest.raises(BlendError, match="while it was read") as caught:
                read()

            assert caught.value.exit_code == RESUMABLE


def test_a_job_of_an_older_format_is_to_be_copied(path: Path) -> None:
    with closing(sqlite3.connect(path)) as older:
        older.execute("PRAGMA user_version = 4")
    with read_only(path.parent), pytest.raises(BlendError, match="older format") as caught:
        Job.open(path)

    assert "copy it" in (caught.value.hint or "")


def test_a_job_that_may_not_be_read_is_somebody_elses(path: Path) -> None:
    path.chmod(0)
    with read_only(path.parent), pytest.raises(BlendError, match="permission denied") as caught:
        Job.open(path)
    path.chmod(0o644)

    assert "owner" in (caught.value.hint or "")
