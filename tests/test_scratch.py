"""What a dead blend left of its engine is cleared away, and nothing else is touched."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from blend.cli.engine import end_left_behind
from blend.core.engines.scratch import LeftBehind, clear_left_behind, make_scratch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.fixture
def start() -> Iterator[Start]:
    """Start processes of an engine, in a session of their own."""
    started: list[subprocess.Popen[bytes]] = []

    def process(scratch: Path, code: str = "print(flush=True)") -> "subprocess.Popen[bytes]":
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", f"import time\n{code}\ntime.sleep(60)"],
                env=os.environ | {"TMPDIR": str(scratch)},
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
        )
        assert started[-1].stdout is not None
        started[-1].first_line = started[-1].stdout.readline()  # type: ignore[attr-defined]
        return started[-1]

    yield process
    for one in started:
        one.kill()
        one.communicate()


def belongs_to(scratch: Path, **changes: object) -> Path:
    """Change who the folder says it belongs to."""
    owner = scratch / "owner.json"
    owner.write_text(json.dumps(json.loads(owner.read_text()) | changes))
    return scratch


def dead_pid() -> int:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    return process.pid


def test_the_engine_of_a_dead_owner_is_ended(start: Start) -> None:
    scratch = belongs_to(make_scratch(), pid=dead_pid())
    first, second = start(scratch), start(scratch)
    second.send_signal(signal.SIGSTOP)

    assert [left.processes for left in clear_left_behind()] == [2]
    assert (first.wait(), second.wait()) == (-signal.SIGKILL, -signal.SIGKILL)
    assert not scratch.exists()
    assert clear_left_behind() == []


def test_a_number_that_another_process_has_now_is_not_its_owner(start: Start) -> None:
    other = start(Path("elsewhere"))
    scratch = belongs_to(make_scratch(), pid=other.pid)

    assert clear_left_behind() == [LeftBehind(other.pid, 0)]
    assert not scratch.exists()
    assert other.poll() is None


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"host": "another", "pid": 1, "boot_id": "x"},
        {"pid": 1, "boot_id": "x"},
        {"pid_space": "another", "pid": 1},
    ],
    ids=["ours", "of another machine", "of another of our name", "of another container"],
)
def test_an_owner_that_may_live_keeps_its_engine(start: Start, changes: dict[str, object]) -> None:
    scratch = belongs_to(make_scratch(), **changes)
    engine = start(scratch)

    assert clear_left_behind() == []
    assert engine.poll() is None
    assert scratch.exists()


def test_folders_of_others_stay(tmp_path: Path) -> None:
    for name, owner in (("blend-none", None), ("blend-odd", "[1]"), ("blend-torn", '{"pid"')):
        (tmp_path / name).mkdir()
        if owner:
            (tmp_path / name / "owner.json").write_text(owner)

    assert clear_left_behind() == []
    assert len(list(tmp_path.iterdir())) == 3


SHARES = """
from multiprocessing import resource_tracker, shared_memory
memory = shared_memory.SharedMemory(create=True, size=1000)
resource_tracker.unregister(memory._name, "shared_memory")
print(memory.name, flush=True)
"""


def test_the_memory_that_its_processes_shared_is_removed(start: Start) -> None:
    scratch = belongs_to(make_scratch(), pid=dead_pid())
    engine = start(scratch, SHARES)
    shared = Path("/dev/shm") / engine.first_line.decode().strip()  # type: ignore[attr-defined]
    assert shared.exists()
    clear_left_behind()

    assert not shared.exists()


def test_a_command_that_starts_an_engine_says_what_it_ended(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="blend")
    scratch = belongs_to(make_scratch(), pid=(pid := dead_pid()))
    start(scratch)
    end_left_behind()
    end_left_behind()

    said = f"ended 1 process of an engine that a dead blend (process {pid}) had left behind"
    assert caplog.messages == [said]
