"""The stages of a job, through the command line and on the simulated engine."""

import json
import os
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from blend.cli.app import main
from blend.core.engines import EngineDiedError, StepReport
from blend.core.engines.sim import SimEngine
from blend.core.schedule import POLICIES
from blend.store.job import Job
from tests.batch_files import chat, ingested, mixed, read_lines, write_requests

SIM = ["--engine", "sim", "--hardware", "a100-80g"]
EXECUTE_SIM = ["--engine", "sim"]
ROWS = 60


@pytest.fixture(scope="session")
def ingested_job(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer_dir: Path) -> Path:
    path = tmp_path_factory.mktemp("ingested") / "batch.blend"
    return ingested(path, mixed(ROWS), model=tiny_tokenizer_dir)


@pytest.fixture(scope="session")
def planned_job(ingested_job: Path) -> Path:
    path = ingested_job.with_name("planned.blend")
    shutil.copy(ingested_job, path)
    assert main(["plan", str(path), *SIM]) == 0
    return path


@pytest.fixture
def job(tmp_path: Path, ingested_job: Path) -> Path:
    return Path(shutil.copy(ingested_job, tmp_path / "batch.blend"))


@pytest.fixture
def planned(tmp_path: Path, planned_job: Path) -> Path:
    return Path(shutil.copy(planned_job, tmp_path / "batch.blend"))


def ids(path: Path) -> list[str]:
    return [line["custom_id"] for line in read_lines(path)]


def test_the_stages_give_every_row_one_result_in_input_order(planned: Path) -> None:
    output = planned.with_name("out.jsonl")

    assert main(["execute", str(planned), *EXECUTE_SIM]) == 0
    assert main(["export", str(planned), "-o", str(output)]) == 0
    assert ids(output) == [request["custom_id"] for request in mixed(ROWS)]


def test_run_does_all_stages_and_run_again_changes_nothing(
    tmp_path: Path, tiny_tokenizer_dir: Path
) -> None:
    source = write_requests(tmp_path / "in.jsonl", mixed(ROWS))
    output = tmp_path / "out.jsonl"
    command = ["run", "-i", str(source), "-o", str(output), "-m", str(tiny_tokenizer_dir), *SIM]

    assert main(command) == 0
    first = output.read_bytes()
    assert main(command) == 0
    assert output.read_bytes() == first
    assert len(ids(output)) == ROWS


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_schedules_every_row_once(job: Path, policy: str) -> None:
    assert main(["plan", str(job), "--policy", policy, "--no-sample"]) == 0
    with Job.open(job) as opened:
        schedule = opened.schedule()

    assert schedule is not None
    assert sorted(schedule.order.tolist()) == list(range(ROWS))


@pytest.mark.slow  # compiles the kernels where that has not been done
@pytest.mark.parametrize("policy", ["blend", "memory-first", "auto"])
def test_policies_that_need_classes_sample_plan_and_execute(job: Path, policy: str) -> None:
    assert main(["plan", str(job), "--policy", policy, "--engine", "sim"]) == 0
    assert main(["execute", str(job), "--engine", "sim"]) == 0

    with Job.open(job) as opened:
        assert not opened.pending().any()


def test_a_plan_without_sample_runs_nothing(job: Path) -> None:
    assert main(["plan", str(job), "--no-sample"]) == 0
    with Job.open(job) as opened:
        assert opened.runs() == []
        assert opened.counts().pending == ROWS


def test_the_samples_results_are_kept_and_not_run_again(planned: Path) -> None:
    with Job.open(planned) as opened:
        sampled = opened.counts().answered
    assert sampled > 0
    assert main(["execute", str(planned), *EXECUTE_SIM]) == 0
    with Job.open(planned) as opened:
        assert [run.results for run in opened.runs()] == [sampled, ROWS - sampled]
        assert all(opened.attempts(row) == 1 for row in range(ROWS))


def test_a_sample_that_is_cut_off_gives_its_rows_back(job: Path) -> None:
    assert main(["plan", str(job), *SIM, "--sample-seconds", "0"]) == 0
    with Job.open(job) as opened:
        plan = opened.plan()
        counts = opened.counts()
        (sample,) = opened.runs()
        lines = opened.steps(sample.id)

    assert sample.outcome == "cut off"
    assert sum(line.answered for line in lines) == counts.answered
    assert plan is not None
    assert len(plan.sample_rows) > 0
    assert not plan.sample_finished.all()
    assert counts.running == 0
    assert counts.pending + counts.answered == ROWS


class Mortal(SimEngine):
    """Dies after some steps."""

    steps_to_live = 30

    def step(self) -> StepReport:
        self.steps_to_live -= 1
        if self.steps_to_live < 0:
            raise EngineDiedError("killed by the test")
        return super().step()


