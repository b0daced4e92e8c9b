import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blend.core.planning.lengths import (
    OBSERVED,
    PRIOR,
    SIBLING,
    SUBTREE,
    Observations,
    choose_sample,
    estimate,
    prior_tokens,
)
from blend.core.planning.tree import build_tree
from tests.prompt_sets import prompts_of, shared_prefixes, token_lists


def observed(n: int, tokens: dict[int, float], *, unfinished: tuple[int, ...] = ()) -> Observations:
    seen, finished = np.full(n, np.nan), np.zeros(n, dtype=bool)
    for row, count in tokens.items():
        seen[row], finished[row] = count, row not in unfinished
    return Observations(seen, finished)


def two_groups(rows_each: int, max_tokens=1000):
    groups = [row % 2 for row in range(2 * rows_each)]
    n = len(groups)
    return prompts_of(shared_prefixes([50] * n, [60] * n, groups), max_tokens=max_tokens)


def test_a_small_limit_is_the_length_and_a_large_one_only_bounds_it() -> None:
    prior = prior_tokens(np.array([1, 2, 8, 256, 1024, 16384], dtype=np.int32))

    assert prior[:3].tolist() == [1, 2, 8]
    assert (np.diff(prior) > 0).all()
    assert 200 < prior[4] < 300


def test_without_a_sample_the_limit_is_all_there_is() -> None:
    prompts = two_groups(3, max_tokens=2)

    lengths = estimate(build_tree(prompts), prompts)

    assert lengths.expected.tolist() == [2.0] * 6
    assert (lengths.source == PRIOR).all()


def test_rows_take_the_mean_of_their_subtree_and_a_bare_subtree_that_of_its_relatives() -> None:
    prompts = two_groups(20)
    # Only even rows, the first group, were sampled.
    lengths = estimate(build_tree(prompts), prompts, observed(40, {0: 90.0, 2: 110.0, 4: 100.0}))

    assert lengths.expected[6:].tolist() == pytest.approx([100.0] * 34)
    assert (lengths.source[6::2] == SUBTREE).all()
    assert (lengths.source[1::2] == SIBLING).all()
    assert lengths.source[0] == OBSERVED
    assert lengths.expected[0] == 90.0


def test_subtrees_that_differ_keep_their_own_means() -> None:
    prompts = two_groups(20)
    sample = {row: 10.0 if row % 2 else 500.0 for row in range(20)}

    lengths = estimate(build_tree(prompts), prompts, observed(40, sample))

    assert lengths.expected[20::2].min() > 450
    assert lengths.expected[21::2].max() < 40


def test_rows_with_another_limit_are_not_alike() -> None:
    prompts = two_groups(20, max_tokens=[4000 if row < 20 else 20 for row in range(40)])

    lengths = estimate(build_tree(prompts), prompts, observed(40, {0: 3000.0, 1: 3000.0}))

    assert lengths.expected[2:20].min() > 2500
    assert lengths.expected[20:].tolist() == prior_tokens(prompts.max_tokens)[20:].tolist()


def test_unfinished_answers_make_the_mean_longer() -> None:
    prompts = two_groups(20)
    tree = build_tree(prompts)
    sample = {0: 100.0, 2: 100.0, 4: 400.0}

    lengths = estimate(tree, prompts, observed(40, sample, unfinished=(4,)))

    assert lengths.expected[6] == pytest.approx(300.0)
    assert lengths.expected[4] == pytest.approx(400 + 300)
    assert lengths.expected.max() <= 1000


def test_a_sample_in_which_nothing_finished_is_at_least_as_long_as_its_oldest_answer() -> None:
    prompts = two_groups(20)

    lengths = estimate(
        build_tree(prompts), prompts, observed(40, {0: 70.0, 1: 9.0}, unfinished=(0, 1))
    )

    assert lengths.expected.min() >= 70.0


@given(token_lists, st.integers(1, 200), st.data())
def test_estimates_stay_between_one_and_the_limit(token_ids, limit: int, data) -> None:
    prompts = prompts_of(token_ids, max_tokens=limit)
    n = len(prompts)
    tokens = data.draw(st.lists(st.integers(0, limit) | st.none(), min_size=n, max_size=n))
    finished = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    seen = np.array([np.nan if count is None else count for count in tokens])

    lengths = estimate(build_tree(prompts), prompts, Observations(seen, finished))

    assert (lengths.expected >= 1.0).all()
    assert (lengths.expected <= max(limit, 1)).all()
    assert ((lengths.source == OBSERVED) == (~np.isnan(seen) & finished)).all()


def test_the_sample_holds_a_few_of_every_subtree_that_matters() -> None:
    groups = [0] * 3000 + [1] * 100
    limits = [64] * 3000 + [4096] * 100
    prompts = prompts_of(shared_prefixes([20] * 3100, [25] * 3100, groups), max_tokens=limits)
    tree = build_tree(prompts)

    sample = choose_sample(tree, prompts, seed=7)

    assert 8 <= (sample >= 3000).sum() <= 20
    assert 10 <= (sample < 3000).sum() <= 60
    assert sample.tolist() == choose_sample(tree, prompts, seed=7).tolist()
    assert sample.tolist() != choose_sample(tree, prompts, seed=8).tolist()


def test_rows_whose_length_is_known_are_never_sampled() -> None:
    prompts = two_groups(500, max_tokens=[2 if row % 2 else 300 for row in range(1000)])

    sample = choose_sample(build_tree(prompts), prompts, probability=1.0, seed=0)

    assert sample.tolist() == list(range(0, 1000, 2))


def test_a_small_job_is_not_all_sample() -> None:
    prompts = two_groups(20)

    assert 4 <= len(choose_sample(build_tree(prompts), prompts, seed=0)) <= 8


def test_an_empty_job_has_no_sample() -> None:
    prompts = prompts_of([])

    assert len(choose_sample(build_tree(prompts), prompts, seed=0)) == 0
