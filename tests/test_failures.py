"""What a person gets when the engine dies, a row kills it, every row fails or the disk is full."""

import os
import re
import shutil
import signal
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from blend.cli.app import main
from blend.core.completion import Completion
from blend.core.engines import EngineDiedError, StepReport
from blend.core.engines.sim import SimEngine
from blend.core.engines.vllm import VllmEngine
from blend.core.errors import BlendError
from blend.store import recorder
from blend.store.job import Job
from tests.batch_files import ingested, mixed, planned, read_lines
from tests.mortal_engine import MortalEngine, mortal

ROWS = 60
FEW = ["--engine", "sim", "--max-num-seqs", "2", "--kv-cache-memory-bytes", str(8 << 20)]


@pytest.fixture(scope="session")
def prepared_job(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer_dir: Path) -> Path:
    path = tmp_path_factory.mktemp("prepared") / "batch.blend"
    return planned(path, mixed(ROWS), model=tiny_tokenizer_dir)


@pytest.fixture
def job(tmp_path: Path, prepared_job: Path) -> Path:
    return Path(shutil.copy(prepared_job, tmp_path / "batch.blend"))


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let the engine called sim be another."""

    def engine(kind: type[SimEngine]) -> None:
        monkeypatch.setattr("blend.core.engines.sim.SimEngine", kind)

    return engine


def outcomes(job: Path) -> list[str | None]:
    with Job.open(job) as opened:
        return [run.outcome for run in opened.runs()]


def assert_every_row_has_one_result(job: Path) -> None:
    with Job.open(job) as opened:
        counts = opened.counts()
        assert (counts.pending, counts.running, counts.total) == (0, 0, ROWS)
        assert len(list(opened.results())) == ROWS


class Frail(MortalEngine):
    """Dies after some steps of its own."""

    steps_to_live = 150

    def step(self) -> StepReport:
        self.steps_to_live -= 1
        if self.steps_to_live < 0:
            self.die("too frail")
        return super().step()


def dies_once() -> type[MortalEngine]:
    """Return engines of which the first dies after some steps."""

    class DiesOnce(MortalEngine):
        steps = 0

        def step(self) -> StepReport:
            self.steps += 1
            if self.steps == 10 and not self.deaths:
                self.die("an accident")
            return super().step()

    return DiesOnce


def test_an_engine_that_dies_is_replaced_and_every_row_gets_its_result(
    job: Path, use: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    use(Frail)
    assert main(["execute", str(job), *FEW]) == 0

    assert_every_row_has_one_result(job)
    lives = outcomes(job)
    assert lives.count("engine died") >= 2
    assert lives[-1] == "finished"
    assert "too frail: another engine starts" in capsys.readouterr().err
    with Job.open(job) as opened:
        assert {(run.outcome, run.cause) for run in opened.runs()} == {
            ("engine died", "too frail"),
            ("finished", None),
        }


def test_an_engine_that_dies_in_the_sample_is_replaced_too(
    tmp_path: Path, tiny_tokenizer_dir: Path, use: Any
) -> None:
    path = ingested(tmp_path / "new.blend", mixed(ROWS), model=tiny_tokenizer_dir)
    use(dies_once())
    assert main(["plan", str(path), *FEW, "--hardware", "a100-80g", "--sample-rate", "0.5"]) == 0

    assert outcomes(path) == ["engine died", "finished"]
    with Job.open(path) as opened:
        assert opened.plan() is not None
        assert opened.counts().answered > 0


def test_an_engine_that_always_dies_is_given_up_with_the_reason_and_the_way_on(
    job: Path, use: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    use(mortal(poison=range(ROWS)))
    assert main(["execute", str(job), *FEW, "--max-rebuilds", "2"]) == 4
    said = capsys.readouterr().err

    assert outcomes(job) == ["engine died"] * 3
    assert "the engine died 3 times:\n3 x a row was poison\nwhat it said last" in said
    assert f"blend execute {job} --resume" in said
    with Job.open(job) as opened:
        assert opened.counts().pending == ROWS
    use(SimEngine)
    assert main(["execute", str(job), *FEW, "--resume"]) == 0


def test_deaths_at_the_start_of_a_fresh_engine_count_too(job: Path, use: Any) -> None:
    class StartsOnce(dies_once()):  # type: ignore[misc]
        def wait_ready(self, timeout_s: float | None = None) -> bool:
            if self.deaths:
                raise EngineDiedError("it does not start again")
            return super().wait_ready(timeout_s)

    use(StartsOnce)
    assert main(["execute", str(job), *FEW]) == 4
    assert outcomes(job) == ["engine died"] * 4
    with Job.open(job) as opened:
        assert [run.cause for run in opened.runs()][1:] == ["it does not start again"] * 3


def test_rows_that_kill_the_engine_fail_alone_and_say_why(
    job: Path, use: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    poison = {7, 40}
    use(mortal(poison=poison))
    assert main(["execute", str(job), *FEW]) == 3
    output = job.with_name("out.jsonl")
    assert main(["export", str(job), "-o", str(output)]) == 0

    assert_every_row_has_one_result(job)
    with Job.open(job) as opened:
        ids = opened.custom_ids(sorted(poison))
        deaths = {row: opened.attempts(row) for row in poison}
    failed = read_lines(job.with_name("out.errors.jsonl"))
    assert {line["custom_id"] for line in failed} == set(ids)
    for line in failed:
        error = line["response"]["body"]["error"]
        assert line["response"]["status_code"] == error["code"] == 500
        assert "died" in error["message"]
        assert "times running this request" in error["message"]
        assert error["message"].endswith("a row was poison")
    assert min(deaths.values()) >= 2
    assert f"request {ids[0]} failed: the engine died" in capsys.readouterr().err


def test_suspicion_outlives_the_process(job: Path, use: Any) -> None:
    """Each command sees one death; the third knows the suspects of the first two."""
    use(mortal(poison={7}))
    for command in ([], ["--resume"]):
        assert main(["execute", str(job), *FEW, "--max-rebuilds", "0", *command]) == 4
    with Job.open(job) as opened:
        assert opened.deaths()[7] == 2
    engine = mortal(poison={7})
    use(engine)
    assert main(["execute", str(job), *FEW, "--resume"]) == 3

    assert_every_row_has_one_result(job)
    # Twelve rows at most were inside.
    assert engine.deaths <= 4
    with Job.open(job) as opened:
        assert [group.rows for group in opened.failures()] == [1]
        assert opened.deaths() == {}


class Refusing(SimEngine):
    """Answers so many requests; to all later ones it says that there is no such model."""

    answers = 0

    def step(self) -> StepReport:
        report = super().step()
        completions = []
        for completion in report.completions:
            self.answers -= 1
            completions.append(completion if self.answers >= 0 else _refusal(completion.row))
        return replace(report, completions=tuple(completions))


def _refusal(row: int) -> Completion:
    return Completion(row, 404, b'{"error": {"message": "no model `m%d`"}}' % row)


def test_a_run_whose_first_results_are_all_failures_stops_and_says_why(
    job: Path, use: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    use(Refusing)
    assert main(["execute", str(job), *FEW, "--give-up-after", "10"]) == 4
    said = capsys.readouterr().err

    with Job.open(job) as opened:
        counts = opened.counts()
    assert 10 <= counts.failed < ROWS
    assert (counts.running, counts.pending) == (0, ROWS - counts.failed)
    assert outcomes(job) == ["gave up"]
    assert "the first 10 results are all failures" in said
    assert f"{counts.failed} x 404: no model" in said
    assert f"blend execute {job} --resume" in said
    assert main(["execute", str(job), *FEW, "--give-up-after", "0", "--resume"]) == 3
    assert_every_row_has_one_result(job)


def test_a_run_that_is_through_has_not_given_up(job: Path, use: Any) -> None:
    use(Refusing)
    assert main(["execute", str(job), *FEW, "--give-up-after", str(ROWS)]) == 3

    assert_every_row_has_one_result(job)


def test_failures_after_an_answer_never_stop_a_run(job: Path, use: Any) -> None:
    use(type("FirstAnswered", (Refusing,), {"answers": 1}))
    assert main(["execute", str(job), *FEW, "--give-up-after", "10"]) == 3

    assert_every_row_has_one_result(job)


def test_a_small_job_of_failures_alone_says_why(
    job: Path, use: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    use(Refusing)
    assert main(["execute", str(job), *FEW]) == 3
    said = capsys.readouterr().err

    assert f"all {ROWS} requests have results, {ROWS} of them failed" in said
    assert f"{ROWS} x 404: no model" in said


def test_status_tells_when_a_run_was_last_heard_of(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Job.open(job) as opened:
        run = opened.begin_run(purpose="execute", engine="sim", settings={}, engine_pid=77)
        opened.beat(run)
        capsys.readouterr()
        with opened.lock("execute"):
            assert main(["status", str(job)]) == 0
        at_work = capsys.readouterr().out
        assert main(["status", str(job)]) == 0
        left = capsys.readouterr().out
        opened.end_run(run, "finished")
        assert main(["status", str(job)]) == 0

    assert re.search(rf"execute, process {os.getpid()} on .*: last sign of life .* ago", at_work)
    assert f"at work; again: `blend status {job}`" in at_work
    assert "next:" not in at_work
    assert "not at work any more" not in at_work
    assert re.search(r"last sign of life .* ago; it is not at work any more\n(.*\n)*next:", left)
    assert "sign of life" not in capsys.readouterr().out


def test_a_full_disk_keeps_what_fits_and_the_run_goes_on_when_there_is_room(
    job: Path,
    use: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    connections = []
    connect = sqlite3.connect

    def watched(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connections.append(connect(*args, **kwargs))
        return connections[-1]

    class Filling(SimEngine):
        results = 0
        closed = False

        def step(self) -> StepReport:
            report = super().step()
            self.results += len(report.completions)
            if self.results > 20:
                pages = connections[0].execute("PRAGMA page_count").fetchone()[0]
                connections[0].execute(f"PRAGMA max_page_count = {pages}")
            return replace(report, completions=tuple(map(_long, report.completions)))

        def close(self) -> None:
            type(self).closed = True
            super().close()

    use(Filling)
    with monkeypatch.context() as patch:
        patch.setattr("sqlite3.connect", watched)
        # Saved at once: else the results might wait until the end.
        patch.setattr(recorder, "BATCH_ROWS", 1)
        assert main(["execute", str(job), *FEW]) == 4
    said = capsys.readouterr().err

    assert re.search(
        r"disk full: .*: [\d,]{6,} bytes to write, .*; about [\d,]{7,} bytes for", said
    )
    assert "run the same command again" in said
    assert Filling.closed
    with Job.open(job) as opened:
        kept = opened.counts()
    assert 0 < kept.answered < ROWS
    use(SimEngine)
    assert main(["execute", str(job), *FEW, "--resume"]) == 0
    assert_every_row_has_one_result(job)


def _long(completion: Completion) -> Completion:
    return replace(completion, body=b'{"text": "%s"}' % (b"x" * 50_000))


def test_another_template_than_the_plans_is_refused_and_the_engine_stopped(
    tmp_path: Path,
    tiny_tokenizer_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    closed = []

    class Starting:
        def close(self) -> None:
            closed.append(self)

    monkeypatch.setattr(VllmEngine, "start", lambda _settings: Starting())
    model = Path(shutil.copytree(tiny_tokenizer_dir, tmp_path / "model"))
    job = planned(tmp_path / "batch.blend", mixed(4), model=model)
    settings = model / "tokenizer_config.json"
    settings.write_text(settings.read_text().replace("assistant", "helper"))
    assert main(["execute", str(job)]) == 6

    assert "another template" in capsys.readouterr().err
    assert len(closed) == 1
    with Job.open(job) as opened:
        assert opened.runs() == []


def test_a_server_that_refuses_the_key_when_asked_again_leaves_a_job_to_resume(
    job: Path, use: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    class Locked(dies_once()):  # type: ignore[misc]
        def wait_ready(self, timeout_s: float | None = None) -> bool:
            if self.deaths:
                raise BlendError("the key is refused", hint="set another")
            return super().wait_ready(timeout_s)

    use(Locked)
    assert main(["execute", str(job), *FEW]) == 4
    assert "the key is refused" in capsys.readouterr().err
    assert outcomes(job) == ["engine died", "failed"]


def test_sigterm_drains_like_one_ctrl_c(job: Path, use: Any) -> None:
    class Terminated(SimEngine):
        signals = 1

        def step(self) -> StepReport:
            if self.clock_s > 0 and self.signals:
                self.signals -= 1
                os.kill(os.getpid(), signal.SIGTERM)
            return super().step()

    use(Terminated)
    assert main(["execute", str(job), *FEW]) == 4

    with Job.open(job) as opened:
        counts = opened.counts()
        assert sum(opened.attempts(row) for row in range(ROWS)) == counts.answered
    assert 0 < counts.answered < ROWS
    assert outcomes(job) == ["stopped"]
