"""How a run is shown: what it says, and how, on a terminal and elsewhere."""

import io
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from blend.cli import console as consoles
from blend.cli.api import Batch
from blend.cli.app import main
from blend.cli.console import err, print_error, warn
from blend.cli.display import PLAIN_LINES_S, Display, settled
from blend.cli.engine_options import engine_options
from blend.cli.progress import RunProgress, Seen
from blend.cli.progress_words import (
    about,
    progress_line,
    replica_lines,
    result_line,
    worst_failure,
)
from blend.cli.workload import Course, Workload, planned_work
from blend.core.completion import Completion
from blend.core.engines import EngineDiedError, Lost, Part, StepReport
from blend.core.planning.timeline import TimelineBuckets
from blend.store.job import Job
from tests.batch_files import chat, ingested, mixed
from tests.simulated_job import large_model_job
from tests.small_jobs import capacity

SIM = ["--engine", "sim"]


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Screen(io.StringIO):
    """What a terminal is sent."""

    def isatty(self) -> bool:
        return True


def terminal(width: int = 80, **given: object) -> Console:
    return Console(file=Screen(), force_terminal=True, width=width, highlight=False, **given)


def run_of(rows: int, clock: Clock, **known: float) -> RunProgress:
    """Return a run of rows that each are more work than all before them together."""
    work = Workload(2.0 ** np.arange(rows), token_s=2.0, read_s=1.0, **known)
    return RunProgress("execute", rows, work, 1000, np.zeros(rows, np.int64), clock=clock)


def report(*rows: int, failed: str | None = None, seconds: float = 1.0) -> StepReport:
    body = b"{}" if failed is None else b'{"error": {"message": "%s"}}' % failed.encode()
    status = 200 if failed is None else 400
    completions = tuple(Completion(row, status, body) for row in rows)
    return StepReport(completions, 7, 3, 500, 2, 300, 200, 100, 0, seconds)


def test_how_far_a_run_is_is_told_by_its_work_and_not_by_its_rows() -> None:
    clock = Clock()
    progress = run_of(5, clock)

    clock.now = 10.0
    progress.update(report(0, 1, 2, 3))
    assert progress.share == pytest.approx(15 / 31)
    assert progress.left.seconds == pytest.approx(10 * 16 / 15)


def test_the_time_left_is_first_the_plans_and_then_that_of_the_pace() -> None:
    clock = Clock()
    progress = run_of(12, clock, planned_s=1000.0, low=0.5, high=2.0)
    assert progress.left == (1000.0, 500.0, 2000.0)

    seen = []
    for row in range(11):
        clock.now += 10.0
        progress.update(report(row))
        by_pace = progress.elapsed_s * (1 - progress.share) / progress.share
        seen.append((progress.left.seconds, by_pace))
    assert seen[0][0] == pytest.approx(1000, rel=0.6)
    assert seen[-1][0] == pytest.approx(seen[-1][1])
    progress.update(report(11))
    assert progress.left is None


def test_rows_that_run_count_by_their_tokens() -> None:
    progress = run_of(5, Clock(), input_token=0.01, output_token=0.005)

    progress.update(report())  # 300 tokens computed, 200 made
    assert progress.share == pytest.approx(4 / 31)
    progress.update(report(0, 1, 2, 3))
    assert progress.share == pytest.approx((15 + 8) / 31)
    for _ in range(20):
        progress.update(report())
    assert 0.9 < progress.share < 1


def test_what_is_done_never_goes_back() -> None:
    progress = run_of(5, Clock(), output_token=0.1)

    progress.update(report())
    share = progress.share
    progress.update(
        StepReport((Completion(0, 200, b"{}", None, 0, 200),), 7, 3, 0, 1, 0, 0, 0, 0, 1.0)
    )
    assert progress.share == share


def foreseen() -> Course:
    """A run of 100 s: reading prompts, one long wait, and at the end all four answers."""
    seconds, none = np.array([10.0, 90.0, 100.0]), np.zeros(3, np.int64)
    compute_s, answered = np.array([600.0, 200.0, 200.0]), np.array([0, 0, 4])
    return Course(TimelineBuckets(seconds, compute_s, 0 * compute_s, none, none, answered), 0)


def test_the_plan_tells_how_far_a_run_is_before_anything_is_answered() -> None:
    clock = Clock()
    progress = run_of(4, clock, course=foreseen())
    clock.now = 20.0

    progress.update(report())  # 500 tokens at 2 s: all of the plan's tokens
    assert progress.share == 1.0
    progress = run_of(4, clock, course=foreseen())
    progress.workload = replace(progress.workload, token_s=1.4, read_s=0.0)
    clock.now += 20.0
    progress.update(report())  # 700 s of computing: the plan is there after 50 of its 100 s
    assert progress.share == pytest.approx(0.5)
    assert progress.left.seconds == pytest.approx(20.0)


