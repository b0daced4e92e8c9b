"""A run keeps to the rows and the time that it is given, and leaves the rest to the next."""

import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blend.cli.app import main
from blend.cli.engine_options import EngineOptions
from blend.cli.executing import execute
from blend.cli.job_plan import fitting_schedule
from blend.cli.limits import RunLimits
from blend.cli.run_limits import seconds_of, seconds_until
from blend.cli.session import opened_session
from blend.core.engines import StepReport
from blend.core.errors import BlendError
from blend.core.running.scan import open_scanner
from blend.core.running.time_limit import TimedScanner, TimeLimit
from blend.core.schedule import Policy
from blend.store.job import Job
from tests.batch_files import ingested, mixed, planned
from tests.small_jobs import capacity, grouped, schedule

ROWS = 40
SIM = ["--engine", "sim", "--max-num-seqs", "4"]


@pytest.fixture(scope="module")
def planned_job(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer_dir: Path) -> Path:
    path = tmp_path_factory.mktemp("planned") / "batch.blend"
    return planned(path, mixed(ROWS), model=tiny_tokenizer_dir)


@pytest.fixture(scope="module")
def total_s(planned_job: Path, tmp_path_factory: pytest.TempPathFactory) -> float:
    """The engine's seconds for the whole job."""
    copy = Path(shutil.copy(planned_job, tmp_path_factory.mktemp("whole") / "batch.blend"))
    assert main(["execute", str(copy), *SIM]) == 0
    return engine_seconds(copy)[-1]


@pytest.fixture
def job(planned_job: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(planned_job, tmp_path / "batch.blend"))


def engine_seconds(job: Path) -> list[float]:
    """The engine's seconds of each run."""
    with Job.open(job) as opened:
        return [opened.steps(run.id)[-1].seconds for run in opened.runs()]


def test_a_limit_of_rows_runs_so_many_and_leaves_the_rest(job: Path) -> None:
    codes, answered = [], []
    for _ in range(3):
        codes.append(main(["execute", str(job), *SIM, "--limit", "15", "--resume"]))
        with Job.open(job) as opened:
            answered.append(opened.counts().answered)
            attempts = [opened.attempts(row) for row in range(ROWS)]

    assert codes == [4, 4, 0]
    assert answered == [15, 30, ROWS]
    assert attempts == [1] * ROWS


@pytest.mark.parametrize("share", [0.25, 0.6])
def test_a_run_ends_when_its_time_is_over_and_gives_back_what_runs(
    job: Path, total_s: float, share: float, capsys: pytest.CaptureFixture[str]
) -> None:
    bound_s = share * total_s
    assert main(["execute", str(job), *SIM, "--max-time", f"{bound_s:.12f}s"]) == 4
    assert "go on with" in capsys.readouterr().err
    with Job.open(job) as opened:
        counts = opened.counts()
        (run,) = opened.runs()
        lines = opened.steps(run.id)

    assert run.outcome in ("cut off", "stopped")
    assert 0 < counts.answered < ROWS
    assert (counts.running, counts.failed) == (0, 0)
    # The step that goes beyond is the last.
    longest_step_s = 2 * total_s / sum(line.steps for line in lines) + total_s / 4
    assert lines[-1].seconds < bound_s + longest_step_s
    assert main(["execute", str(job), *SIM, "--resume"]) == 0


