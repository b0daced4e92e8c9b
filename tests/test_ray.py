"""Two replicas on Ray run a job exactly once, whoever is killed, and leave nothing behind."""

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from blend.cli.app import main
from blend.store.job import Job
from tests.batch_files import mixed, planned, read_lines, write_requests
from tests.blend_process import BlendProcess, alive, assert_sound, blend, family, finished
from tests.tiny_engine import wait_until

ROWS = 300
SIM = ["--engine", "sim", "--max-num-seqs", "2"]
TWO = ["--data-parallel-size", "2"]
WAIT_S = 180.0


@pytest.fixture(scope="module")
def planned_job(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer_dir: Path) -> Path:
    path = tmp_path_factory.mktemp("planned") / "batch.blend"
    return planned(path, mixed(ROWS), model=tiny_tokenizer_dir)


@pytest.fixture
def job(tmp_path: Path, planned_job: Path) -> Path:
    return Path(shutil.copy(planned_job, tmp_path / "batch.blend"))


def actors(pid: int) -> list[int]:
    return [one for one, name in family(pid).items() if name.startswith("ray::ReplicaHost")]


@contextmanager
def executing(job: Path, *more: str) -> Iterator[BlendProcess]:
    argv = ["execute", str(job), *SIM, *TWO, *more]
    with blend(argv, job.with_suffix(".stderr")) as process:
        yield process


def wait_for_results(process: BlendProcess, job: Path, rows: int) -> None:
    def reached() -> bool:
        assert Path(f"/proc/{process.pid}").exists(), process.stderr
        return finished(job) >= rows

    assert wait_until(reached, timeout_s=WAIT_S), process.stderr


def assert_every_row_has_one_result(job: Path) -> None:
    with Job.open(job) as opened:
        counts = opened.counts()
        assert (counts.answered, counts.failed, counts.running) == (ROWS, 0, 0)
        assert len(list(opened.results())) == ROWS
    assert_sound(job)


@pytest.mark.slow  # a cluster takes seconds to start
def test_what_a_killed_actor_had_runs_elsewhere_and_all_of_ray_ends_with_the_command(
    job: Path,
) -> None:
    with executing(job) as process:
        wait_for_results(process, job, 20)
        started = set(family(process.pid))
        victim = actors(process.pid)[0]
        os.kill(victim, signal.SIGKILL)

        assert process.exit_code() == 0, process.stderr
        assert "its process is gone" in process.stderr
        assert "another starts" in process.stderr
        assert victim in started
        assert wait_until(lambda: not alive(started), timeout_s=WAIT_S)
    assert_every_row_has_one_result(job)
    with Job.open(job) as opened:
        (run,) = opened.runs()
        assert (run.outcome, run.settings["data-parallel-size"]) == ("finished", 2)


@pytest.mark.slow
def test_a_job_whose_driver_was_killed_goes_on_with_one_replica_and_no_process_is_left(
    job: Path,
) -> None:
    with executing(job) as process:
        wait_for_results(process, job, 20)
        started = set(family(process.pid))
        assert len(actors(process.pid)) == 2
        os.kill(process.pid, signal.SIGKILL)

        assert wait_until(lambda: not alive(started), timeout_s=WAIT_S)
    before = finished(job)
    assert 20 <= before < ROWS

    assert main(["execute", str(job), *SIM, "--resume"]) == 0

    assert_every_row_has_one_result(job)
    with Job.open(job) as opened:
        assert [run.outcome for run in opened.runs()] == ["killed", "finished"]


@pytest.mark.slow
def test_what_the_sample_has_begun_runs_on_in_its_replica(
    tmp_path: Path, tiny_tokenizer_dir: Path
) -> None:
    requests = mixed(ROWS)
    source, output = write_requests(tmp_path / "in.jsonl", requests), tmp_path / "out.jsonl"
    argv = ["run", "-i", source, "-o", output, "-m", tiny_tokenizer_dir, *SIM, *TWO]
    with blend([*argv, "--sample-seconds", "0"], tmp_path / "stderr") as process:
        assert process.exit_code() == 0, process.stderr

        assert " go on" in process.stderr
    answered = [line["custom_id"] for line in read_lines(output)]
    assert answered == [request["custom_id"] for request in requests]
    with Job.open(output.with_suffix(".blend")) as opened:
        assert all(opened.attempts(row) == 1 for row in range(ROWS))
        assert [run.outcome for run in opened.runs()] == ["handed on", "finished"]


def test_one_replica_never_imports_ray(job: Path) -> None:
    assert main(["execute", str(job), "--engine", "sim"]) == 0

    assert "ray" not in sys.modules
    assert_every_row_has_one_result(job)


def test_without_ray_it_is_said_what_to_install(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)

    assert main(["execute", str(job), *SIM, *TWO]) == 2

    said = capsys.readouterr().err
    assert "several replicas need Ray, which is not installed" in said
    assert "pip install 'blend-batch[ray]'" in said


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--ray-address", "auto"], "`--ray-address` is for several replicas"),
        (["--engine", "openai", *TWO], "`--data-parallel-size` is for engines of our own"),
        (["--engine-arg", "data-parallel-size=2"], "out of the plan's order"),
    ],
)
def test_replicas_where_they_make_no_sense_are_refused(
    job: Path, argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["execute", str(job), *argv]) == 2

    assert said in capsys.readouterr().err
