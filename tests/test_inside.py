"""Rows inside stay side by side whichever of them leaves, and keep the bin of their age."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blend.core.kernels.inside import NOT_YET, age_bin, age_of, new_inside, take_out
from blend.core.kernels.survival import BINS, bin_of

# Compiling the kernels takes half a minute where that has not been done.
pytestmark = pytest.mark.slow


@given(st.lists(st.integers(0, 40_000), min_size=1, max_size=60))
@settings(max_examples=30, deadline=None)
def test_a_row_that_grows_is_in_the_bin_of_its_age(growth: list[int]) -> None:
    record = new_inside(1).records[:1]
    record["bin"], record["since"] = 0, 100
    for age in np.cumsum(growth).tolist():
        assert age_of(record[0], 100 + age) == age
        assert age_bin(record[0], float(age)) == record["bin"][0] == bin_of(float(age))


def test_every_age_has_its_bin_however_it_was_come_to() -> None:
    one = new_inside(1).records[0]
    one["bin"] = 0
    found = [age_bin(one, float(age)) for age in range(70_000)]

    assert found == [bin_of(float(age)) for age in range(70_000)]
    assert max(found) < BINS


@given(st.permutations(range(12)))
@settings(max_examples=30, deadline=None)
def test_the_rows_that_stay_keep_their_records(leaving: list[int]) -> None:
    inside = new_inside(12)
    inside.records["row"] = inside.place[:] = np.arange(12)
    inside.records["since"] = 10 * np.arange(12)
    for gone, row in enumerate(leaving):
        take_out(inside, row, 12 - gone)
        left = leaving[gone + 1 :]

        assert sorted(inside.records["row"][: len(left)].tolist()) == sorted(left)
        assert all(inside.records[inside.place[one]]["since"] == 10 * one for one in left)


def test_a_row_that_does_not_decode_yet_has_no_age() -> None:
    one = new_inside(1).records[0]
    one["since"] = NOT_YET

    assert age_of(one, 500) == 0.0