def test_a_run_is_through_with_its_last_answer() -> None:
    seconds, compute_s = np.array([1.0, 2.0, 3.0]), np.ones(3)
    none, answered = np.zeros(3, np.int64), np.array([0, 4, 4])
    course = Course(TimelineBuckets(seconds, compute_s, 0 * compute_s, none, none, answered), 0)

    for work_s in (0.5, 3.0, 99.0):
        assert course.share(answered=4, work_s=work_s, sure=1.0) == 1.0
        assert course.share(answered=0, work_s=work_s, sure=0.0) <= 1.0


@given(at=st.floats(0.0, 1.0), before=st.integers(0, 3))
def test_a_run_that_goes_as_foreseen_is_where_the_plan_is(at: float, before: int) -> None:
    answered = np.arange(1, 101)
    compute_s = np.linspace(1.0, 3.0, 100)
    none = np.zeros(100, np.int64)
    line = TimelineBuckets(answered * 2.0, compute_s, 0 * compute_s, none, none, answered)
    done = int(at * (100 - before))
    work_s = line.work_s(2.0 * (before + done)) - line.work_s(2.0 * before)

    for sure in (0.0, 0.4, 1.0):
        share = Course(line, before).share(answered=done, work_s=work_s, sure=sure)
        assert share == pytest.approx(done / (100 - before))


def test_the_last_answers_tell_how_long_a_run_still_takes(tmp_path, tiny_tokenizer_dir) -> None:
    essays = [chat(f"late-{i}", f"Write about {i}.", max_tokens=200) for i in range(30)]
    path = ingested(tmp_path / "batch.blend", [*mixed(40), *essays], model=tiny_tokenizer_dir)
    assert main(["plan", str(path), *SIM]) == 0
    seen: list[tuple[float, float, float]] = []

    @contextmanager
    def watch(progress: RunProgress, _interrupt: object) -> Iterator[Seen]:
        # The engine's own time, so that it is the same on any machine.
        progress.clock, progress.started = lambda: progress.engine_s, 0.0

        def see(_report: StepReport) -> None:
            rows_left = progress.workload.rows - progress.finished
            if progress.waiting or not 0 < rows_left <= progress.running:
                return
            left, known = progress.left, progress.workload
            progress.workload = replace(known, expected=None)
            by_pace = progress.left
            progress.workload = known
            if left and by_pace:
                assert left.low_s <= left.seconds <= left.high_s
                seen.append((progress.engine_s, left.seconds, by_pace.seconds))

        yield see

    Batch(path).execute(engine_options("sim"), watch=watch)
    at_s, left_s, by_pace_s = np.array(seen).T
    last = at_s > at_s[-1] / 2
    off, off_by_pace = (np.abs(at_s + one - at_s[-1])[last] for one in (left_s, by_pace_s))

    assert last.sum() > 50
    assert off.max() < 0.25 * at_s[-1]
    assert off.mean() < off_by_pace.mean()


def test_all_is_not_said_to_be_done_while_anything_runs() -> None:
    progress = run_of(3, Clock(), course=foreseen())

    progress.update(report())
    assert progress.share == 1.0
    assert "99.9 % of the work" in progress_line(progress)
    progress.update(report(0, 1, 2))
    assert "100.0 % of the work" in progress_line(progress)


def test_a_pace_counts_once_a_hundredth_of_the_work_is_done() -> None:
    clock = Clock()
    progress = run_of(12, clock)
    clock.now = 10.0

    progress.update(report(0, 1))
    assert progress.left is None
    progress.update(report(6))
    assert progress.left is not None


def test_nothing_is_said_of_the_time_left_while_nothing_tells() -> None:
    progress = run_of(3, Clock())

    assert progress.left is None
    assert " left" not in progress_line(progress)


def test_a_line_has_all_that_is_worth_knowing() -> None:
    clock = Clock()
    progress = run_of(5, clock, planned_s=100.0, low=0.5, high=2.0, density=3.0)
    clock.now = 20.0
    progress.update(report(0, 1, seconds=2.0))
    progress.update(report(2, failed="no room for 17 tokens", seconds=2.0))
    progress.update(report(3, failed="no room for 99 tokens", seconds=0.0))

    line = progress_line(progress)
    assert line == (
        "4/5 done, 2 failed (48.4 % of the work), 21 s left (11 s to 43 s), "
        "300 in + 150 out tokens/s, cache 25.0 %, KV 50.0 %, 7 running, 3 waiting, "
        "density 1.00 of 3.00; 2 failed with 400: no room for 17 tokens"
    )


