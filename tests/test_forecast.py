"""The forecast of what is inside is the sum over its rows, however they are grouped."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from blend.core.engines.sim import SimEngine
from blend.core.kernels.forecast import Forecast, add, fits, last_step, look_over, new_forecast
from blend.core.kernels.inside import ROW_INSIDE
from blend.core.kernels.survival import BINS, EDGE, Beliefs, alive_after, new_beliefs, residual
from blend.core.planning.blending import blended_schedule
from blend.core.planning.classes import find_classes
from blend.core.planning.hardware import hardware_preset, model_preset
from blend.core.planning.tree import build_tree
from blend.core.running.blend_scan import BlendScanner
from blend.core.running.executor import run
from tests.prompt_sets import prompts_of
from tests.small_jobs import capacity, request, step_s

ON = {"hardware": hardware_preset("a100-80g"), "model": model_preset("llama-3-8b")}

# Compiling the kernels takes half a minute where that has not been done.
pytestmark = pytest.mark.slow

LONG, SHORT, CERTAIN = range(3)


def some_beliefs(label: list[int], known: list[float]) -> Beliefs:
    means = np.array([2_000.0, 60.0, 1.0])
    return new_beliefs(
        label=np.array(label),
        known=np.array(known),
        prior=np.exp(-EDGE[None, :] / means[:, None]),
        events=np.zeros((3, BINS)),
        censored=np.zeros((3, BINS)),
        limit=np.array([16_000.0, 1_000.0, 4_000.0]),
    )


def looked_over(beliefs: Beliefs, copies, ages, *, uncached, memory_side=None) -> tuple:
    forecast = new_forecast(beliefs, np.array(copies))
    now = int(max(ages))
    inside = np.zeros(len(ages), ROW_INSIDE)
    inside["row"], inside["going"] = np.arange(len(ages)), 1.0
    inside["label"], inside["known"] = beliefs.label, beliefs.known
    inside["kind"], inside["copies"] = forecast.kind, copies
    inside["memory_side"] = 1 if memory_side is None else memory_side
    inside["prompt"] = inside["uncached"] = uncached
    inside["since"] = now - np.array(ages)
    return forecast, look_over(forecast, beliefs, inside, now, 7)


def one_by_one(beliefs: Beliefs, forecast: Forecast, ages, uncached) -> tuple:
    """Mean and variance at each horizon, row by row."""
    mean, variance = np.zeros(len(forecast.horizon)), np.zeros(len(forecast.horizon))
    for row, age in enumerate(ages):
        for j, ahead in enumerate(forecast.horizon):
            alive = alive_after(beliefs, row, float(age), ahead)
            held = uncached[row] + age + forecast.middle[j]
            mean[j] += alive * held
            variance[j] += alive * (1 - alive) * held * held
    return mean, variance


def test_rows_forecast_together_are_the_sum_of_rows_forecast_alone() -> None:
    rng = np.random.default_rng(0)
    n = 300
    label = rng.choice(3, n, p=[0.6, 0.3, 0.1]).tolist()
    known = [float(rng.integers(9, 4_000)) if one == CERTAIN else 0.0 for one in label]
    ages = [int(rng.integers(0, (9_000, 300, 3_000)[one])) for one in label]
    uncached = rng.integers(1, 400, n)
    beliefs = some_beliefs(label, known)
    forecast, sight = looked_over(beliefs, np.ones(n, int), ages, uncached=uncached)
    mean, variance = one_by_one(beliefs, forecast, ages, uncached)

    most = mean.max()
    assert np.abs(forecast.load - mean).max() < 0.02 * most
    assert np.abs(np.sqrt(forecast.variance) - np.sqrt(variance)).max() < 0.02 * most
    rest = [residual(beliefs, row, float(age)) for row, age in enumerate(ages)]
    assert sight.decodes == pytest.approx(sum(rest))
    assert sight.held == uncached.sum() + sum(ages)
    alive = [
        sum(alive_after(beliefs, row, float(age), ahead) for row, age in enumerate(ages))
        for ahead in forecast.horizon
    ]
    assert forecast.living == pytest.approx(alive, rel=0.02, abs=0.5)
    assert alive[int(np.searchsorted(forecast.horizon, last_step(forecast)))] > 0.3


def test_a_second_look_forgets_the_first() -> None:
    beliefs = some_beliefs([LONG, CERTAIN], [0.0, 500.0])
    forecast, _ = looked_over(beliefs, [1, 1], [100, 100], uncached=[10, 10])
    look_over(forecast, beliefs, np.empty(0, ROW_INSIDE), 0, 7)

    assert not forecast.load.any()
    assert not forecast.variance.any()


def test_the_compute_side_is_not_forecast_but_counts_as_work() -> None:
    beliefs = some_beliefs([LONG, LONG], [0.0, 0.0])
    side = np.array([0, 1])
    both, work = looked_over(beliefs, [1, 1], [50, 50], uncached=[10, 10])
    one, same = looked_over(beliefs, [1, 1], [50, 50], uncached=[10, 10], memory_side=side)

    assert one.load == pytest.approx(both.load / 2)
    assert (same.decodes, same.reads, same.held) == (work.decodes, work.reads, work.held)
    assert same.token_steps == pytest.approx(work.token_steps / 2)


def by_enumeration(survival, age: float, ahead: float, n: int, tokens: float, more: float):
    """Mean and variance of what a row of n sequences holds, over all that may have ended."""
    now, later = (np.interp(x, EDGE, survival) for x in (age, age + ahead))
    chance, first, second = 0.0, 0.0, 0.0
    # Each sequence has ended by now (0), ends until then (1), or goes on (2).
    for states in product(range(3), repeat=n):
        if not any(states):
            continue
        p = np.prod([(1 - now, now - later, later)[s] for s in states])
        left = sum(s == 2 for s in states)
        held = (tokens if left else 0.0) + left * (age + more)
        chance, first, second = chance + p, first + p * held, second + p * held * held
    mean = first / chance
    return mean, second / chance - mean * mean


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("edge", [0, 40, 70])
def test_a_row_of_several_sequences_is_forecast_as_enumeration_says(n: int, edge: int) -> None:
    beliefs = some_beliefs([LONG], [0.0])
    forecast, survival = new_forecast(beliefs, np.array([n])), beliefs.survival[0]
    ages, tokens = np.array([0]), 300.0
    if edge:
        # An age between edges is forecast from both; one on an edge from that alone.
        ages = np.array([round(EDGE[edge])])
        forecast, _ = looked_over(beliefs, [n], ages, uncached=[300])
    else:
        add(forecast, beliefs, 0, tokens)
    for j in range(0, len(forecast.horizon), 5):
        mean, variance = by_enumeration(
            survival, float(ages[0]), forecast.horizon[j], n, tokens, forecast.middle[j]
        )
        if mean > 30:
            assert forecast.load[j] == pytest.approx(mean, rel=0.02)
            assert forecast.variance[j] == pytest.approx(variance, rel=0.03, abs=mean)


def test_known_sequences_are_all_held_to_their_end() -> None:
    beliefs = some_beliefs([CERTAIN], [1_000.0])
    forecast = new_forecast(beliefs, np.array([4]))
    add(forecast, beliefs, 0, 50.0)
    before = forecast.horizon < 1_000

    assert forecast.load[before] == pytest.approx(50 + 4 * forecast.middle[before])
    assert not forecast.load[~before].any()


def test_a_row_fits_where_it_would_not_raise_any_horizon_too_far() -> None:
    beliefs = some_beliefs([CERTAIN, CERTAIN], [1_000.0, 400.0])
    forecast = new_forecast(beliefs, np.array([1, 1]))
    add(forecast, beliefs, 0, 50.0)
    last = forecast.middle[forecast.horizon < 400][-1]
    needed = (50 + last) + (20 + last)

    assert fits(forecast, beliefs, 1, 20.0, 2.0, needed + 1)
    assert not fits(forecast, beliefs, 1, 20.0, 2.0, needed - 1)


@pytest.mark.parametrize("pacing", ["step budget", "none"])
def test_rows_of_several_sequences_all_run_and_nothing_of_them_stays_counted(pacing) -> None:
    rng = np.random.default_rng(3)
    n = 150
    sequences = rng.integers(1, 5, n)
    limits = np.where(rng.random(n) < 0.3, 300, 12)
    token_ids = [[row % 3] * int(rng.integers(10, 90)) + [row] for row in range(n)]
    requests = [
        request(row, ids, max_tokens=int(limits[row]), sequences=int(sequences[row]))
        for row, ids in enumerate(token_ids)
    ]
    tree = build_tree(prompts_of(token_ids, max_tokens=limits.tolist()))
    classes = find_classes(tree, limits.astype(np.int32))
    plan = blended_schedule(tree, classes, **ON, mode="sequential")
    held = replace(capacity(16 * 200, max_sequences=24, step_tokens=256), pacing=pacing)
    lengths = np.array([len(ids) for ids in token_ids])
    scanner = BlendScanner(plan, prompt_tokens=lengths, sequences=sequences, capacity=held)
    engine = SimEngine(held, step_s=step_s)
    done = [
        completion.row
        for report in run(scanner, requests.__getitem__, engine)
        for completion in report.completions
    ]

    assert sorted(done) == list(range(n))
    state, counts = scanner._state.state[0], scanner._state.flight.counts[0]
    assert (state["inside"], counts["inside"], counts["queued"], counts["ended_at_most"]) == (
        0,
        0,
        0,
        0,
    )
    for left in ("decoders", "reading", "used_left"):
        assert state[left] == pytest.approx(0.0, abs=1e-6)
    assert scanner._state.waiting == pytest.approx(0.0, abs=1e-6)
