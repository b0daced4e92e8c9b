"""What goes on at once takes no less than the longest, no more than the sum, and is fitted so."""

from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blend.core.planning.interference import (
    SHAPES,
    TURNS,
    Interference,
    added_s,
    at_once_s,
    fit_interference,
    read_interference,
)
from tests.drawn_interference import interferences

seconds = st.floats(0.0, 1e3)
triples = st.tuples(seconds, seconds, seconds)
ROUNDING = 1 + 1e-9


@given(triples, interferences)
def test_at_once_is_between_the_longest_and_the_sum(
    times: tuple[float, ...], interference: Interference
) -> None:
    taken = at_once_s(*times, interference=interference)

    assert max(times) <= taken <= sum(times) * ROUNDING


@given(triples, triples, interferences)
def test_at_once_grows_with_each(
    times: tuple[float, ...], more: tuple[float, ...], interference: Interference
) -> None:
    longer = [sum(pair) for pair in zip(times, more, strict=True)]
    taken, later = (at_once_s(*some, interference=interference) for some in (times, longer))

    assert taken <= later * ROUNDING


@given(triples, triples, interferences)
def test_two_steps_take_no_less_than_one_with_the_work_of_both(
    one: tuple[float, ...], other: tuple[float, ...], interference: Interference
) -> None:
    both = [sum(pair) for pair in zip(one, other, strict=True)]
    apart = sum(at_once_s(*some, interference=interference) for some in (one, other))

    assert at_once_s(*both, interference=interference) <= apart * ROUNDING


@given(seconds, seconds, st.floats(0.0, 1.0))
def test_a_constant_is_that_part_of_the_others(
    longest: float, others: float, constant: float
) -> None:
    assert added_s(Interference(constant), longest, others) == constant * others


@given(interferences, st.integers(0, 1 << 20))
def test_what_noisy_steps_hide_is_found(interference: Interference, seed: int) -> None:
    rng = np.random.default_rng(seed)
    longest, share = rng.uniform(0.01, 1.0, 400), rng.uniform(0.05, 1.0, 400)
    others = share * longest
    at_once = longest + added_s(interference, longest, others)
    found = fit_interference(longest, others, at_once * rng.normal(1.0, 0.01, 400))

    assert read_interference(asdict(found)) == found
    missed = added_s(found, longest, others) - added_s(interference, longest, others)
    assert (np.abs(missed) <= 0.01 * longest).all()


@given(interferences)
def test_few_undisturbed_steps_are_met(interference: Interference) -> None:
    longest, others = np.full(4, 0.5), 0.5 * np.array([0.25, 0.5, 0.75, 1.0])
    at_once = longest + added_s(interference, longest, others)
    found = fit_interference(longest, others, at_once)

    assert longest + added_s(found, longest, others) == pytest.approx(at_once, rel=1e-5)


def test_steps_that_take_turns_or_longer_overlap_nothing() -> None:
    longest, others = np.ones(4), np.array([0.25, 0.5, 0.75, 1.0])

    for slower in (1.0, 1.3):
        assert fit_interference(longest, others, slower * (longest + others)) == TURNS
    assert fit_interference(longest, others, longest) == Interference(0.0)
    assert fit_interference(longest[:1], others[:1], np.array([1.1])).linear == 0.0


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_at_its_limit(shape: Interference) -> None:
    assert read_interference(asdict(shape)) == shape
    with pytest.raises(ValueError, match="must keep"):
        read_interference({name: 1.01 * one for name, one in asdict(shape).items()})


@pytest.mark.slow
@given(triples, interferences)
def test_the_clock_of_the_simulator_adds_the_same(
    times: tuple[float, ...], interference: Interference
) -> None:
    from blend.core.kernels.clock import Clock, step_seconds  # numba is slow to import

    compute, memory, network = times
    silent = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, network)
    clock = Clock(*silent, interference.coefficients, overlapped=True, shared_bandwidth=True)

    taken = step_seconds(clock, compute, 0, round(memory))
    assert taken == at_once_s(compute, round(memory), network, interference=interference)
