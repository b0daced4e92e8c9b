"""Made-up jobs of which it is known what keeps their prompts from being shared."""

import numpy as np
import pytest

from blend.core.planning import prompt_lint
from blend.core.planning.lengths import Observations
from blend.core.planning.prompt_lint import WINDOW, PromptLint, lint_prompts
from blend.core.planning.tree import build_tree
from tests.prompt_sets import prompts_of

RNG = np.random.default_rng(7)


def fresh(count: int) -> list[int]:
    """Return tokens that stand nowhere else."""
    return RNG.integers(1000, 2**31, count).tolist()


SYSTEM, MANUAL = fresh(12), fresh(1998)


def linted(token_ids, *, max_tokens=16, **known) -> PromptLint:
    prompts = prompts_of(token_ids, max_tokens=max_tokens)
    return lint_prompts(prompts, build_tree(prompts), **known)


def test_a_varying_part_before_a_long_common_one_is_found_with_what_it_costs() -> None:
    rows = 50
    found = linted([[*SYSTEM, *fresh(5), *MANUAL, *fresh(20)] for _ in range(rows)])
    (late,) = found.late_sharing
    computed = 12 + rows * (5 + 1998 + 20)

    assert late.common_tokens == 12
    assert late.equal_tokens == 1998
    assert late.rows == rows - 1  # the first has to compute it
    assert late.saved_tokens == (rows - 1) * 1998
    assert late.saved_share == pytest.approx((rows - 1) * 1998 / computed)


def test_moved_to_the_end_there_is_nothing_left_to_say() -> None:
    found = linted([[*SYSTEM, *MANUAL, *fresh(25)] for _ in range(50)])

    assert found.late_sharing == ()


def test_rows_that_differ_from_their_first_token_are_told_so() -> None:
    (late,) = linted([[*fresh(3), *MANUAL] for _ in range(10)]).late_sharing

    assert (late.common_tokens, late.equal_tokens) == (0, 1998)


def test_equal_parts_need_not_stand_in_one_place_nor_in_one_piece() -> None:
    parts = MANUAL[:600], MANUAL[600:900]
    token_ids = [
        [*SYSTEM, *fresh(1 + row % 9), *parts[0], *fresh(3), *parts[1], *fresh(30)]
        for row in range(40)
    ]
    (late,) = linted(token_ids).late_sharing

    assert late.equal_tokens == 900


def test_each_of_many_documents_is_shared_by_its_own_rows() -> None:
    documents = [fresh(400) for _ in range(10)]
    token_ids = [[*SYSTEM, *fresh(8), *documents[row % 10]] for row in range(100)]
    (late,) = linted(token_ids).late_sharing

    assert late.common_tokens == 12
    assert late.saved_tokens == 90 * 400


def test_two_kinds_of_prompts_are_told_of_apart() -> None:
    other, text = fresh(30), fresh(300)
    token_ids = [
        *([*SYSTEM, *fresh(5), *MANUAL] for _ in range(30)),
        *([*other, *fresh(5), *text] for _ in range(30)),
    ]
    first, second = linted(token_ids).late_sharing

    assert (first.common_tokens, first.equal_tokens) == (12, 1998)
    assert (second.common_tokens, second.equal_tokens) == (30, 300)
    assert first.example_row < 30 <= second.example_row


@pytest.mark.parametrize(
    "token_ids",
    [
        [],
        [[1, 2, 3]],
        [[*fresh(100)] for _ in range(30)],  # nothing in common
        [[*SYSTEM, *fresh(100)] for _ in range(30)],
        [[*fresh(100), *MANUAL[: WINDOW - 1]] for _ in range(30)],  # shorter than a block
        [[*([5] * 200)], [*([5] * 300)]],  # repeats itself
        [[], [], [7]],
    ],
)
def test_prompts_that_share_what_they_can_are_left_in_peace(token_ids) -> None:
    assert linted(token_ids).late_sharing == ()


def test_a_sample_of_a_large_job_says_about_the_same(monkeypatch) -> None:
    token_ids = [[*SYSTEM, *fresh(5), *MANUAL[:200], *fresh(20)] for _ in range(2000)]
    (whole,) = linted(token_ids).late_sharing
    monkeypatch.setattr(prompt_lint, "SAMPLED_TOKENS", 40_000)
    (sampled,) = linted(token_ids, seed=3).late_sharing

    assert sampled.saved_share == pytest.approx(whole.saved_share, rel=0.05)
    assert sampled.rows == pytest.approx(whole.rows, rel=0.05)
    assert sampled.equal_tokens == whole.equal_tokens


def test_duplicates_are_the_rows_beyond_the_first() -> None:
    found = linted([[1, 2], [1, 2], [1, 2, 3], [1, 2], [4], [4], []])

    assert found.duplicates == 3


def test_prompts_near_the_context_are_counted() -> None:
    found = linted([fresh(n) for n in (10, 89, 90, 99)], context_tokens=100)

    assert (found.nearly_full, found.context_tokens) == (2, 100)


def observed(tokens, *, finished=True) -> Observations:
    return Observations(np.array(tokens, float), np.full(len(tokens), finished))


def test_a_limit_far_above_every_sampled_answer_never_binds() -> None:
    nothing = [np.nan] * 60
    found = linted(
        [fresh(5) for _ in range(120)],
        max_tokens=[4096] * 100 + [64] * 20,
        observations=observed([100.0] * 20 + [212.0] * 20 + nothing + [60.0] * 20),
    ).loose_limits

    assert found is not None
    assert (found.rows, found.least_limit) == (100, 4096)
    assert (found.longest_answer, found.sampled) == (212, 40)


@pytest.mark.parametrize(
    "observations",
    [
        observed([2000.0] * 40),
        observed([100.0] * 19 + [np.nan] * 21),  # too few to tell
        observed([100.0] * 40, finished=False),
    ],
)
def test_a_limit_that_may_bind_is_left_in_peace(observations: Observations) -> None:
    found = linted([fresh(5) for _ in range(40)], max_tokens=4096, observations=observations)

    assert found.loose_limits is None
