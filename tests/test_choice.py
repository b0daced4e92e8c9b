"""Where there is no time for all rows, as many as possible are finished."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blend.core.engines import Capacity
from blend.core.engines.sim import SimEngine
from blend.core.planning.choice import (
    Costs,
    choose,
    costs_of,
    first_rows,
    most_in_time,
)
from blend.core.planning.engine_model import EngineModel
from blend.core.planning.hardware import Hardware, hardware_preset, model_preset
from blend.core.planning.lengths import Observations
from blend.core.planning.plan import make_plan
from blend.core.planning.tree import tree_of
from blend.core.prompts import Prompts
from blend.core.request import Request
from blend.core.running import executor
from blend.core.running.scan import open_scanner
from blend.core.running.time_limit import TimedScanner, TimeLimit
from blend.core.schedule import LEFT, Policy, Schedule
from tests.small_jobs import grouped, schedule

DEVICE, MODEL = hardware_preset("a100-80g"), model_preset("llama-3-8b")


def costs(shape: list[tuple[int, int]]) -> Costs:
    """Costs of rows of these own seconds, each with so many tokens shared with the row before."""
    own = np.array([seconds for seconds, _ in shape], float)
    lcp = np.array([0, *(shared for _, shared in shape[1:])], np.int64)
    tree = tree_of(np.arange(len(own)), lengths=np.full(len(own), 9), lcp=lcp)
    return Costs(tree, own, tree.segment.astype(float), np.zeros_like(own))


SHAPES = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 4)), min_size=1, max_size=7)


def most(of: Costs, budget_s: float) -> int:
    """The most rows that fit, by trying every choice."""
    choices = (np.array(bits, bool) for bits in product([False, True], repeat=len(of.own_s)))
    return max(int(chosen.sum()) for chosen in choices if of.of(chosen) <= budget_s)


@settings(deadline=None)
@given(shape=SHAPES, budget_s=st.integers(0, 40))
def test_a_choice_fits_and_is_no_worse_than_the_first_rows(
    shape: list[tuple[int, int]], budget_s: int
) -> None:
    these = costs(shape)
    chosen = choose(these, budget_s)
    order = np.arange(len(shape))
    in_order = max(k for k in range(len(shape) + 1) if these.of(order < k) <= budget_s)
    best = most(these, budget_s)

    assert these.of(chosen) <= budget_s
    assert in_order <= chosen.sum() <= best
    assert chosen.sum() >= best / 2


@settings(deadline=None)
@given(shape=SHAPES)
def test_the_rows_share_out_the_whole_cost(shape: list[tuple[int, int]]) -> None:
    these = costs(shape)

    assert these.shared_out_s.sum() == pytest.approx(these.of(np.ones(len(shape), bool)))
    assert (these.shared_out_s >= these.own_s - 1e-9).all()


@settings(deadline=None)
@given(own=st.lists(st.integers(1, 9), min_size=1, max_size=7), budget_s=st.integers(0, 40))
def test_where_nothing_is_shared_no_choice_is_larger(own: list[int], budget_s: int) -> None:
    these = costs([(seconds, 0) for seconds in own])

    assert choose(these, budget_s).sum() == most(these, budget_s)


def test_a_prefix_is_paid_once() -> None:
    # Three rows of a second behind a prefix of four, and one of three seconds without any.
    these = costs([(1, 0), (1, 4), (1, 4), (3, 0)])

    assert choose(these, 3.0).tolist() == [False, False, False, True]
    assert choose(these, 7.0).tolist() == [True, True, True, False]


REQUESTS = grouped(6, size=5, shared=32, own=16, max_tokens=12)


@given(
    policy=st.sampled_from(["paper", "fcfs", "blend"]),
    count=st.integers(0, 40),
    lefts=st.integers(0, 30),
)
def test_the_first_rows_keep_order_and_mixture(policy: Policy, count: int, lefts: int) -> None:
    density = [2.0] * lefts + [0.5] * (30 - lefts)
    whole = schedule(REQUESTS, policy=policy, density=density)
    first = first_rows(whole, count)
    rows = first.order.tolist()

    assert len(rows) == min(count, 30)
    assert rows == sorted(set(rows))
    if policy == "fcfs":
        assert rows == list(range(len(rows)))
    else:
        assert abs((first.side == LEFT).sum() - len(rows) * lefts / 30) <= 0.5


@settings(deadline=None, max_examples=30)
@given(budget_s=st.floats(0, 1), order=st.permutations(range(30)))
def test_every_row_stays_in_the_schedule(budget_s: float, order: list[int]) -> None:
    whole = schedule(REQUESTS, policy="paper", order=order, density=[1.0] * 30)
    found = most_in_time(whole, _costs(whole, REQUESTS), budget_s)

    assert sorted(found.order.tolist()) == list(range(30))


def _costs(whole: Schedule, requests: list[Request], device: Hardware = DEVICE) -> Costs:
    return costs_of(
        whole,
        prompt_tokens=np.array([len(one.prompt) for one in requests]),
        sequences=np.array([one.sequences for one in requests], np.int32),
        capacity=LIMITS,
        hardware=device,
        model=MODEL,
    )


def test_a_row_pays_for_its_part_of_the_steps_as_they_were_measured() -> None:
    whole = schedule(REQUESTS, policy="fcfs", order=range(30), density=[1.0] * 30)
    slow = replace(DEVICE, weights_s=3.0, step_overhead_s=1.0)
    free = replace(DEVICE, weights_s=0.0)
    steps = whole.expected_tokens / LIMITS.max_sequences
    more = _costs(whole, REQUESTS, slow).own_s - _costs(whole, REQUESTS, free).own_s

    assert (more >= 4.0 * steps * 0.999).all()


LIMITS = Capacity(30_000, 128, 2048, 131_072, 16)
KINDS = ((600, 4), (300, 100), (30, 1500))
"""Tokens of a shared prefix, and max_tokens."""


class Mixture:
    """A job of short answers behind long prefixes among long ones, a few of them sampled."""

    def __init__(self, rows: int, seed: int):
        rng = np.random.default_rng(seed)
        kinds = rng.choice(3, rows, p=[0.5, 0.3, 0.2])
        self.requests = [self._request(row, int(kind), rng) for row, kind in enumerate(kinds)]
        limits = np.array([one.max_tokens for one in self.requests])
        lengths = rng.exponential(limits / 3.0)
        self.answers = np.clip(lengths, 1, limits).astype(int)
        self.sizes = np.array([len(one.prompt) for one in self.requests])
        seen = np.where(rng.random(rows) < 0.05, self.answers, np.nan)
        self.observed = Observations(seen, ~np.isnan(seen))
        starts = np.concatenate([[0], np.cumsum(self.sizes)])
        ones = np.ones(rows, np.int32)
        self.prompts = Prompts(
            np.concatenate([one.prompt for one in self.requests]),
            starts,
            limits.astype(np.int32),
            ones,
        )

    def _request(self, row: int, kind: int, rng: np.random.Generator) -> Request:
        shared, limit = KINDS[kind]
        group = 100 * kind + int(rng.integers(0, 10))
        own = rng.integers(0, 2**17, 80)
        prompt = np.concatenate([np.arange(shared) + 10_000 * group, own]).astype(np.uint32)
        return Request(row, f"r{row}", "/v1/completions", b"{}", prompt, limit)

    def schedule(self, policy: Policy) -> Schedule:
        return make_plan(
            self.prompts,
            policy=policy,
            hardware=DEVICE,
            model=MODEL,
            observations=self.observed,
        ).schedule

    def finished(self, order: Schedule, bound_s: float, *, timed: bool) -> tuple[int, float]:
        """The rows that have an answer by *bound_s* of engine time, and when the last one came."""
        step_s = EngineModel(LIMITS, DEVICE, MODEL).step_s
        engine = SimEngine(
            LIMITS, step_s=step_s, output_tokens=lambda one: int(self.answers[one.row])
        )
        scanner = open_scanner(
            order,
            prompt_tokens=self.sizes,
            sequences=self.prompts.sequences,
            capacity=LIMITS,
        )
        if timed:
            scanner = TimedScanner(scanner, TimeLimit(bound_s), order, capacity=LIMITS)
        done = 0
        for report in executor.run(scanner, self.requests.__getitem__, engine):
            if engine.clock_s > bound_s:
                break
            done += len(report.completions)
        return done, engine.clock_s


@pytest.fixture(scope="module", params=[0, 1])
def mixture(request: pytest.FixtureRequest) -> Mixture:
    return Mixture(400, seed=request.param)


@pytest.mark.parametrize(("policy", "shares"), [("paper", (0.05, 0.1, 0.25)), ("fcfs", (0.1,))])
def test_more_rows_finish_by_a_deadline_than_in_plan_order(
    mixture: Mixture, policy: Policy, shares: tuple[float, ...]
) -> None:
    whole = mixture.schedule(policy)
    of = _costs(whole, mixture.requests)
    _, total_s = mixture.finished(whole, np.inf, timed=False)
    for share in (*shares, 0.5, 0.75):
        bound_s = share * total_s
        plain, _ = mixture.finished(whole, bound_s, timed=False)
        chosen = most_in_time(whole, of, bound_s)
        most_rows, _ = mixture.finished(chosen, bound_s, timed=True)

        # With time for nearly all, the long answers decide, and the plan begins them early too.
        assert most_rows > plain if share in shares else most_rows >= 0.97 * plain


def test_with_time_enough_nothing_is_passed_over(mixture: Mixture) -> None:
    whole = mixture.schedule("paper")
    _, total_s = mixture.finished(whole, np.inf, timed=False)

    assert mixture.finished(whole, 10 * total_s, timed=True) == (400, total_s)
