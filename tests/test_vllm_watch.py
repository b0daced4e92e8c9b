"""An engine that says nothing, or nothing of use, with requests inside counts as dead in time."""

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from types import SimpleNamespace

import pytest

from blend.core.completion import Completion
from blend.core.engines import Capacity, EngineDiedError, StepReport, silence, vllm_launch
from blend.core.engines import vllm as vllm_engine
from blend.core.engines.vllm import MOST_FOLDED, VllmEngine
from blend.core.engines.vllm_launch import PACE_FILE, HostProcess
from blend.core.engines.vllm_log import EngineLog
from blend.core.engines.vllm_messages import Moved, Ready
from blend.core.engines.vllm_pace import SharedPace
from tests.tiny_engine import TEXT, living, request, settings, text, wait_until

FOREVER_S = 1000.0


class Host:
    """What stands in for the engine's process: alive, and silent until it is told to speak."""

    def __init__(self, folder: Path):
        self.process = subprocess.Popen(["sleep", "60"], start_new_session=True)
        self.pipe, self._theirs = Pipe()
        (folder / "log").touch()
        (folder / "scratch").mkdir()
        self._folder = folder

    def engine(self, *, stall_s: float) -> VllmEngine:
        theirs: Connection = self._theirs
        log = EngineLog.after(self._folder / "log")
        scratch = self._folder / "scratch"
        pace = SharedPace.create(scratch / PACE_FILE)
        host = HostProcess(self.process, theirs, log, scratch, pace)
        engine = VllmEngine(host, stall_s=stall_s)
        self.pipe.send([Ready(Capacity(1000, 8, 100, 100, 16), "0")])
        engine.wait_ready()
        return engine

    def say(self, report: StepReport, *, received: int = 1) -> None:
        self.pipe.send([Moved(report, received)])


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setattr(vllm_engine, "SILENT_S", 0.02)
    host = Host(tmp_path)
    yield host
    host.process.kill()
    host.process.wait()


def moved(*completions: Completion, prefill_tokens: int = 0) -> StepReport:
    return StepReport(completions, 1, 0, 50, 1, prefill_tokens, 0, 0, 0, 0.1)


def give_work(engine: VllmEngine, row: int = 0) -> None:
    engine.submit(request(row, TEXT, text()))


def step_until_dead(engine: VllmEngine, *, meanwhile: Callable[[], None] = lambda: None) -> str:
    try:
        while True:
            meanwhile()
            engine.step()
    except EngineDiedError as death:
        return death.reason


def test_an_engine_that_says_nothing_is_killed(host: Host) -> None:
    engine = host.engine(stall_s=0.2)
    give_work(engine)

    assert "hangs" in step_until_dead(engine)
    assert host.process.poll() is not None
    assert living(host.process.pid) == set()


def test_steps_that_compute_nothing_are_no_sign_of_life(host: Host) -> None:
    engine = host.engine(stall_s=0.2)
    give_work(engine)

    assert "hangs" in step_until_dead(engine, meanwhile=lambda: host.say(moved()))


def test_silence_is_reported_with_the_last_gauges_and_borne_with(host: Host) -> None:
    engine = host.engine(stall_s=FOREVER_S)
    give_work(engine)
    first = engine.step()
    host.say(moved(prefill_tokens=5))
    second, third = engine.step(), engine.step()

    assert first == replace(silence(None), waiting=1)
    assert not second.silent
    assert third.silent
    assert (third.running, third.kv_tokens, third.steps) == (second.running, 50, 0)
    engine.close()


def test_waiting_for_work_is_no_hang(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr(vllm_engine, "time", clock)
    engine = host.engine(stall_s=10.0)
    give_work(engine)
    host.say(moved(Completion(0, 200, b"{}")))
    assert engine.step().completions
    now[0] += 100
    give_work(engine, 1)
    now[0] += 9

    assert engine.step().silent
    now[0] += 1
    with pytest.raises(EngineDiedError):
        engine.step()


def test_an_engine_that_hangs_cannot_be_waited_for_in_an_abort(host: Host) -> None:
    engine = host.engine(stall_s=0.2)
    give_work(engine)
    with pytest.raises(EngineDiedError, match="hangs"):
        engine.abort()

    assert wait_until(lambda: host.process.poll() is not None)


def test_a_dead_host_is_said_at_once(host: Host) -> None:
    engine = host.engine(stall_s=FOREVER_S)
    give_work(engine)
    os.kill(host.process.pid, 9)
    host.pipe.close()

    assert "its process is gone" in step_until_dead(engine)


def test_an_engine_that_reads_nothing_is_given_work_and_then_killed(host: Host) -> None:
    """What is sent is more than a pipe takes."""
    engine = host.engine(stall_s=0.2)
    for row in range(8):
        engine.submit(request(row, TEXT, text("x" * 1_000_000)))

    assert "hangs" in step_until_dead(engine)
    assert host.process.poll() is not None


def test_an_engine_that_reads_nothing_can_be_closed(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_launch, "_LEAVE_S", 0.1)
    engine = host.engine(stall_s=FOREVER_S)
    engine.submit(request(0, TEXT, text("x" * 1_000_000)))
    engine.close()

    assert host.process.poll() is not None


def test_a_step_ends_however_much_the_engine_says(host: Host) -> None:
    """Each report is counted once, and none is left out."""
    engine = host.engine(stall_s=FOREVER_S)
    for row in range(2):
        give_work(engine, row)
    talk = threading.Thread(
        target=lambda: [host.say(moved(prefill_tokens=1)) for _ in range(2 * MOST_FOLDED + 9)]
    )
    talk.start()
    steps = []
    while sum(steps) < 2 * MOST_FOLDED + 9:
        steps.append(engine.step().steps)
    talk.join()

    assert max(steps) <= MOST_FOLDED
    engine.close()


def test_what_an_engine_has_mapped_is_let_go_with_it(host: Host, tmp_path: Path) -> None:
    def mapped() -> bool:
        return str(tmp_path / "scratch") in Path("/proc/self/maps").read_text()

    engine = host.engine(stall_s=FOREVER_S)
    assert mapped()
    engine.close()
    engine.close()

    assert not mapped()


def test_an_engine_that_cannot_be_started_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "absent"))
    with pytest.raises(FileNotFoundError):
        VllmEngine.start(settings(tmp_path, tmp_path / "logs" / "engine.log"))

    assert [path.name for path in tmp_path.iterdir()] == ["logs"]
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()


def test_the_pace_is_there_when_the_engine_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nwc -c < "$BLEND_PACE"\n')
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    engine = VllmEngine.start(settings(tmp_path, tmp_path / "engine.log"))
    with pytest.raises(EngineDiedError):
        engine.wait_ready()
    engine.close()

    assert (tmp_path / "engine.log").read_text().strip() == "16"
