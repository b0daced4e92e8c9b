"""How many steps go by until the last of the answers that run has ended?

When nothing waits any more, a run lasts as long as its longest answer, whatever the plan's course
says: a step makes one token of each. A length is taken to be lognormal around the one expected, no
longer than its limit, and no shorter than what is there already. An answer that is far beyond all
that was expected of it says that the expectation was wrong: then it is the longer to come the
longer it is.
"""

import math
from typing import NamedTuple

import numpy as np

from blend.core.planning.classes import SPREAD
from blend.core.planning.tree import Floats

OUTLYING = 1e-4
"""The chance of a length beyond which its expectation tells nothing."""

OUTLIER_POWER = 2.0
"""The chance that an outlier grows to k times its length is k to this power, inverted."""

GRID = 80
"""Moments, ever further apart, at which the answers are looked at."""


class StepsLeft(NamedTuple):
    """The median of the steps until the last answer has ended, and their 10 % and 90 % bounds.

    ``running``: the share of the answers that run in these steps, on the average.
    """

    low: float
    median: float
    high: float
    running: float


def steps_until_last(expected: Floats, limit: Floats, *, age: float) -> StepsLeft:
    """Return the steps until answers of these *expected* lengths, (n,), have all ended.

    ``limit`` (n,): the most tokens of each; *age*: the tokens that they have, on the average.
    """
    if not len(expected):
        return StepsLeft(0.0, 0.0, 0.0, 1.0)
    age = max(age, 1.0)
    longest = max(float(limit.max()) - age, 1.0)
    steps = np.concatenate([[0.0], np.geomspace(1.0, max(longest, 2.0), GRID)])
    lasting = _lasting(expected[:, None], limit[:, None], age, age + steps[None])
    low, median, high = np.interp([0.1, 0.5, 0.9], (1.0 - lasting).prod(0), steps).tolist()
    until = np.linspace(0.0, median, GRID)
    share = float(np.interp(until, steps, lasting.mean(0)).mean())
    return StepsLeft(low, median, high, share)


def _lasting(expected: Floats, limit: Floats, age: float, tokens: Floats) -> Floats:
    """Return the chance that answers of this *age* grow to so many *tokens*."""
    alive = _longer(expected, np.array(age))
    grown = np.where(
        alive < OUTLYING,
        (age / tokens) ** OUTLIER_POWER,
        _longer(expected, tokens) / np.maximum(alive, OUTLYING),
    )
    return np.where(tokens < limit, np.minimum(grown, 1.0), 0.0)


def _longer(expected: Floats, tokens: Floats) -> Floats:
    """Return the chance of a length of more than so many *tokens*."""
    centre = np.log(np.maximum(expected, 1.0)) - SPREAD**2 / 2.0
    apart = (np.log(tokens) - centre) / (SPREAD * math.sqrt(2.0))
    far = _erfc(np.abs(apart)) / 2.0
    return np.where(apart < 0.0, 1.0 - far, far)


def _erfc(x: Floats) -> Floats:
    """Return the complementary error function of numbers from 0 on, to 1.5e-7.

    Abramowitz and Stegun, 7.1.26.
    """
    t = 1.0 / (1.0 + 0.3275911 * x)
    factors = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592, 0.0)
    found: Floats = np.polyval(factors, t) * np.exp(-x * x)
    return found
