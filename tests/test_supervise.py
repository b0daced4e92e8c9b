"""Whatever rows kill the engine, they alone fail, and a broken engine fails nobody."""

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blend.core.engines import EngineDiedError, StepReport
from blend.core.engines.sim import SimEngine
from blend.core.running.executor import run
from blend.core.running.scan import open_scanner
from blend.core.running.supervise import Life, supervise
from blend.core.running.suspects import Mask, Suspects
from blend.core.schedule import Policy
from tests.mortal_engine import MortalEngine, mortal
from tests.small_jobs import capacity, grouped, schedule, step_s


class Ledger:
    """A job in memory, and lives of simulated engines on it."""

    def __init__(self, engine: type[SimEngine], *, rows: int, slots: int, policy: Policy = "fcfs"):
        self.requests = grouped(rows, size=1, shared=16, own=8, max_tokens=6)
        self.plan = schedule(self.requests, policy=policy)
        self.limits = capacity(max_sequences=slots)
        self.results: dict[int, str] = {}
        self.deaths: dict[int, int] = {}
        self.started_engines = 1
        self.engine_class: Any = engine
        self.engine = self.engine_class(self.limits, step_s=step_s)

    def unfinished(self) -> Mask:
        mask = np.ones(len(self.requests), np.bool_)
        mask[list(self.results)] = False
        return mask

    def live(self, rows: Mask) -> Life:
        inside: set[int] = set()
        before = len(self.results)
        scanner = open_scanner(
            self.plan.only(rows),
            prompt_tokens=np.array([len(one.prompt) for one in self.requests]),
            sequences=np.ones(len(self.requests), np.int32),
            capacity=self.limits,
        )
        try:
            reports = run(scanner, self.requests.__getitem__, self.engine, on_admit=inside.update)
            for report in reports:
                for completion in report.completions:
                    assert completion.row not in self.results
                    self.results[completion.row] = "answered"
                    inside.remove(completion.row)
        except EngineDiedError as death:
            return Life(len(self.results) - before, death=death, inside=sorted(inside))
        return Life(len(self.results) - before)

    def blame(self, rows: Sequence[int]) -> None:
        for row in rows:
            self.deaths[row] = self.deaths.get(row, 0) + 1

    def fail(self, row: int, message: str) -> None:
        assert row not in self.results
        self.results[row] = message

    def renew(self, reason: str) -> None:
        assert reason
        self.started_engines += 1
        self.engine = self.engine_class(self.limits, step_s=step_s)

    def failed(self) -> set[int]:
        return {row for row, result in self.results.items() if result != "answered"}


def test_a_few_rows_of_a_job_are_not_blamed_for_an_engine_that_runs_nothing() -> None:
    """With a limit on the rows to run, others of the job could show what the engine can."""
    for rows in (1, 2):
        ledger = Ledger(mortal(poison=range(rows)), rows=rows, slots=8)
        with suppress(EngineDiedError):
            supervise(ledger, Suspects({}, others_wait=True), max_rebuilds=3)
        assert ledger.results == {}

        ledger = Ledger(mortal(poison=range(rows)), rows=rows, slots=8)
        supervise(ledger, Suspects({}), max_rebuilds=3)
        assert ledger.failed() == set(range(rows))