def test_a_run_whose_last_row_ends_with_its_time_has_finished(
    job: Path, total_s: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last step goes beyond the time, and there is nothing left to cut off."""
    assert main(["execute", str(job), *SIM, "--max-time", f"{total_s * (1 - 1e-6):.12f}s"]) == 0
    said = capsys.readouterr().err
    with Job.open(job) as opened:
        (run,) = opened.runs()

    assert run.outcome == "finished"
    assert f"all {ROWS} requests have results" in said
    assert "time is up" not in said


def test_time_enough_changes_nothing(job: Path, total_s: float) -> None:
    assert main(["execute", str(job), *SIM, "--max-time", "1h", "--deadline", "2199-01-01"]) == 0
    assert engine_seconds(job) == [total_s]


def answered_by(job: Path, limits: RunLimits) -> int:
    options = EngineOptions("sim", {"max-num-seqs": "4"}, 0)
    with Job.open(job) as opened, opened_session(opened, options, limits) as session:
        execute(session, fitting_schedule(opened), limits)
        return opened.counts().answered


def test_a_deadline_finishes_more_rows_than_the_same_time_in_plan_order(
    job: Path, total_s: float
) -> None:
    device = ["--hardware", "a100-80g"]
    assert main(["plan", str(job), "--no-sample", "--policy", "fcfs", *device]) == 0
    plain = Path(shutil.copy(job, job.with_name("plain.blend")))
    bound_s = 0.15 * total_s

    assert answered_by(job, RunLimits(seconds=bound_s, most_rows=True)) > answered_by(
        plain, RunLimits(seconds=bound_s)
    )


def test_with_nothing_to_run_no_time_is_too_little(
    job: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    assert main(["execute", str(job), *SIM]) == 0
    assert answered_by(job, RunLimits(seconds=-1.0)) == ROWS
    assert "time was up" not in caplog.text


def test_no_time_at_all_begins_nothing(job: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    assert answered_by(job, RunLimits(seconds=-1.0, most_rows=True)) == 0
    assert "time was up" in caplog.text
    with Job.open(job) as opened:
        assert opened.runs() == []


def test_run_keeps_to_its_limits_and_goes_on(tmp_path: Path, tiny_tokenizer_dir: Path) -> None:
    source = ingested(tmp_path / "x.blend", mixed(12), model=tiny_tokenizer_dir)
    output = tmp_path / "out.jsonl"
    command = ["run", "-i", str(source.with_suffix(".jsonl")), "-o", str(output)]
    command += ["-m", str(tiny_tokenizer_dir), *SIM, "--hardware", "a100-80g", "--no-sample"]

    assert main([*command, "--limit", "5"]) == 4
    assert not output.exists()
    assert main(command) == 0
    assert len(output.read_text().splitlines()) == 12


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("30m", 1800), ("8h", 28800), ("1h30m", 5400), ("1d", 86400), ("0.5s", 0.5)],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "90", "h", "1h 30m", "30m1h", "-5s", "0s", "1.5h", "soon"])
def test_what_is_no_duration_is_refused_with_a_remedy(text: str) -> None:
    with pytest.raises(BlendError, match="no duration") as caught:
        seconds_of(text)

    assert "1h30m" in (caught.value.hint or "")


NOW = datetime(2030, 1, 31, 22, 15, 30, tzinfo=timezone(timedelta(hours=1)))


@pytest.fixture(scope="module", autouse=True)
def central_europe() -> Iterator[None]:
    """Clocks are set forward on 31 March 2030, at 2:00, and back on 27 October, at 3:00."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("now", "deadline", "hours"),
    [
        ("2030-03-30T22:00+01:00", "07:00", 8),
        ("2030-03-30T22:00+01:00", "2030-03-31T07:00", 8),
        ("2030-03-30T22:00+01:00", "21:59:59", 23 - 1 / 3600),
        ("2030-03-31T01:30+01:00", "02:30", 1),
        ("2030-10-26T22:00+02:00", "07:00", 10),
        ("2030-10-26T22:00+02:00", "2030-10-27T07:00", 10),
        ("2030-10-27T02:10+02:00", "02:30", 1 / 3),
        ("2030-10-27T02:40+02:00", "02:30", 5 / 6),
        ("2030-10-27T02:40+01:00", "02:30", 24 - 1 / 6),
        ("2030-06-01T22:00+02:00", "2030-12-01T22:00", 183 * 24 + 1),
    ],
)
def test_a_deadline_is_right_on_nights_when_clocks_change(
    now: str, deadline: str, hours: float
) -> None:
    left_s = seconds_until(deadline, now=datetime.fromisoformat(now))

    assert left_s == pytest.approx(3600 * hours)


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("22:45:30", 0.5),
        ("07:15", 9 - 0.5 / 60),
        ("22:15:30", 24.0),
        ("2030-01-31T23:15:30", 1.0),
        ("2030-01-31 23:15:30+00:00", 2.0),
        ("2030-01-31T22:15:30Z", 1.0),
    ],
)
def test_a_deadline_is_a_time_of_day_or_a_date(text: str, hours: float) -> None:
    assert seconds_until(text, now=NOW) == pytest.approx(3600 * hours)


@pytest.mark.parametrize(
    "text", ["", "25:00", "7:60", "tomorrow", "2030-01-31T22:15:30", "0001-01-01"]
)
def test_no_time_and_a_time_that_is_past_are_refused(text: str) -> None:
    with pytest.raises(BlendError, match="--deadline"):
        seconds_until(text, now=NOW)


@given(st.integers(1, 24 * 3600))
def test_a_time_of_day_is_the_next_one(ahead_s: int) -> None:
    then = NOW + timedelta(seconds=ahead_s)

    assert seconds_until(f"{then:%H:%M:%S}", now=NOW) == ahead_s
    assert seconds_until(then.astimezone(UTC).isoformat(), now=NOW) == ahead_s


@pytest.mark.parametrize(
    "arguments", [["--max-time", "90"], ["--deadline", "1999-01-01"], ["--limit", "0"]]
)
def test_a_wrong_limit_starts_nothing(job: Path, arguments: list[str]) -> None:
    assert main(["execute", str(job), *SIM, *arguments]) == 2
    with Job.open(job) as opened:
        assert opened.runs() == []


REQUESTS = grouped(4, size=5, shared=32, own=16, max_tokens=40)


@pytest.mark.parametrize("policy", ["paper", "fcfs"])
def test_rows_that_would_not_end_in_time_are_passed_over_and_the_others_run(
    policy: Policy,
) -> None:
    expected = [400.0 if row % 2 else 2.0 for row in range(20)]
    plan = schedule(REQUESTS, policy=policy, expected=expected)
    limits = capacity(max_sequences=4)
    inner = open_scanner(
        plan,
        prompt_tokens=np.full(20, 48),
        sequences=np.ones(20, np.int32),
        capacity=limits,
    )
    scanner = TimedScanner(inner, TimeLimit(5.0), plan, capacity=limits)
    # A step of a tenth of a second in which nothing was prefilled: 400 of them take too long.
    scanner.observe(StepReport((), 0, 0, 0, 1, 0, 1, 0, 0, 0.1))
    begun: list[int] = []
    while not scanner.done:
        rows = list(scanner.admit())
        begun += rows
        scanner.observe(ended(rows))

    assert sorted(begun) == list(range(0, 20, 2))
    assert scanner.passed_over


def ended(rows: list[int]) -> Any:
    from tests.filled_job import answer

    return StepReport(tuple(answer(row) for row in rows), 0, 0, 0, 1, 0, 1, 0, 0, 0.1)
