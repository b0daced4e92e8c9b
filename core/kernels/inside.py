"""The rows inside the engine, in compiled form: one packed record each, side by side in no order.

Looking over thousands of rows costs what fetching them from memory costs. By row, each field would
lie somewhere else; so what a look needs of a row is put into one record when it enters, and records
stay dense.
"""

from typing import Any, NamedTuple

import numpy as np

from blend.core.kernels.compiled import compiled
from blend.core.kernels.survival import EDGE, bin_of

NOT_YET = -(1 << 62)
"""In the place of a step; what was inside before may have begun in a step below 0."""

ROW_INSIDE = np.dtype(
    [
        ("row", np.int32),
        ("label", np.int32),  # its class
        ("kind", np.int32),  # in the forecast
        ("copies", np.int32),  # its sequences
        ("bin", np.int32),  # of its age when last looked at
        ("memory_side", np.int32),
        ("prompt", np.float64),
        ("uncached", np.float64),  # prompt tokens that it computes
        ("known", np.float64),  # its length where that is certain, else 0
        ("going", np.float64),  # those of its sequences that are expected to go on
        ("since", np.int64),  # the step in which it began to decode, or NOT_YET
    ]
)


class Inside(NamedTuple):
    """The rows inside; the first so many ``records`` count."""

    records: Any
    place: Any  # by row: in `records`


def new_inside(rows: int) -> Inside:
    """Return the account of an empty engine, for so many rows in all."""
    return Inside(np.empty(rows, ROW_INSIDE), np.zeros(rows, np.int32))


@compiled
def take_out(inside: Inside, row: int, count: int) -> None:
    """Take the record of *row* out of the first *count*: the last takes its place."""
    at, last = inside.place[row], inside.records[count - 1]
    inside.place[last.row] = at
    inside.records[at] = last


@compiled
def decodes(one: Any) -> bool:
    """Tell whether a row, by its record, has begun to decode."""
    return bool(one.since != NOT_YET)


@compiled
def age_of(one: Any, step: int) -> float:
    """Return the tokens that a row, by its record, has decoded."""
    return float(step - one.since) if decodes(one) else 0.0


@compiled
def age_bin(one: Any, age: float) -> int:
    """Return the bin of a row's age, and keep it: most are in the bin they were in before."""
    # Ages only grow, and the logarithm is exact enough to tell all but the last token of a bin.
    if age > EDGE[one.bin + 1] - 0.001:
        one.bin = bin_of(age)
    return one.bin
