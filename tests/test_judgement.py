"""A run is judged by what it was expected to be: with answers that can be worked out by hand."""

import numpy as np
import pytest

from blend.cli.judged_run import lengths_in_words
from blend.core.planning.hardware import hardware_preset, model_preset
from blend.core.planning.judgement import (
    Against,
    AnsweredRows,
    SubtreeJudgement,
    judge,
    worst_of,
)

DEVICE = {"hardware": hardware_preset("a100-80g"), "model": model_preset("llama-3-8b")}
#          0
#      1       2
#    3   4
PARENTS = [0, 0, 0, 1, 1]


def rows(expected, output, subtree, *, sequences=None, cached=50) -> AnsweredRows:
    n = len(expected)
    return AnsweredRows(
        np.full(n, 100),
        np.full(n, cached),
        np.array(expected, float),
        np.array(output),
        np.ones(n, np.int32) if sequences is None else np.array(sequences),
        np.array(subtree, np.int32),
    )


def judged(answered: AnsweredRows, parents=PARENTS, seconds: Against | None = None):
    return judge(answered, parents, sharing=0.4, seconds=seconds, **DEVICE)


def test_a_plan_that_was_right_is_off_by_nothing() -> None:
    found = judged(rows([10, 20, 30], [10, 20, 30], [3, 4, 2]), seconds=Against(8.0, 8.0))

    assert found.factor == 1.0
    assert found.worst is None
    assert found.seconds is not None
    assert found.seconds.ratio == found.output_tokens.ratio == 1.0
    assert {one.misjudged_s for one in found.subtrees} == {0.0}


def test_tokens_sharing_and_lengths_are_those_of_the_answered_rows() -> None:
    found = judged(rows([10, 40], [20, 20], [3, 2]))

    assert found.rows == 2
    assert (found.output_tokens.predicted, found.output_tokens.actual) == (50, 40)
    assert found.sharing == Against(0.4, 0.5)
    assert found.factor == pytest.approx(2.0)


def test_a_subtree_counts_all_that_is_below_it() -> None:
    found = judged(rows([10, 10, 10], [11, 12, 13], [3, 4, 2]))

    assert [one.rows for one in found.subtrees] == [3, 2, 1, 1, 1]
    assert [one.output_tokens for one in found.subtrees] == pytest.approx([12, 11.5, 13, 11, 12])
    assert found.subtrees[0].misjudged_s == pytest.approx(
        sum(found.subtrees[one].misjudged_s for one in (2, 3, 4))
    )


@pytest.mark.parametrize(
    ("misjudged_s", "worst"),
    [
        ([9, 8, 1, 8, 0], 3),  # the deepest that has all of it
        ([9, 8, 1, 4, 4], 1),  # the one above where it is spread
        ([0, 5, -5, 5, 0], 3),
        ([1, 2, -9, 1, 1], 2),  # too little work is misjudged, too
        ([5, 4, 1, 8, -4], 3),
        ([0, 0, 0, 0, 0], None),
    ],
)
def test_the_worst_subtree_is_the_deepest_that_has_most_of_it(misjudged_s, worst) -> None:
    assert worst_of(misjudged_s, PARENTS) == worst


def test_a_job_without_subtrees_is_itself_the_worst() -> None:
    assert judged(rows([10], [90], [0]), parents=[0]).worst == 0


def test_the_sequences_of_a_request_are_judged_by_the_answer() -> None:
    one, four = (judged(rows([10.0 * n], [30 * n], [2], sequences=[n])).subtrees[2] for n in (1, 4))

    assert one.output_tokens == four.output_tokens == 30
    assert four.misjudged_s == pytest.approx(4 * one.misjudged_s)


def test_before_the_first_answer_there_is_nothing_to_judge() -> None:
    found = judged(rows([], [], []))

    assert (found.rows, found.factor, found.worst) == (0, 1.0, None)
    assert found.output_tokens.ratio is None


@pytest.mark.parametrize(
    ("expected", "mean", "misjudged_s", "said"),
    [
        (100.0, 130.0, 9.0, "130 tokens, 100 predicted"),
        (190.2, 189.8, 1.1, "190 tokens as predicted, but further apart"),
        (190.2, 189.8, -1.1, "190 tokens as predicted, but closer together"),
    ],
)
def test_a_subtree_is_said_to_be_misjudged_by_what_differs(
    expected: float, mean: float, misjudged_s: float, said: str
) -> None:
    assert lengths_in_words(SubtreeJudgement(5, expected, mean, misjudged_s)) == said
