"""The scanners admit every row once, in their order, and no more than the engine can take."""

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blend.core.engines import Capacity, Pacing, StepReport
from blend.core.engines.sim import SimEngine
from blend.core.engines.sim_answers import hashed_length
from blend.core.request import Request
from blend.core.running.blend_scan import BlendScanner
from blend.core.running.executor import run
from blend.core.running.in_flight import WAITING_SEQUENCES
from blend.core.running.scan import Scanner
from blend.core.schedule import POLICIES, Policy, Schedule
from tests.small_jobs import capacity, grouped, request, scanner_of, schedule, step_s


class LaggingEngine(SimEngine):
    """A simulated engine whose reports arrive some steps late, as from another process."""

    def __init__(
        self,
        capacity: Capacity,
        *,
        lag_steps: int,
        output_tokens: Callable[[Request], int] = hashed_length,
    ):
        super().__init__(capacity, step_s=step_s, output_tokens=output_tokens)
        self._late: deque[StepReport] = deque()
        self._lag_steps = lag_steps

    def step(self) -> StepReport:
        while self._running or self._waiting or self._refused:
            self._late.append(super().step())
            if len(self._late) > self._lag_steps:
                break
        return self._late.popleft()


densities = st.floats(0.01, 1000)


@st.composite
def plans(draw: st.DrawFn) -> tuple[list[Request], Schedule]:
    shapes = st.tuples(st.integers(1, 150), st.integers(1, 60), st.integers(1, 4))
    rows = draw(st.lists(shapes, min_size=1, max_size=40))
    requests = [
        request(row, [row % 3] * tokens, max_tokens=output, sequences=sequences)
        for row, (tokens, output, sequences) in enumerate(rows)
    ]
    n = len(requests)
    density = draw(st.lists(densities, min_size=n, max_size=n).map(lambda d: sorted(d)[::-1]))
    return requests, schedule(
        requests,
        policy=draw(st.sampled_from(POLICIES)),
        order=draw(st.permutations(range(n))),
        expected=draw(st.lists(st.floats(0, 80), min_size=n, max_size=n)),
        density=density,
        root_density=draw(densities),
    )


@settings(max_examples=200, deadline=None)
@given(plans(), st.integers(14, 40), st.integers(1, 12), st.integers(0, 5))
def test_every_row_completes_once_and_the_engine_never_holds_too_many(
    job: tuple[list[Request], Schedule], blocks: int, slots: int, lag_steps: int
) -> None:
    requests, plan = job
    limits = capacity(16 * blocks, max_sequences=slots, step_tokens=128)
    inside: set[int] = set()
    done: list[int] = []

    def on_admit(rows: Sequence[int]) -> None:
        held = inside.union(rows)
        sequences = sum(requests[row].sequences for row in held)
        assert sequences <= slots + max(WAITING_SEQUENCES, slots) or len(held) == 1

    engine = LaggingEngine(limits, lag_steps=lag_steps)
    for report in run(
        scanner_of(requests, plan, limits),
        requests.__getitem__,
        engine,
        on_admit=on_admit,
        inside=inside,
    ):
        done += [completion.row for completion in report.completions]

    assert sorted(done) == list(range(len(requests)))


@pytest.mark.parametrize("policy", ["dfs", "fcfs", "random"])
@pytest.mark.parametrize("lag_steps", [0, 4])
def test_an_order_is_followed(policy: Policy, lag_steps: int) -> None:
    requests = grouped(6, size=10, shared=32, own=8, max_tokens=20)
    order = [int(row) for row in np.random.default_rng(7).permutation(len(requests))]
    limits = capacity(1024, max_sequences=8)
    admitted: list[int] = []
    plan = schedule(requests, policy=policy, order=order)
    for _ in run(
        scanner_of(requests, plan, limits),
        requests.__getitem__,
        LaggingEngine(limits, lag_steps=lag_steps),
        on_admit=admitted.extend,
    ):
        pass

    assert admitted == order


