"""The loop of a run loses nothing: not at a stop, not at an interrupt, not at an engine's death."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from blend.core.engines import EngineDiedError, StepReport
from blend.core.engines.sim import SimEngine
from blend.core.request import Request
from blend.core.running.executor import run
from blend.core.running.scan import OrderScanner
from tests.small_jobs import capacity, grouped, schedule, step_s

REQUESTS = grouped(8, size=5, shared=32, own=16, max_tokens=12)
ONES = np.ones(len(REQUESTS), np.int32)
LIMITS = capacity(max_sequences=4)


class WatchedEngine(SimEngine):
    """A simulated engine that notes what it was given and what it gave back."""

    def __init__(self, *, dies_after: int | None = None):
        super().__init__(LIMITS, step_s=step_s)
        self.submitted: list[int] = []
        self.returned: list[int] = []
        self.steps_left = dies_after

    def submit(self, request: Request) -> None:
        self.submitted.append(request.row)
        super().submit(request)

    def step(self) -> StepReport:
        if self.steps_left is not None:
            if not self.steps_left:
                raise EngineDiedError("gone")
            self.steps_left -= 1
        report = super().step()
        self.returned += _rows(report)
        return report


def _rows(report: StepReport) -> list[int]:
    return [completion.row for completion in report.completions]


def _consume(reports: Iterator[StepReport], done: list[int]) -> None:
    for report in reports:
        done += _rows(report)


def _scanner() -> OrderScanner:
    return OrderScanner(schedule(REQUESTS), sequences=ONES, capacity=LIMITS)


def _reports(engine: WatchedEngine, **callbacks: object) -> Iterator[StepReport]:
    return run(_scanner(), REQUESTS.__getitem__, engine, **callbacks)  # type: ignore[arg-type]


def test_every_row_completes_exactly_once() -> None:
    done = [row for report in _reports(WatchedEngine()) for row in _rows(report)]

    assert sorted(done) == list(range(len(REQUESTS)))


def test_rows_are_named_before_the_engine_sees_them() -> None:
    engine = WatchedEngine()
    named: list[int] = []

    def on_admit(rows: Sequence[int]) -> None:
        assert not set(rows) & set(engine.submitted)
        named.extend(rows)

    for _ in _reports(engine, on_admit=on_admit):
        assert named == engine.submitted


def test_what_takes_the_place_of_an_answer_enters_before_the_answer_is_taken() -> None:
    """To save it can take longer than the engine has work for."""
    engine = WatchedEngine()
    for report in _reports(engine):
        if report.completions and len(engine.submitted) < len(REQUESTS):
            inside = len(engine.submitted) - len(engine.returned)

            assert inside >= LIMITS.max_sequences


def test_stopping_admits_no_more_and_drains_what_runs() -> None:
    engine = WatchedEngine()
    list(_reports(engine, stopping=lambda: len(engine.returned) >= 5))

    assert sorted(engine.returned) == sorted(engine.submitted)
    assert 5 <= len(engine.returned) < len(REQUESTS)


def test_stopping_at_once_runs_nothing() -> None:
    engine = WatchedEngine()

    assert list(_reports(engine, stopping=lambda: True)) == []
    assert engine.submitted == []


def test_a_consumer_that_stops_early_has_all_that_the_engine_gave() -> None:
    engine = WatchedEngine()
    done: list[int] = []
    reports = _reports(engine)
    for report in reports:
        done += _rows(report)
        if len(done) >= 7:
            break
    reports.close()  # type: ignore[attr-defined]

    assert done == engine.returned


def test_an_interrupt_costs_nothing_that_has_arrived() -> None:
    class Interrupted(OrderScanner):
        def observe(self, report: StepReport) -> None:
            super().observe(report)
            if report.completions:
                raise KeyboardInterrupt

    engine = WatchedEngine()
    scanner = Interrupted(schedule(REQUESTS), sequences=ONES, capacity=LIMITS)
    done: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        _consume(run(scanner, REQUESTS.__getitem__, engine), done)

    assert done
    assert done == engine.returned


def test_an_engines_death_leaves_earlier_completions_standing() -> None:
    engine = WatchedEngine(dies_after=30)
    done: list[int] = []
    with pytest.raises(EngineDiedError):
        _consume(_reports(engine), done)

    assert done == engine.returned
    assert 0 < len(done) < len(REQUESTS)


def test_a_scanner_that_keeps_rows_back_from_an_idle_engine_is_a_bug() -> None:
    class Stuck:
        done = False

        def admit(self) -> list[int]:
            return []

        def observe(self, report: StepReport) -> None:
            pass

    with pytest.raises(RuntimeError, match="idle engine"):
        next(run(Stuck(), REQUESTS.__getitem__, WatchedEngine()))
