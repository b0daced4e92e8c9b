"""When enough answers of a sample have been seen to make a plan."""

import numpy as np

from blend.core.planning.tree import build_tree
from blend.core.planning.wanted import WantedAnswers
from tests.prompt_sets import prompts_of


def wanted_of(*, minimum: int) -> WantedAnswers:
    """Return what is wanted of two kinds of rows: 10 of the first are sampled, 3 of the other."""
    prompts = prompts_of(
        [[kind, row] for kind in (1, 2) for row in range(40)],
        max_tokens=np.repeat([64, 4_096], 40),
    )
    sampled = np.zeros(80, np.bool_)
    sampled[:10] = sampled[40:43] = True
    return WantedAnswers(build_tree(prompts), prompts, sampled, minimum=minimum)


def test_so_many_of_every_cohort_are_waited_for() -> None:
    wanted = wanted_of(minimum=3)

    for row in range(10):
        wanted.see(row)
    assert wanted  # nothing is known of the other kind
    for row in (40, 41):
        wanted.see(row)
    assert wanted
    wanted.see(42)
    assert not wanted


def test_of_a_cohort_with_fewer_all_are() -> None:
    wanted = wanted_of(minimum=8)

    for row in (*range(8), 40, 41):
        wanted.see(row)
    assert wanted
    wanted.see(42)
    assert not wanted


def test_one_answer_counts_once_and_one_out_of_the_sample_never() -> None:
    wanted = wanted_of(minimum=2)

    for row in (0, 0, 30, 41, 41, 60):
        wanted.see(row)
    assert wanted
    wanted.see(1)
    wanted.see(40)
    assert not wanted


def test_without_a_sample_nothing_is_wanted() -> None:
    prompts = prompts_of([[row] for row in range(4)], max_tokens=64)

    assert not WantedAnswers(build_tree(prompts), prompts, np.zeros(4, np.bool_), minimum=30)