@pytest.mark.parametrize("lag_steps", [0, 3])
@pytest.mark.parametrize("kv_tokens", [640, 1 << 16])
def test_few_wait_inside_the_engine_and_it_stays_filled(lag_steps: int, kv_tokens: int) -> None:
    requests = [request(row, [row] * 32, max_tokens=30) for row in range(600)]
    limits = capacity(kv_tokens, max_sequences=32, step_tokens=256)
    engine = LaggingEngine(limits, lag_steps=lag_steps, output_tokens=lambda _: 30)
    scanner = scanner_of(requests, schedule(requests, policy="dfs"), limits)
    reports = list(run(scanner, requests.__getitem__, engine))
    middle = reports[len(reports) // 4 : len(reports) // 2]
    room = min(32, kv_tokens / 48)

    assert max(report.waiting for report in middle) <= 2 * WAITING_SEQUENCES
    # A row that has ended counts as inside until a report says so.
    assert np.mean([report.running for report in middle]) >= 0.8 * room * 30 / (30 + lag_steps)


def test_answers_that_end_together_find_as_many_waiting_in_their_place() -> None:
    """However late the reports are: after the first time the engine is filled at once."""
    requests = [request(row, [row] * 32, max_tokens=30) for row in range(600)]
    limits = capacity(1 << 16, max_sequences=32, step_tokens=2048)
    engine = LaggingEngine(limits, lag_steps=10, output_tokens=lambda _: 30)
    scanner = scanner_of(requests, schedule(requests, policy="dfs"), limits)
    reports = list(run(scanner, requests.__getitem__, engine))
    middle = reports[len(reports) // 3 : 3 * len(reports) // 4]

    assert np.mean([report.running for report in middle]) >= 0.9 * limits.max_sequences


@settings(max_examples=60, deadline=None)
@given(plans(), st.integers(1, 12), st.randoms())
def test_rows_that_are_withdrawn_leave_no_trace_and_the_others_run(
    job: tuple[list[Request], Schedule], slots: int, chance: random.Random
) -> None:
    requests, plan = job
    limits = capacity(16 * 40, max_sequences=slots, step_tokens=128)
    inner = scanner_of(requests, plan, limits)
    withdrawn: list[int] = []

    class Withdrawing(Scanner):
        done = property(lambda _: inner.done)
        pace = property(lambda _: inner.pace)
        observe = inner.observe

        def admit(self) -> Sequence[int]:
            while rows := inner.admit():
                kept = [row for row in rows if chance.random() < 0.6]
                inner.withdraw([row for row in rows if row not in kept])
                withdrawn.extend(row for row in rows if row not in kept)
                if kept:
                    return kept
            return ()

    engine = SimEngine(limits, step_s=step_s)
    done = [
        completion.row
        for report in run(Withdrawing(), requests.__getitem__, engine)
        for completion in report.completions
    ]

    assert sorted(done + withdrawn) == list(range(len(requests)))


@pytest.mark.slow  # the kernels may have to be compiled
@pytest.mark.parametrize("pacing", ["none", "step budget"])
def test_a_pace_counts_nothing_of_rows_that_are_withdrawn(pacing: Pacing) -> None:
    requests = [request(row, [row] * 100, max_tokens=20 + 200 * (row % 2)) for row in range(40)]
    limits = replace(capacity(1 << 14), pacing=pacing, prefill_threshold=16)
    plan = schedule(requests, policy="blend", density=[0.1 + (row < 20) for row in range(40)])
    assert plan.blending is not None
    plan = replace(plan, blending=replace(plan.blending, weights_s=0.1))
    scanner = scanner_of(requests, plan, limits)
    assert isinstance(scanner, BlendScanner)
    rows = scanner.admit()
    scanner.withdraw(rows[::2])
    kept = rows[1::2]
    inside, counts = scanner._state.state[0], scanner._state.flight.counts[0]

    assert kept
    assert inside["inside"] == counts["inside"] == counts["queued"] == len(kept)
    assert inside["backlog"] == counts["queued_tokens"] == 100 * len(kept)
    scanner.withdraw(kept)
    assert not any(inside[name] for name in ("inside", "backlog", "urgent"))
    assert inside["used_left"] == pytest.approx(0.0, abs=1e-9)
    assert scanner._state.gate.state[0]["prefilling"] == 0


@pytest.mark.parametrize("policy", POLICIES)
def test_an_empty_schedule_is_done(policy: Policy) -> None:
    scanner = scanner_of([], schedule([], policy=policy), capacity())

    assert scanner.done
    assert list(scanner.admit()) == []