def test_only_the_last_half_minute_makes_the_speed_and_the_density() -> None:
    clock = Clock()
    progress = run_of(2, clock, density=1.0)
    for _ in range(20):
        clock.now += 10.0
        progress.update(report(seconds=100.0))
    for _ in range(4):
        clock.now += 10.0
        progress.update(report(seconds=1.0))

    assert progress.lately.engine_s == pytest.approx(3.0)
    assert "400 in + 200 out tokens/s" in progress_line(progress)
    assert "5 in + 2 out" in result_line(progress)


def test_the_most_frequent_cause_is_told_by_an_example() -> None:
    progress = run_of(6, Clock())
    progress.update(report(0, failed="bad"))
    progress.update(report(1, 2, failed="no room for 17\\ntokens"))

    assert worst_failure(progress) == "2 of 3 failed with 400: no room for 17 tokens"
    assert worst_failure(progress, 16) == "2 of 3 failed with 400: no room for 17 …"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.3, "under 1 s"), (42, "42 s"), (95, "2 min"), (3599, "1 h 0 min"), (7810, "2 h 10 min")],
)
def test_an_estimate_is_told_no_more_exactly_than_it_is(seconds: float, said: str) -> None:
    assert about(seconds) == said


@pytest.mark.parametrize("width", [40, 80, 200])
def test_what_is_drawn_fits_the_terminal_and_needs_no_colour(width: int) -> None:
    clock = Clock()
    progress = run_of(5, clock, planned_s=8000.0, low=0.9, high=1.2, density=3.0)
    screen = Console(file=io.StringIO(), width=width, no_color=True, force_terminal=True)
    display = Display(progress, "live", stopping=lambda: True, console=screen)
    progress.update(report(0, 1, 2))
    progress.update(report(3, failed="[bold]much too long: " + "x" * 300 + "\\u001b[31m"))

    with screen.capture() as captured:
        screen.print(display.drawn(width))
    lines = captured.get().splitlines()
    text = "\n".join(lines)
    assert max(map(len, lines)) <= width + len("\x1b[1m\x1b[0m")
    assert len(lines) == 6
    assert "48.4 %" in text
    if width >= 80:
        assert "4/5 done, 1 failed" in text
        assert "1 failed with 400: [bold]much too long: xxx" in text
        assert "Ctrl-C again stops at once" in text
    assert "\x1b[31m" not in text


def test_a_terminal_is_redrawn_in_place_a_few_times_a_second() -> None:
    clock = Clock()
    screen = terminal()
    progress = run_of(200, clock)
    with Display(progress, "auto", console=screen) as display:
        for row in range(100):
            clock.now += 0.05
            progress.update(report(row))
            display.show()
        screen.print("a warning")
    sent = screen.file.getvalue()

    assert sent.count("200 done") <= 2 + 5 / 0.25
    assert "a warning\n" in sent


def test_elsewhere_a_plain_line_comes_often_at_first_and_then_every_half_minute() -> None:
    clock = Clock()
    pipe = Console(file=io.StringIO(), width=20, soft_wrap=True)
    progress = run_of(200, clock)
    moments = []
    with Display(progress, "auto", console=pipe) as display:
        for _ in range(200):
            clock.now += 1.0
            before = pipe.file.tell()
            display.show()
            if pipe.file.tell() > before:
                moments.append(clock.now)
    lines = pipe.file.getvalue().splitlines()

    assert moments[: len(PLAIN_LINES_S)] == list(PLAIN_LINES_S)
    after = moments[len(PLAIN_LINES_S) - 1 :]
    assert {b - a for a, b in itertools.pairwise(after)} == {30.0}
    assert all(line.startswith("execute: 0/200 done (0.0 % of the work), ") for line in lines)
    assert "\x1b" not in pipe.file.getvalue()


def test_a_plain_line_says_once_why_rows_fail() -> None:
    clock, pipe = Clock(), Console(file=io.StringIO(), width=400)
    progress = run_of(8, clock)
    with Display(progress, "plain", console=pipe) as display:
        for row, why in enumerate(("no room", "no room", "no model", "no model", "no model")):
            clock.now = PLAIN_LINES_S[row]
            progress.update(report(row, failed=why))
            display.show()
    said = [line.partition("; ")[2] for line in pipe.file.getvalue().splitlines()]  # type: ignore[attr-defined]

    assert said[:4] == ["1 failed with 400: no room", "", "", ""]
    assert said[4] == "3 of 5 failed with 400: no model"


