"""What stands along a schedule, and how long answers are, in few enough bins to be drawn."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from blend.core.planning.tree import Floats, Ints
from blend.core.schedule import LEFT, Schedule

LENGTH_STARTS: Ints = np.unique(np.ceil(2.0 ** (np.arange(36) / 2))).astype(np.int64)
"""Where the bins of answer lengths begin, from 1 token to 2^17.5: two for every doubling."""


@dataclass(frozen=True, slots=True)
class ScheduleBins:
    """A schedule from left to right in k bins of about equal rows; arrays (k,).

    ``first_position`` of each; ``density``: the geometric mean; ``cached``: the share of prompt
    tokens that stand in a prefix before; ``right``: the share of rows on the memory-bound side;
    ``expected_tokens`` and ``actual_tokens``: means of an answer, the latter NaN where there is
    none; ``subtree``: what most of its rows belong to.
    """

    first_position: Ints
    density: Floats
    cached: Floats
    right: Floats
    expected_tokens: Floats
    actual_tokens: Floats
    subtree: Ints


def schedule_bins(
    schedule: Schedule,
    *,
    prompt_tokens: npt.NDArray[np.integer],
    bins: int,
    actual_tokens: Floats | None = None,
    subtree: npt.NDArray[np.integer] | None = None,
) -> ScheduleBins:
    """Return the bins of *schedule*, no more than it has rows; the other arrays are by row.

    ``actual_tokens``: mean output of a row's answers, NaN where it has none; ``subtree``: any small
    number, 0 where it is left out.
    """
    n = len(schedule)
    starts = np.linspace(0, n, min(bins, n) + 1).astype(np.int64)[:-1] if n else np.zeros(0, int)
    rows = np.diff(starts, append=n)
    prompts = prompt_tokens[schedule.order]
    actual = np.full(n, np.nan) if actual_tokens is None else actual_tokens[schedule.order]
    known = ~np.isnan(actual)

    def total(column: npt.NDArray[np.generic]) -> Floats:
        return np.add.reduceat(column.astype(np.float64), starts) if n else np.zeros(0)

    answered = total(known)
    return ScheduleBins(
        starts,
        np.exp(total(np.log(np.clip(schedule.density, 1e-6, 1e6))) / rows),
        1.0 - total(schedule.uncached_tokens) / np.maximum(total(prompts), 1.0),
        total(schedule.side != LEFT) / rows,
        total(schedule.expected_tokens) / rows,
        np.where(
            answered > 0, total(np.where(known, actual, 0.0)) / np.maximum(answered, 1.0), np.nan
        ),
        _most_frequent(subtree, schedule.order, starts, rows),
    )


def _most_frequent(
    subtree: npt.NDArray[np.integer] | None, order: Ints, starts: Ints, rows: Ints
) -> Ints:
    if subtree is None:
        return np.zeros(len(starts), np.int64)
    along = subtree[order]
    return np.array(
        [
            int(np.bincount(along[start : start + count]).argmax())
            for start, count in zip(starts.tolist(), rows.tolist(), strict=True)
        ],
        np.int64,
    )


def length_counts(tokens: npt.ArrayLike) -> Ints:
    """Return how many lengths lie in each bin of `LENGTH_STARTS`; the last has no end."""
    lengths = np.maximum(np.rint(np.asarray(tokens, np.float64)), 1.0)
    bins = np.searchsorted(LENGTH_STARTS, lengths, side="right") - 1
    counts: Ints = np.bincount(bins, minlength=len(LENGTH_STARTS))
    return counts