def test_when_the_engine_dies_what_arrived_is_kept_and_resume_runs_the_rest(
    planned: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("blend.core.engines.sim.SimEngine", Mortal)
        assert main(["execute", str(planned), *EXECUTE_SIM, "--max-rebuilds", "0"]) == 4
    assert "killed by the test" in capsys.readouterr().err
    with Job.open(planned) as opened:
        kept = opened.counts()
        in_flight = sum(opened.attempts(row) for row in range(ROWS)) - kept.answered
    assert 0 < kept.answered < ROWS
    assert kept.running == 0

    assert main(["execute", str(planned), *EXECUTE_SIM]) == 2  # not by accident
    assert main(["execute", str(planned), *EXECUTE_SIM, "--resume"]) == 0
    with Job.open(planned) as opened:
        attempts = sum(opened.attempts(row) for row in range(ROWS))
        assert opened.counts().answered == ROWS
    assert attempts - ROWS <= in_flight


def test_an_engine_that_dies_in_the_sample_leaves_a_job_to_plan(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("blend.core.engines.sim.SimEngine", Mortal)
        patch.setattr(Mortal, "steps_to_live", 1)
        assert main(["plan", str(job), *SIM, "--max-rebuilds", "0"]) == 4

    assert f"`blend plan {job}`" in capsys.readouterr().err
    assert main(["plan", str(job), *SIM]) == 0


def test_an_interrupt_drains_and_a_second_one_stops_at_once(
    planned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(SimEngine):
        interrupts = 1

        def step(self) -> StepReport:
            if self.clock_s > 0 and self.interrupts:
                self.interrupts -= 1
                os.kill(os.getpid(), signal.SIGINT)
            return super().step()

    monkeypatch.setattr("blend.core.engines.sim.SimEngine", Interrupted)
    few = ["--max-num-seqs", "1"]
    assert main(["plan", str(planned), *SIM, "--policy", "dfs"]) == 0
    assert main(["execute", str(planned), *EXECUTE_SIM, *few]) == 4
    with Job.open(planned) as opened:
        drained = opened.counts()
        attempts = sum(opened.attempts(row) for row in range(ROWS))
    assert attempts == drained.answered < ROWS

    monkeypatch.setattr(Interrupted, "interrupts", 2)
    assert main(["execute", str(planned), *EXECUTE_SIM, *few, "--resume"]) == 130
    with Job.open(planned) as opened:
        assert opened.counts().running == 0


def test_export_mid_run_holds_what_there_is(planned: Path) -> None:
    output = planned.with_name("part.jsonl")
    with Job.open(planned) as opened:
        answered = opened.counts().answered

    assert main(["export", str(planned), "-o", str(output)]) == 0
    assert 0 < len(ids(output)) == answered < ROWS


def test_an_export_during_a_run_shows_one_moment_of_it(
    planned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the run saves while the export is being written is not in it, in neither file."""
    exports: list[tuple[int, list[str]]] = []
    written = threading.Event()

    def export_slowly() -> None:
        with Job.open(planned) as reader:
            results = reader.latest_answers()
            first = next(results)
            before = reader.counts().answered
            begun.set()
            assert written.wait(60)
            rest = list(results)
            assert reader.counts().answered > before
        exports.append((before, [custom_id for custom_id, *_ in (first, *rest)]))

    begun = threading.Event()

    class Watched(SimEngine):
        steps = 0

        def step(self) -> StepReport:
            report = super().step()
            self.steps += 1
            if self.steps == 20:
                exporter.start()
                assert begun.wait(60)
            return report

    exporter = threading.Thread(target=export_slowly, daemon=True)
    monkeypatch.setattr("blend.core.engines.sim.SimEngine", Watched)
    assert main(["execute", str(planned), *EXECUTE_SIM]) == 0
    written.set()
    exporter.join(60)

    ((before, exported),) = exports
    assert 0 < len(exported) == before < ROWS
    assert exported == sorted(exported, key=lambda name: int(name.rpartition("-")[2]))
    part = planned.with_name("whole.jsonl")
    assert main(["export", str(planned), "-o", str(part)]) == 0
    assert len(ids(part)) == ROWS


def test_export_overwrites_neither_a_file_nor_an_input(planned: Path) -> None:
    output = planned.with_name("out.jsonl")
    output.write_text("precious")

    assert main(["export", str(planned), "-o", str(output)]) == 2
    assert output.read_text() == "precious"
    assert main(["export", str(planned), "-o", str(output), "--overwrite"]) == 0
    with Job.open(planned) as opened:
        source = Path(opened.sources()[0].path)
    before = source.read_bytes()
    assert main(["export", str(planned), "-o", str(source), "--overwrite"]) == 2
    assert source.read_bytes() == before


def test_rows_ingested_after_the_plan_ask_for_a_new_one(
    planned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = write_requests(tmp_path / "more.jsonl", mixed(ROWS + 2)[ROWS:])
    assert main(["ingest", str(more), "--job", str(planned)]) == 0

    assert main(["execute", str(planned), *EXECUTE_SIM]) == 6
    assert "blend plan" in capsys.readouterr().err
    assert main(["plan", str(planned), *SIM]) == 0
    assert main(["execute", str(planned), *EXECUTE_SIM]) == 0


def test_results_of_two_engines_are_never_mixed(planned: Path) -> None:
    assert main(["execute", str(planned), "--engine", "vllm"]) == 6


def test_another_context_than_that_of_the_ingest_is_refused(
    planned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["execute", str(planned), *EXECUTE_SIM, "--max-model-len", "64"]) == 6
    assert "4096" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["override-generation-config", "generation-config", "tokenizer"])
def test_results_of_two_ways_to_sample_are_never_mixed(
    planned: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["execute", str(planned), *EXECUTE_SIM, "--engine-arg", f"{name}=other"]) == 6
    assert f"results of another `{name}`: none, now other" in capsys.readouterr().err
    with Job.open(planned) as opened:
        assert [run.purpose for run in opened.runs()] == ["sample"]


def test_a_job_in_use_names_its_holder(planned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Job.open(planned) as opened, opened.lock("execute"):
        assert main(["execute", str(planned), *EXECUTE_SIM]) == 5
    assert str(os.getpid()) in capsys.readouterr().err


def test_a_request_that_cannot_run_fails_alone(tmp_path: Path, tiny_tokenizer_dir: Path) -> None:
    job = ingested(tmp_path / "one.blend", mixed(8), model=tiny_tokenizer_dir)
    output = tmp_path / "out.jsonl"
    # A cache of a few hundred tokens holds the essays but not the long shared prefix.
    small = [*EXECUTE_SIM, "--kv-cache-memory-bytes", str(300 * 4 * 2 * 64 * 4)]
    assert main(["plan", str(job), "--no-sample"]) == 0

    assert main(["execute", str(job), *small]) == 3
    assert main(["export", str(job), "-o", str(output)]) == 0
    failed = read_lines(tmp_path / "out.errors.jsonl")
    assert [line["custom_id"] for line in failed] == [f"choice-{i}" for i in (1, 3, 5, 7)]
    assert ids(output) == [f"essay-{i}" for i in (0, 2, 4, 6)]


def shown(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    capsys.readouterr()
    assert main(["show", *argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_show_tells_of_job_schedule_tree_and_request(
    planned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = str(planned)
    assert shown(capsys, job)["request_counts"]["total"] == ROWS
    schedule = shown(capsys, job, "schedule")
    assert sorted(schedule["order"]) == list(range(ROWS))
    assert sum(section["rows"] for section in schedule["sections"]) == ROWS
    assert shown(capsys, job, "tree")["nodes"][0]["rows"] == ROWS
    request = shown(capsys, job, "request", "choice-1")
    assert request["body"]["max_tokens"] == 2
    assert request["place"]["position"] == schedule["order"].index(1)
    assert request["place"]["side"] in {"left", "right"}
    assert request["place"]["length_source"] == "prior"  # two tokens at most: never sampled


@pytest.mark.parametrize("view", [[], ["schedule"], ["tree"], ["request", "essay-2"]])
def test_every_view_fits_80_columns(
    planned: Path, view: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["show", str(planned), *view]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]

    assert lines
    if view:  # the job's lines hold paths, which are as long as they are
        assert max(map(len, lines)) <= 80


def test_user_text_is_shown_inert(
    tmp_path: Path, tiny_tokenizer_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = "\x1b[31mred[/]\x07[bold]"
    job = ingested(tmp_path / "e.blend", [chat(evil, evil, max_tokens=2)], model=tiny_tokenizer_dir)
    assert main(["plan", str(job), "--no-sample"]) == 0
    assert main(["show", str(job), "schedule"]) == 0
    assert main(["show", str(job), "request", evil]) == 0
    shown_text = capsys.readouterr().out

    assert "\x1b" not in shown_text
    assert "\x07" not in shown_text
    assert "[bold]" in shown_text


def test_looking_at_what_is_not_there_says_what_to_do(
    tmp_path: Path, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(tmp_path / "none.blend")]) == 2
    assert main(["show", str(job), "schedule"]) == 2
    assert "blend plan" in capsys.readouterr().err
    assert main(["show", str(job), "request", "nobody"]) == 2
    assert "nobody" in capsys.readouterr().err
    assert main(["execute", str(job), *EXECUTE_SIM]) == 2
    assert main(["frobnicate"]) == 2