def test_how_a_run_is_shown_follows_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = Console(file=io.StringIO(), force_terminal=True)  # as by FORCE_COLOR

    assert [settled(style, terminal()) for style in ("auto", "plain", "live", "none")] == [
        "live",
        "plain",
        "live",
        "none",
    ]
    assert [settled(style, pipe) for style in ("auto", "live", "none")] == [
        "plain",
        "plain",
        "none",
    ]
    monkeypatch.setenv("TERM", "dumb")
    assert settled("auto", terminal()) == "plain"


@pytest.mark.parametrize(
    ("variables", "coloured"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"CLICOLOR_FORCE": "1"}, True),
        ({"CLICOLOR_FORCE": "0"}, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, False),
        ({"FORCE_COLOR": "1", "CLICOLOR": "0"}, True),
        ({"CLICOLOR": "0"}, False),
    ],
)
def test_colour_follows_the_environment(
    variables: dict[str, str],
    coloured: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(consoles, "err", consoles.opened(stderr=True))

    print_error("it failed", None)
    said = capsys.readouterr().err
    assert ("\x1b[1;31m" in said) == coloured
    assert "error:" in said


def test_a_quiet_command_still_warns_and_says_errors(
    capsys: pytest.CaptureFixture[str],
) -> None:
    err.quiet = True
    try:
        err.print("chatter")
        warn("take [care]")
        print_error("it failed", "mend it")
    finally:
        err.quiet = False

    assert capsys.readouterr().err == ("warning: take [care]\nerror: it failed\nhint: mend it\n")


def test_a_quiet_run_says_nothing(tmp_path, tiny_tokenizer_dir, capsys) -> None:
    job = ingested(tmp_path / "batch.blend", mixed(8), model=tiny_tokenizer_dir)
    capsys.readouterr()

    assert main(["plan", str(job), *SIM, "--quiet"]) == 0
    assert main(["execute", str(job), *SIM, "-q"]) == 0
    assert capsys.readouterr() == ("", "")
    assert main(["execute", str(job), *SIM]) == 0
    assert "all 8 requests have results" in capsys.readouterr().err


def test_the_work_of_a_planned_run_is_what_its_rows_are_predicted_to_take(tmp_path) -> None:
    path = tmp_path / "batch.blend"
    large_model_job(path, rows=60)
    assert main(["plan", str(path), "--no-sample", "--hardware", "a100-80g", *SIM]) == 0
    with Job.open(path) as job:
        whole = job.schedule()
        half = whole.only(np.arange(60) < 30)
        all_of_it = planned_work(job, whole, whole, capacity(), as_planned=True)
        half_of_it = planned_work(job, whole, half, capacity(), as_planned=True)
        elsewhere = planned_work(job, whole, whole, capacity(), as_planned=False)
        backwards = whole.at(np.arange(60)[::-1])
        another_order = planned_work(job, whole, backwards, capacity(), as_planned=True)
        sizes = job.sizes()
    longest = int(np.argmax(sizes.max_tokens))
    shortest = int(np.argmin(sizes.max_tokens))

    assert all_of_it.by_row[longest] > 100 * all_of_it.by_row[shortest] > 0
    assert half_of_it.total == pytest.approx(all_of_it.by_row[:30].sum())
    assert half_of_it.planned_s / all_of_it.planned_s == pytest.approx(
        half_of_it.total / all_of_it.total
    )
    assert all_of_it.low <= 1.0 <= all_of_it.high
    assert elsewhere.planned_s is None
    assert all_of_it.course.answered_before == 0
    assert half_of_it.course is None
    assert another_order.course is None
    assert another_order.by_row == pytest.approx(all_of_it.by_row)


def test_each_replica_is_shown_with_what_it_has_done() -> None:
    clock = Clock()
    progress = run_of(8, clock)
    progress.replica_count, progress.kv_capacity_tokens = 2, 2000
    parts = (Part(0, report(0)), Part(1, report(1, 2)))

    progress.update(replace(report(0, 1, 2), parts=parts))
    progress.update(replace(report(), lost=(Lost(1, (3,), EngineDiedError("gone")),)))

    assert replica_lines(progress) == [
        "replica 1: 1 done, 7 running, 3 waiting, KV 50.0 %",
        "replica 2: 2 done, 0 running, 0 waiting, KV 0.0 %",
    ]
    assert "replicas 1 + 2" in progress_line(progress)
    console = terminal()
    console.print(Display(progress).drawn(80))
    assert "replica 2: 2 done" in console.file.getvalue()


def test_one_engine_is_no_replica() -> None:
    progress = run_of(8, Clock())

    progress.update(report(0))

    assert replica_lines(progress) == []
    assert "replica" not in progress_line(progress)
