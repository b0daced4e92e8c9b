"""`blend run` plans while its engine is at work: its sample goes on into the execution."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from blend.cli.app import main
from blend.core.engines import EngineDiedError, StepReport
from blend.core.engines.sim import SimEngine
from blend.store.job import Job
from tests.batch_files import mixed, read_lines, write_requests

ROWS = 60
SIM = ["--engine", "sim", "--hardware", "a100-80g"]
BRIEF = ["--sample-seconds", "0"]


@pytest.fixture
def command(tmp_path: Path, tiny_tokenizer_dir: Path) -> list[str]:
    source = write_requests(tmp_path / "in.jsonl", mixed(ROWS))
    output = tmp_path / "out.jsonl"
    return ["run", "-i", str(source), "-o", str(output), "-m", str(tiny_tokenizer_dir), *SIM]


def done_once(folder: Path) -> bool:
    """Tell whether every row has one result and was begun once."""
    custom_ids = [line["custom_id"] for line in read_lines(folder / "out.jsonl")]
    with Job.open(folder / "out.blend") as job:
        begun_once = all(job.attempts(row) == 1 for row in range(ROWS))
    return begun_once and custom_ids == [request["custom_id"] for request in mixed(ROWS)]


@pytest.mark.parametrize(
    "policy",
    [
        "paper",
        pytest.param("dfs", marks=pytest.mark.slow),
        pytest.param("blend", marks=pytest.mark.slow),  # compiles the kernels
        pytest.param("auto", marks=pytest.mark.slow),
    ],
)
def test_a_sample_that_is_not_through_goes_on_into_the_execution(
    command: list[str], tmp_path: Path, policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, *BRIEF, "--policy", policy]) == 0

    assert done_once(tmp_path)
    assert " go on" in capsys.readouterr().err
    with Job.open(tmp_path / "out.blend") as job:
        plan, (warm_up, execution) = job.plan(), job.runs()
        answered = sum(line.answered for line in job.steps(warm_up.id))
    assert plan is not None
    assert (warm_up.purpose, warm_up.outcome) == ("sample", "handed on")
    assert (execution.purpose, execution.outcome) == ("execute", "finished")
    assert warm_up.results + execution.results == ROWS
    assert warm_up.results == answered
    # What goes on counts as censored, at the age that it had.
    ages = plan.sample_tokens[~plan.sample_finished]
    assert len(ages)
    assert ages.min() >= 1


def test_others_run_behind_the_sample_until_the_plan_is_ready(
    command: list[str], tmp_path: Path
) -> None:
    assert main(command) == 0

    with Job.open(tmp_path / "out.blend") as job:
        plan, (warm_up, execution) = job.plan(), job.runs()
        in_sample = plan.sample_rows if plan else np.empty(0)
    # An eighth of the essays is the sample, which is waited for.
    assert len(in_sample) > ROWS // 16
    assert warm_up.results >= ROWS // 16
    # What is behind it is in the plan's hands once that is there.
    assert execution.results > ROWS // 4
    assert warm_up.results + execution.results == ROWS


def test_by_another_policy_a_part_of_the_compute_bound_rows_runs_behind_the_sample(
    command: list[str], tmp_path: Path
) -> None:
    assert main([*command, "--policy", "dfs"]) == 0

    with Job.open(tmp_path / "out.blend") as job:
        plan, (warm_up, _) = job.plan(), job.runs()
    assert plan is not None
    begun = len(plan.sample_rows)
    assert warm_up.results == begun
    assert ROWS // 16 < begun < ROWS // 2


def test_a_warm_up_whose_engine_dies_goes_on_with_another(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class MortalOnce(SimEngine):
        """The first one dies in its third step."""

        def step(self) -> StepReport:
            steps.append(self)
            if len(steps) == 3:
                raise EngineDiedError("killed by the test")
            return super().step()

    steps: list[SimEngine] = []
    monkeypatch.setattr("blend.core.engines.sim.SimEngine", MortalOnce)
    assert main(command) == 0

    with Job.open(tmp_path / "out.blend") as job:
        runs = [(run.purpose, run.outcome) for run in job.runs()]
        assert job.counts().answered == ROWS
    # Its rows are suspects, which run apart: so none is handed on.
    assert runs[0] == ("sample", "engine died")
    assert ("sample", "handed on") not in runs
    assert runs[-1] == ("execute", "finished")


@pytest.mark.parametrize("bound", [(), BRIEF], ids=["waiting for the sample", "past its bound"])
def test_an_interrupt_in_the_warm_up_lets_what_runs_end(
    command: list[str], bound: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(SimEngine):
        def step(self) -> StepReport:
            if self.clock_s == 0:
                os.kill(os.getpid(), signal.SIGINT)
            return super().step()

    with monkeypatch.context() as patch:
        patch.setattr("blend.core.engines.sim.SimEngine", Interrupted)
        assert main([*command, *bound]) == 4
    with Job.open(tmp_path / "out.blend") as job:
        counts = job.counts()
        assert job.plan() is None
        assert [run.outcome for run in job.runs()] == ["stopped"]
        assert sum(job.attempts(row) for row in range(ROWS)) == counts.answered > 0

    assert main(command) == 0
    assert done_once(tmp_path)


def test_an_interrupt_just_after_the_warm_up_lets_what_goes_on_end(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class InterruptedLater(SimEngine):
        def ages(self) -> dict[int, int]:
            found = dict(super().ages())
            asked.append(found)
            if len(asked) == 2:  # for the hand-over, after that for the plan
                os.kill(os.getpid(), signal.SIGINT)
            return found

    asked: list[dict[int, int]] = []
    monkeypatch.setattr("blend.core.engines.sim.SimEngine", InterruptedLater)
    assert main([*command, *BRIEF]) == 4

    with Job.open(tmp_path / "out.blend") as job:
        outcomes = [run.outcome for run in job.runs()]
        counts = job.counts()
        attempts = sum(job.attempts(row) for row in range(ROWS))
    assert counts.running == 0
    assert outcomes == ["handed on", "stopped"]
    assert attempts == counts.answered >= len(asked[1]) > 0


def test_a_plan_that_fails_beside_the_run_loses_no_result(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no plan today")

    with monkeypatch.context() as patch:
        patch.setattr("blend.cli.warm_up.make_plan", fail)
        with pytest.raises(RuntimeError, match="no plan today"):
            main(command)
    with Job.open(tmp_path / "out.blend") as job:
        kept = ~job.pending()
    assert kept.any()

    assert main(command) == 0
    custom_ids = [line["custom_id"] for line in read_lines(tmp_path / "out.jsonl")]
    assert custom_ids == [request["custom_id"] for request in mixed(ROWS)]
    with Job.open(tmp_path / "out.blend") as job:
        assert {job.attempts(row) for row in np.flatnonzero(kept).tolist()} == {1}