def test_a_death_that_no_row_can_have_caused_blames_none() -> None:
    class Locked(MortalEngine):
        def step(self) -> StepReport:
            raise EngineDiedError("the key is refused", blameless=True)

    ledger = Ledger(Locked, rows=1, slots=1)
    with pytest.raises(EngineDiedError, match="4 x the key is refused"):
        supervise(ledger, Suspects({}), max_rebuilds=3)

    assert ledger.results == {}
    assert ledger.deaths == {}


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_a_guilty_row_that_ran_apart_from_the_suspects_costs_no_patience_for_them(
    slots: int,
) -> None:
    ledger = Ledger(mortal(poison={0, 8}), rows=9, slots=slots)
    supervise(ledger, Suspects({}), max_rebuilds=3)

    assert ledger.failed() == {0, 8}
    assert set(ledger.results) == set(range(9))


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_exactly_the_rows_that_kill_the_engine_fail(data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 40), label="rows")
    slots = data.draw(st.integers(1, 12), label="slots")
    policy = data.draw(st.sampled_from(["fcfs", "paper"]), label="policy")
    most, max_rebuilds = data.draw(st.sampled_from([(2, 3), (rows // 3, 30)]), label="patience")
    poison = data.draw(st.sets(st.integers(0, rows - 1), max_size=most), label="poison")
    engine = mortal(poison=poison)
    ledger = Ledger(engine, rows=rows, slots=slots, policy=policy)
    supervise(ledger, Suspects({}), max_rebuilds=max_rebuilds)

    assert set(ledger.results) == set(range(rows))
    assert ledger.failed() == poison
    assert engine.deaths <= 2 + len(poison) * (1 + math.ceil(math.log2(rows)))


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_suspicion_outlives_a_killed_supervisor(data: st.DataObject) -> None:
    """Killed after any death, what is kept of the deaths leads to the same rows."""
    rows = data.draw(st.integers(4, 40), label="rows")
    poison = data.draw(st.sets(st.integers(0, rows - 1), min_size=1, max_size=rows // 4))
    lives_left = data.draw(st.integers(1, 12), label="lives left")
    interrupted: list[bool] = []

    class Killed(Ledger):
        def renew(self, reason: str) -> None:
            if self.started_engines == lives_left and not interrupted:
                interrupted.append(True)
                raise KeyboardInterrupt
            super().renew(reason)

    engine = mortal(poison=poison)
    ledger = Killed(engine, rows=rows, slots=8)
    with suppress(KeyboardInterrupt):
        supervise(ledger, Suspects({}), max_rebuilds=30)
    before = engine.deaths
    kept = {row: count for row, count in ledger.deaths.items() if row not in ledger.results}
    Ledger.renew(ledger, "killed")
    supervise(ledger, Suspects(kept), max_rebuilds=30)

    assert set(ledger.results) == set(range(rows))
    assert ledger.failed() == poison
    assert engine.deaths - before <= 2 + len(poison) * (1 + math.ceil(math.log2(rows)))


def test_an_engine_that_always_dies_fails_no_row_and_is_given_up() -> None:
    for rows in (400, 30):
        engine = mortal(poison=range(rows))
        ledger = Ledger(engine, rows=rows, slots=8)
        with pytest.raises(EngineDiedError, match=r"(?s)died \d+ times.*x a row was poison"):
            supervise(ledger, Suspects({}), max_rebuilds=3)

        assert ledger.results == {}
        assert engine.deaths <= 4 + 2 * math.ceil(math.log2(rows))


def test_an_engine_that_dies_now_and_then_costs_no_row() -> None:
    class Unlucky(MortalEngine):
        steps = 0

        def step(self) -> Any:
            Unlucky.steps += 1
            if Unlucky.steps % 20 == 0:
                self.die("bad luck")
            return super().step()

    ledger = Ledger(Unlucky, rows=200, slots=8)
    supervise(ledger, Suspects({}), max_rebuilds=3)

    assert len(ledger.results) == 200
    assert ledger.failed() == set()
    assert ledger.started_engines > 3


def test_no_rebuild_when_none_is_allowed() -> None:
    ledger = Ledger(mortal(poison={3}), rows=8, slots=2)
    with pytest.raises(EngineDiedError) as caught:
        supervise(ledger, Suspects({}), max_rebuilds=0)

    assert ledger.started_engines == 1
    assert str(caught.value) == "a row was poison\nwhat it said last"


def test_rows_that_the_engine_was_never_given_are_not_suspected() -> None:
    ledger = Ledger(mortal(poison={0}), rows=100, slots=1)
    with pytest.raises(EngineDiedError):
        supervise(ledger, Suspects({}), max_rebuilds=0)

    assert 0 in ledger.deaths
    # One slot, and what always waits inside.
    assert len(ledger.deaths) <= 1 + 8


def test_a_failed_row_says_how_often_the_engine_died_of_it() -> None:
    ledger = Ledger(mortal(poison={5}), rows=20, slots=4)
    supervise(ledger, Suspects({}), max_rebuilds=3)

    assert ledger.results[5].startswith(f"the engine died {ledger.deaths[5]} times running this")
    assert ledger.results[5].endswith("a row was poison")
    assert ledger.deaths[5] >= 2
