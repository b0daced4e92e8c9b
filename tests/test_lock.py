"""One process works on a job at a time, and a dead one never stands in the way."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from blend.core.errors import IN_USE, BlendError
from blend.store.job import Job
from blend.store.lock import lock_path
from blend.store.runs import here
from tests.filled_job import filled_job

HOLDER = """
import sys, time
from pathlib import Path
from blend.store.job import Job

with Job.open(Path(sys.argv[1])) as job, job.lock("execute"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    filled_job(tmp_path / "j.db", rows=1).close()
    return tmp_path / "j.db"


@contextmanager
def holder(path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Another process that has the lock."""
    with subprocess.Popen([sys.executable, "-c", HOLDER, path], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == b"held\n"
            yield other
        finally:
            other.kill()


def test_the_second_process_learns_who_has_the_job(path: Path) -> None:
    with holder(path) as other, Job.open(path) as job:
        with pytest.raises(BlendError) as caught, job.lock("plan"):
            pass

        assert caught.value.exit_code == IN_USE
        assert f"`execute`, process {other.pid} on {os.uname().nodename}" in caught.value.message


def test_the_second_process_learns_when_the_first_was_last_heard_of(path: Path) -> None:
    with (
        Job.open(path, clock=lambda: 1_000.0) as job,
        Job.open(path, clock=lambda: 3_500.0) as other,
        job.lock("execute"),
    ):
        run = job.begin_run(purpose="execute", engine="sim", settings={})
        job.beat(run)
        with pytest.raises(BlendError, match="last sign of life 2,500 s ago"), other.lock("plan"):
            pass
        job.end_run(run, "finished")
        with pytest.raises(BlendError) as caught, other.lock("plan"):
            pass

    assert "sign of life" not in caught.value.message


@pytest.mark.parametrize("left", ["dead process", "other boot", "torn", "of an older version"])
def test_the_file_of_a_dead_holder_is_taken_over(path: Path, left: str) -> None:
    with holder(path) as other:
        file = lock_path(path)
        said = orjson.loads(file.read_bytes())
        other.kill()
        other.wait()
    match left:
        case "other boot":
            said |= {"boot": "of before", "pid": os.getpid()}
        case "of an older version":
            del said["boot"]
    file.write_bytes(orjson.dumps(said)[: 20 if left == "torn" else None])
    with Job.open(path) as job, job.lock("execute"):
        taken = orjson.loads(file.read_bytes())

    assert (taken["pid"], taken["boot"]) == (os.getpid(), here()[2])


def test_a_killed_holder_lets_go_at_once(path: Path) -> None:
    with holder(path) as other, Job.open(path) as job:
        os.kill(other.pid, signal.SIGKILL)
        other.wait()
        with job.lock("execute"):
            pass


def test_the_lock_is_free_after_the_context_also_after_an_error(path: Path) -> None:
    with Job.open(path) as job, Job.open(path) as other:
        with pytest.raises(ZeroDivisionError), job.lock("plan"):
            raise ZeroDivisionError
        with other.lock("plan"):
            pass


def test_reading_needs_no_lock(path: Path) -> None:
    with holder(path), Job.open(path) as job:
        assert job.counts().total == 1


def test_a_link_to_a_job_is_the_same_job(path: Path) -> None:
    link = path.with_name("link.db")
    link.symlink_to(path)
    with (
        Job.open(path) as job,
        Job.open(link) as other,
        job.lock("plan"),
        pytest.raises(BlendError, match="in use"),
        other.lock("plan"),
    ):
        pass


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_children_of_the_holder_do_not_keep_the_lock(path: Path, start: str) -> None:
    """A surviving engine process must not block the job for good."""
    code = f"""
import os, subprocess, sys, time
from pathlib import Path
from blend.store.job import Job

with Job.open(Path(sys.argv[1])) as job, job.lock("execute"):
    if {start!r} == "fork":
        if not os.fork():
            # Said by the child: before it runs, nothing has closed its copy of the lock.
            print(os.getpid(), flush=True)
            time.sleep(60)
            os._exit(0)
    else:
        child = subprocess.Popen(["sleep", "60"], close_fds=False, stdout=subprocess.DEVNULL)
        print(child.pid, flush=True)
    time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            parent.kill()
            parent.wait()
            with Job.open(path) as job, job.lock("execute"):
                pass
            os.kill(child, 0)
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_child_that_leaves_the_context_changes_nothing(path: Path) -> None:
    """After the fork, the number of the lock's descriptor may belong to another file."""
    code = """
import os, sys
from pathlib import Path
from blend.store.job import Job

other = Path(sys.argv[1]).with_name("other.txt")
other.write_text("precious")
with Job.open(Path(sys.argv[1])) as job:
    with job.lock("execute"):
        child = os.fork()
        if not child:
            opened = [os.open(other, os.O_RDWR) for _ in range(20)]
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
print(other.read_text())
"""
    run = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, check=True
    )

    assert (run.stdout, run.stderr) == ("precious\n", "")
