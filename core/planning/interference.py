"""How long does what goes on at once take, where the operators of a step overlap (paper §3.3)?

    at once = a + b·(c + l·r + s·r²),  r = b/a       a: the longest, b: all others together

The polynomial says what is left of the others: 0, they hide all the way, to 1, all take turns; a
constant is one of degree 0. Only with the links between devices does r exceed 1; from there on the
time goes on in a straight line.

Invariant: at once is never less than the longest nor more than the sum, and grows with both. Two
steps take no less than one that does the work of both, for that one could do them in turn; so no
sequence of steps takes less than their sums at once, which the bounds rest on. For x = at once / a
as a function of r this is: x rises from r = 0 on, ever more steeply, and x(1) ≥ 2·x'(1). With
degree 2 at most, these are the weighted sums of three shapes, no weight negative and all together
no more than 1; measured times are fitted within that.

Differs from the paper: it fits a polynomial of both times, without these limits.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_EXACT = 1e-9
"""What rounding may leave of a limit, and what of a misfit another fit must at least take away."""


@dataclass(frozen=True, slots=True)
class Interference:
    """What of the others is left beside the longest: the coefficients of 1, r and r²."""

    constant: float
    linear: float = 0.0
    square: float = 0.0

    @property
    def coefficients(self) -> tuple[float, float, float]:
        """Return them in that order."""
        return self.constant, self.linear, self.square

    def __str__(self) -> str:
        """Return what of others is left that take no time and, if it differs, as long."""
        little, much = (f"{share:.2g}" for share in (self.constant, sum(self.coefficients)))
        return little if little == much else f"{little} to {much}"


TURNS = Interference(1.0)
"""Nothing overlaps."""

SHAPES = (Interference(1.0), Interference(0.0, 0.75, -0.25), Interference(0.0, 0.0, 0.2))


def added_s(interference: Interference, longest_s: Any, others_s: Any) -> Any:
    """Return the seconds that the others add to the longest, numbers or arrays of them."""
    constant, linear, square = interference.coefficients
    if linear == square == 0.0:
        return constant * others_s
    near = np.minimum(others_s, longest_s)
    share = near / np.where(longest_s > 0.0, longest_s, np.inf)
    added = near * (constant + share * (linear + share * square))
    return added + (others_s - near) * (constant + 2.0 * linear + 3.0 * square)


def at_once_s(*seconds: float, interference: Interference) -> float:
    """Return how long what goes on at once takes: the longest, and what is left of the others."""
    longest = max(seconds)
    return longest + float(added_s(interference, longest, sum(seconds) - longest))


def read_interference(stored: Any) -> Interference | None:
    """Return what was stored: a constant, or coefficients by name; TypeError, ValueError else."""
    if stored is None:
        return None
    named = stored if isinstance(stored, dict) else {"constant": stored}
    if any(type(one) not in (int, float) for one in named.values()):
        raise ValueError(f"`interference` must be a number, or have numbers: {stored}")
    found = Interference(**{name: float(one) for name, one in named.items()})
    if not _is_possible(found):
        raise ValueError(
            "`interference` must keep a step between the longest and the sum of what goes on at "
            f"once, rising with each: {stored}"
        )
    return found


def _is_possible(one: Interference) -> bool:
    slack = (
        one.constant,
        one.linear,
        one.linear + 3.0 * one.square,
        1.0 - one.constant - 3.0 * one.linear - 5.0 * one.square,
    )
    # Not a number is no less than anything.
    return all(left >= -_EXACT for left in slack)


def fit_interference(longest_s: Floats, others_s: Floats, at_once: Floats) -> Interference:
    """Return the polynomial of the least squares of relative errors, within its limits.

    Arrays (k,) of seconds. Where times are no less than the sums it is `TURNS`.
    """
    columns = np.stack([added_s(shape, longest_s, others_s) for shape in SHAPES], axis=1)
    columns, wanted = columns / at_once[:, None], (at_once - longest_s) / at_once
    best, least = np.zeros(len(SHAPES)), float((wanted**2).sum())
    for weights in _likely_weights(columns, wanted):
        misfit = float(((columns @ weights - wanted) ** 2).sum())
        possible = weights.min() >= 0.0 and weights.sum() <= 1.0 + _EXACT
        # A simpler one stays where more shapes do not say more.
        if possible and misfit < (1.0 - _EXACT) * least:
            best, least = weights, misfit
    return Interference(*(best @ np.array([shape.coefficients for shape in SHAPES])).tolist())


def _likely_weights(columns: Floats, wanted: Floats) -> Iterator[Floats]:
    """Yield the least squares over any of the shapes, their sum free and 1, the fewest first."""
    every = range(columns.shape[1])
    for some in (list(some) for count in every for some in combinations(every, count + 1)):
        weights = np.zeros(columns.shape[1])
        weights[some] = np.linalg.lstsq(columns[:, some], wanted, rcond=None)[0]
        yield weights
        *others, last = some
        beside = columns[:, others] - columns[:, [last]]
        weights = np.zeros(columns.shape[1])
        weights[others] = np.linalg.lstsq(beside, wanted - columns[:, last], rcond=None)[0]
        weights[last] = 1.0 - weights.sum()
        yield weights
