"""A plan and its schedule come back as they were saved."""

import sqlite3
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blend.core.schedule import POLICIES, Policy, Schedule
from blend.store.job import Job, PlanRecord
from tests.filled_job import filled_job
from tests.small_jobs import blending, request

ROWS = 5


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    def column(elements: st.SearchStrategy[float], dtype: str) -> npt.NDArray[Any]:
        return np.array(draw(st.lists(elements, min_size=ROWS, max_size=ROWS)), dtype)

    positive = st.floats(0, allow_infinity=False, allow_nan=False)
    return Schedule(
        draw(st.sampled_from(POLICIES)),
        np.array(draw(st.permutations(range(ROWS))), np.int64),
        column(st.sampled_from([0, 1]), "i1"),
        column(positive, "f8"),
        column(st.integers(0, 2**40), "i8"),
        column(st.floats(0, allow_nan=False), "f8"),
        draw(positive),
    )


def assert_equal(found: Schedule | None, saved: Schedule) -> None:
    assert found is not None
    for name in ("order", "side", "expected_tokens", "uncached_tokens", "density"):
        column, before = getattr(found, name), getattr(saved, name)
        assert column.dtype == before.dtype
        assert column.tolist() == before.tolist()
    assert (found.policy, found.root_density) == (saved.policy, saved.root_density)


def schedule(order: list[int], *, policy: Policy = "paper") -> Schedule:
    n = len(order)
    return Schedule(
        policy,
        np.array(order, np.int64),
        np.zeros(n, np.int8),
        np.full(n, 3.5),
        np.arange(n, dtype=np.int64),
        np.full(n, 0.25),
        1.5,
    )


@settings(max_examples=25, deadline=None)
@given(saved=schedules())
def test_a_schedule_comes_back(tmp_path_factory: pytest.TempPathFactory, saved: Schedule) -> None:
    with filled_job(tmp_path_factory.mktemp("job") / "j.db", rows=ROWS) as job:
        job.save_plan(PlanRecord(saved.policy), saved)

        assert_equal(job.schedule(), saved)


def test_what_the_scanner_knows_comes_back_until_another_plan_is_made(tmp_path: Path) -> None:
    requests = [request(row, [1, 2, 3]) for row in range(3)]
    known = blending(requests)
    with filled_job(tmp_path / "j.db", rows=3) as job:
        job.save_plan(
            PlanRecord("blend"), replace(schedule([2, 0, 1], policy="blend"), blending=known)
        )
        found = job.schedule().blending
        job.save_plan(PlanRecord("paper"), schedule([2, 0, 1]))

        assert job.schedule().blending is None
    for field in fields(known.classes):
        assert np.array_equal(
            getattr(found.classes, field.name), getattr(known.classes, field.name)
        )
    assert replace(found, classes=known.classes) == known


def test_a_plan_comes_back_with_its_sample(tmp_path: Path) -> None:
    record = PlanRecord(
        "paper",
        settings={"seed": 7, "alpha": np.float64(0.15)},
        digests={"prompts": "abc"},
        predictions={"seconds": 1.5, "by_side": [1, 2]},
        outline=[{"rows": 3, "children": [{"rows": 2}]}],
        sample_rows=np.array([0, 2]),
        sample_tokens=np.array([9.0, 4.5]),
        sample_finished=np.array([True, False]),
        length_source=np.array([3, 2, 1], np.int8),
    )
    with filled_job(tmp_path / "j.db", rows=3) as job:
        number = job.save_plan(record, schedule([2, 0, 1]))
        found = job.plan()

        assert found is not None
        assert (found.id, found.policy) == (number, "paper")
        assert found.settings == {"seed": 7, "alpha": 0.15}
        assert (found.digests, found.predictions) == (record.digests, record.predictions)
        assert found.outline == record.outline
        assert found.sample_rows.tolist() == [0, 2]
        assert found.sample_tokens.tolist() == [9.0, 4.5]
        assert found.sample_finished.tolist() == [True, False]
        assert found.created > 0
        assert job.place(2) == (0, 0, 3.5, 0, 0.25, 1)
        assert job.place(0) == (1, 0, 3.5, 1, 0.25, 3)


def test_what_is_expected_of_each_row_is_that_of_the_latest_plan(tmp_path: Path) -> None:
    lengths = np.array([1 / 3, 2.0**53, 5e-324])
    with filled_job(tmp_path / "j.db", rows=4) as job:
        job.save_plan(PlanRecord("dfs"), schedule([0, 1, 2, 3], policy="dfs"))
        job.save_plan(PlanRecord("paper"), replace(schedule([3, 0, 1]), expected_tokens=lengths))
        found = job.expected_tokens()

        assert found.tolist()[:2] == lengths.tolist()[1:]
        assert np.isnan(found[2])
        assert found[3] == lengths[0]


def test_a_plan_from_before_its_columns_were_packed_says_what_it_expects(tmp_path: Path) -> None:
    with filled_job(tmp_path / "j.db", rows=3) as job:
        job.save_plan(PlanRecord("paper"), schedule([2, 0]))
        with closing(sqlite3.connect(job.path)) as older, older:
            older.execute("DELETE FROM blobs")
        found = job.expected_tokens()

        assert found[[0, 2]].tolist() == [3.5, 3.5]
        assert np.isnan(found[1])


def test_the_latest_plan_counts(tmp_path: Path) -> None:
    with filled_job(tmp_path / "j.db", rows=3) as job:
        before = (job.plan(), job.schedule(), job.place(0))
        job.save_plan(PlanRecord("paper"), schedule([0, 1, 2]))
        second = schedule([2, 1, 0], policy="dfs")
        job.save_plan(PlanRecord("dfs"), second)
        found = job.plan()

        assert before == (None, None, None)
        assert found is not None
        assert found.policy == "dfs"
        assert_equal(job.schedule(), second)


@pytest.mark.parametrize("order", [[0, 0, 1], [0, 1, 3]])
def test_an_order_that_is_no_permutation_is_not_saved(tmp_path: Path, order: list[int]) -> None:
    with filled_job(tmp_path / "j.db", rows=3) as job:
        job.save_plan(PlanRecord("paper"), schedule([0, 1, 2]))
        with pytest.raises(sqlite3.IntegrityError):
            job.save_plan(PlanRecord("dfs"), schedule(order, policy="dfs"))
        kept = job.plan()

        assert kept is not None
        assert kept.policy == "paper"
        assert_equal(job.schedule(), schedule([0, 1, 2]))


def test_a_job_without_rows_has_an_empty_plan(tmp_path: Path) -> None:
    with Job.open(tmp_path / "j.db", create=True) as job:
        job.save_plan(PlanRecord("paper"), schedule([]))
        found = job.schedule()

        assert found is not None
        assert len(found) == len(job.prompts()) == len(job.pending()) == 0
