"""What replicas can have without knowing the lengths is counted step by step."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.paper.cells import Cell, engine_of
from benchmarks.replicas import last_end_s, queued
from benchmarks.unknown_lengths import Room, reads
from benchmarks.workloads import TABLE_2

DENSITY, SHARING = TABLE_2["trace 2"]
ENGINE = engine_of(Cell(system="blend", density=DENSITY, sharing=SHARING, n=100, seed=1))
answers = st.lists(st.tuples(st.integers(1, 9), st.integers(2, 30)), min_size=1, max_size=9)
rooms = st.lists(
    st.builds(
        Room,
        least_s=st.floats(0.0, 9.0),
        free_s=st.floats(0.0, 9.0),
        beside_s=st.floats(0.0, 9.0),
        part=st.sampled_from([0.0, 0.15, 1.0]),
    ),
    min_size=1,
    max_size=4,
)


def _queued(
    some: list[tuple[int, int]], *, replicas: int, at_a_time: int
) -> list[np.ndarray[tuple[int, ...], np.dtype[np.int64]]]:
    prompt, answer = (np.array(column) for column in zip(*some, strict=True))
    order = np.arange(len(some))
    return queued(prompt, answer, order, replicas=replicas, at_a_time=at_a_time, engine=ENGINE)


@given(answers, st.integers(1, 4), st.integers(1, 5))
def test_every_token_is_read_in_one_replica(
    some: list[tuple[int, int]], replicas: int, at_a_time: int
) -> None:
    read = _queued(some, replicas=replicas, at_a_time=at_a_time)
    alone = [reads(np.array([p]), np.array([a]), np.zeros(1, np.int64)).sum() for p, a in some]

    assert sum(int(one.sum()) for one in read) == sum(alone)
    assert max(len(one) for one in read) >= max(answer for _, answer in some) - 1


@given(answers)
def test_one_replica_that_begins_all_at_once_reads_as_counted_apart(
    some: list[tuple[int, int]],
) -> None:
    prompt, answer = (np.array(column) for column in zip(*some, strict=True))

    (read,) = _queued(some, replicas=1, at_a_time=len(some))

    assert read.tolist() == reads(prompt, answer, np.zeros_like(answer)).tolist()


def test_who_is_through_first_takes_the_next_of_the_queue() -> None:
    read = _queued([(1, 30), (1, 5), (1, 20)], replicas=2, at_a_time=1)

    assert [len(one) for one in read] == [29, 4 + 19]


@given(rooms, st.floats(0.0, 50.0))
def test_the_compute_is_spread_until_the_last_end_and_no_longer(
    some: list[Room], compute_s: float
) -> None:
    end_s = last_end_s(some, compute_s)
    slack = 1e-6

    assert end_s >= max(room.least_s for room in some) - slack
    assert sum(one.compute_s(end_s + slack) for one in some) >= compute_s - slack
    earlier = end_s - 1e-3
    if earlier > max(room.least_s for room in some):
        assert sum(one.compute_s(earlier) for one in some) <= compute_s


@given(rooms, st.floats(0.0, 40.0))
def test_what_steps_compute_within_a_time_takes_that_time(
    some: list[Room], compute_s: float
) -> None:
    room = some[0]
    seconds = room.seconds(compute_s)

    assert room.compute_s(seconds) >= compute_s - 1e-6
    assert room.seconds(room.compute_s(seconds)) == pytest.approx(seconds)
