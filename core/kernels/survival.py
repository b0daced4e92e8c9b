"""How long answers will still be: Kaplan-Meier estimates on log bins, in compiled form.

Bin b holds lengths from EDGE[b] up to EDGE[b + 1]; S is the survival at the edges, linear between
them. Answers that have ended are events, those that run or were cut off are censored at their age,
half of which counts as at risk in the bin of that age. A prior survival S0 weighs as w answers:

    h_b = (events_b + w·(S0_b - S0_{b+1})) / (at risk_b + w·S0_b),  S_{b+1} = S_b·(1 - h_b)
"""

from typing import Any, NamedTuple

import numpy as np

from blend.core.kernels.compiled import compiled

BINS = 110
BINS_PER_OCTAVE = 6.0
EDGE = 2.0 ** (np.arange(BINS + 1) / BINS_PER_OCTAVE) - 1.0
WEIGHT = 3.0

GONE = 1e-9
"""Survival below which a running answer is taken to be an outlier of its class."""


class Beliefs(NamedTuple):
    """What is known of the answers of each class (c classes, arrays (c, bins or edges))."""

    label: Any  # by row: its class
    known: Any  # by row: its length where that is certain, else 0
    prior: Any
    events: Any
    censored: Any
    limit: Any  # (c,) no answer is longer
    doubted: Any  # (c,) whether its sample was cut off
    survival: Any
    area: Any  # from each edge to infinity below the survival
    moments: Any  # (c, 2): E[d], E[d²]


def new_beliefs(
    *, label: Any, known: Any, prior: Any, events: Any, censored: Any, limit: Any
) -> Beliefs:
    """Return the beliefs with their survival estimated."""
    classes = len(prior)
    beliefs = Beliefs(
        label.astype(np.int32),
        known.astype(np.float64),
        prior.astype(np.float64),
        events.astype(np.float64),
        censored.astype(np.float64),
        limit.astype(np.float64),
        censored.sum(axis=1) > 0.0,
        np.zeros((classes, BINS + 1)),
        np.zeros((classes, BINS + 1)),
        np.ones((classes, 2)),
    )
    estimate_all(beliefs, beliefs.censored)
    return beliefs


@compiled
def bin_of(tokens: float) -> int:
    """Return the bin of a length."""
    return min(int(BINS_PER_OCTAVE * np.log2(tokens + 1.0)), BINS - 1)


@compiled
def estimate_all(beliefs: Beliefs, censored: Any) -> None:
    """Estimate the survival of every class anew, with these ages of answers that go on."""
    for one in range(len(beliefs.prior)):
        _estimate(beliefs, censored, one)


@compiled
def _estimate(beliefs: Beliefs, censored: Any, one: int) -> None:
    survival, prior = beliefs.survival[one], beliefs.prior[one]
    at_risk = 0.0
    for b in range(BINS):
        at_risk += beliefs.events[one, b] + censored[one, b]
    alive = 1.0
    for b in range(BINS):
        survival[b] = alive
        weight = at_risk - 0.5 * censored[one, b] + WEIGHT * prior[b]
        ended = beliefs.events[one, b] + WEIGHT * (prior[b] - prior[b + 1])
        if weight > 1e-12:
            alive *= 1.0 - min(ended / weight, 1.0)
        if EDGE[b + 1] >= beliefs.limit[one]:
            alive = 0.0
        at_risk -= beliefs.events[one, b] + censored[one, b]
    survival[BINS] = 0.0
    _integrate(beliefs, one)


@compiled
def _integrate(beliefs: Beliefs, one: int) -> None:
    survival, area = beliefs.survival[one], beliefs.area[one]
    area[BINS], square = 0.0, 0.0
    for b in range(BINS - 1, -1, -1):
        part = (EDGE[b + 1] - EDGE[b]) * 0.5 * (survival[b] + survival[b + 1])
        area[b] = area[b + 1] + part
        square += part * (EDGE[b] + EDGE[b + 1])
    beliefs.moments[one, 0] = max(area[0], 1.0)
    beliefs.moments[one, 1] = max(square, 1.0)


@compiled
def survives(survival: Any, tokens: float) -> float:
    """Return the survival of a class, at the edges, at so many tokens."""
    b = bin_of(tokens)
    share = min(max((tokens - EDGE[b]) / (EDGE[b + 1] - EDGE[b]), 0.0), 1.0)
    return survival[b] + (survival[b + 1] - survival[b]) * share


@compiled
def alive_at(beliefs: Beliefs, row: int, tokens: float) -> float:
    """Return the probability that the answer of *row* is longer than *tokens*."""
    if beliefs.known[row] > 0.0:
        return 1.0 if tokens < beliefs.known[row] else 0.0
    return survives(beliefs.survival[beliefs.label[row]], tokens)


@compiled
def alive_after(beliefs: Beliefs, row: int, age: float, more: float) -> float:
    """Return the probability that an answer of this age grows by *more* tokens."""
    now = alive_at(beliefs, row, age)
    if now < GONE:
        return np.exp(-more / (0.15 * age + 4.0))
    return alive_at(beliefs, row, age + more) / now


@compiled
def residual(beliefs: Beliefs, row: int, age: float) -> float:
    """Return the tokens that an answer of this age is expected to grow by."""
    if beliefs.known[row] > 0.0:
        return max(beliefs.known[row] - age, 1.0)
    one = beliefs.label[row]
    survival = beliefs.survival[one]
    now = survives(survival, age)
    if now < GONE:
        return age * 0.15 + 4.0
    b = bin_of(age)
    rest = beliefs.area[one, b + 1] + max(EDGE[b + 1] - age, 0.0) * 0.5 * (now + survival[b + 1])
    return max(rest / now, 1.0)


@compiled
def expected(beliefs: Beliefs, row: int) -> float:
    """Return the expected length of an answer that has not begun."""
    if beliefs.known[row] > 0.0:
        return beliefs.known[row]
    return beliefs.moments[beliefs.label[row], 0]


@compiled
def learn(beliefs: Beliefs, row: int, tokens: float, answers: float) -> None:
    """Take in that answers have ended with so many tokens each."""
    beliefs.events[beliefs.label[row], bin_of(tokens)] += answers


@compiled
def forget(beliefs: Beliefs, one: int, age: float) -> None:
    """Take back that an answer of a class was cut off, at this age or the next one below."""
    censored = beliefs.censored[one]
    for b in range(bin_of(age), -1, -1):
        if censored[b] >= 1.0:
            censored[b] -= 1.0
            return
