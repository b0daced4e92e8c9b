"""What can be had without knowing the lengths is counted step by step, and blend comes near it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.paper.cells import Cell, measure
from benchmarks.unknown_lengths import LONG_TOKENS, begun_in_turns, reads
from benchmarks.workloads import TABLE_2, table_2

answers = st.lists(
    st.tuples(st.integers(1, 9), st.integers(2, 9), st.integers(0, 9)), min_size=1, max_size=6
)


@given(answers)
def test_reads_are_those_of_answers_taken_one_by_one(some: list[tuple[int, int, int]]) -> None:
    prompt, answer, begun = (np.array(column) for column in zip(*some, strict=True))
    steps = [0] * (int((begun + answer).max()) - 1)
    for tokens, length, first in some:
        # The first token comes with the prefill, and the last is never read.
        for one in range(1, length):
            steps[first + one - 1] += tokens + one

    assert reads(prompt, answer, begun).tolist() == steps


@given(st.lists(st.integers(1, 50), min_size=1, max_size=12), st.integers(1, 5), st.integers(0, 99))
def test_no_more_answers_run_than_begin_at_a_time(
    lengths: list[int], at_a_time: int, seed: int
) -> None:
    answer = np.array(lengths)
    begun = begun_in_turns(answer, at_a_time, np.random.default_rng(seed))
    running = [((begun <= step) & (step < begun + answer)).sum() for step in range(sum(lengths))]

    assert max(running) == min(at_a_time, len(lengths))


@pytest.mark.slow
def test_a_small_job_begins_all_of_its_long_answers_at_once() -> None:
    """Where the cache could hold them all: one that waits for room would end after all others."""
    density, sharing = TABLE_2["trace 4"]
    cell = Cell(system="blend", density=density, sharing=sharing, n=40_000, seed=33)
    workload = table_2("trace 4", n=cell.n, seed=cell.seed)
    longest = int(workload.output_tokens[workload.max_tokens > LONG_TOKENS].max())

    assert measure(cell).steps < 1.1 * longest
