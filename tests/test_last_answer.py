"""How long the last answers take, against lengths that are drawn."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blend.core.planning.classes import SPREAD
from blend.core.planning.last_answer import _erfc, steps_until_last

FOREVER = 1e9


def drawn(expected: list[float], limit: float, age: float, *, draws: int = 4000) -> np.ndarray:
    """Return the steps until the last of some answers of this age has ended, drawn one by one."""
    rng = np.random.default_rng(0)
    centre = np.log(expected) - SPREAD**2 / 2
    lengths = np.zeros((draws, len(expected)))
    young = np.ones_like(lengths, bool)
    while young.any():
        fresh = np.exp(centre + SPREAD * rng.standard_normal(lengths.shape))
        lengths[young] = fresh[young]
        young = lengths <= age
    return np.minimum(lengths, limit).max(axis=1) - age


@pytest.mark.parametrize("expected", [[100.0], [100.0] * 20, [50.0, 200.0, 200.0]])
@pytest.mark.parametrize("age", [10.0, 120.0])
def test_the_steps_are_those_of_lengths_that_are_drawn(expected: list[float], age: float) -> None:
    told = steps_until_last(np.array(expected), np.full(len(expected), FOREVER), age=age)

    assert told[:3] == pytest.approx(
        np.quantile(drawn(expected, FOREVER, age), [0.1, 0.5, 0.9]), rel=0.2
    )


def test_no_answer_outgrows_its_limit() -> None:
    told = steps_until_last(np.array([1000.0] * 50), np.full(50, 300.0), age=100.0)

    assert told[:3] == pytest.approx((200.0, 200.0, 200.0), rel=0.1)


def test_an_answer_far_beyond_what_was_expected_may_go_on_as_long() -> None:
    young = steps_until_last(np.array([4.0]), np.array([FOREVER]), age=1000.0)
    old = steps_until_last(np.array([4.0]), np.array([FOREVER]), age=4000.0)

    assert 200 < young.median < 1000 < young.high
    assert old.median == pytest.approx(4 * young.median, rel=0.1)


@given(
    expected=st.lists(st.floats(1.0, 1e4), min_size=1, max_size=20),
    limit=st.floats(2.0, 1e5),
    age=st.floats(0.0, 1e5),
)
def test_the_bounds_are_in_order_and_within_the_limit(expected, limit: float, age: float) -> None:
    told = steps_until_last(np.array(expected), np.full(len(expected), limit), age=age)

    assert 0.0 <= told.low <= told.median <= told.high <= max(limit - age, 2.0)
    assert 0.0 <= told.running <= 1.0


def test_the_error_function_is_that_of_the_standard_library() -> None:
    x = np.linspace(0.0, 4.0, 100)

    assert _erfc(x) == pytest.approx([math.erfc(one) for one in x.tolist()], abs=2e-7)


def test_nothing_runs_for_no_step() -> None:
    assert steps_until_last(np.zeros(0), np.zeros(0), age=0.0).high == 0.0
