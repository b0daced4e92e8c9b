"""What the classes of answer lengths make of answers that were cut off before their end."""

import numpy as np
import pytest

from blend.core.planning.classes import LengthClasses, find_classes
from blend.core.planning.lengths import Observations
from blend.core.planning.tree import build_tree
from tests.prompt_sets import prompts_of

MEDIAN, SPREAD = 2_000.0, 0.8


def seen_until(bound_tokens: float, *, rows: int = 400) -> LengthClasses:
    """Return the class of lognormal answers that were all cut off at a bound, but for the short."""
    lengths = np.random.default_rng(5).lognormal(np.log(MEDIAN), SPREAD, rows)
    prompts = prompts_of([[row] for row in range(rows)], max_tokens=32_768)
    observed = Observations(np.minimum(lengths, bound_tokens), lengths <= bound_tokens)
    return find_classes(build_tree(prompts), prompts.max_tokens, observed)


@pytest.mark.parametrize("bound_tokens", [700.0, 1_500.0, 4_000.0])
def test_answers_cut_off_are_not_taken_to_be_like_the_short_ones_that_ended(bound_tokens) -> None:
    classes = seen_until(bound_tokens)

    assert len(classes) == 1
    assert 0 < len(classes.ages) < 400
    assert np.exp(classes.centre[0]) == pytest.approx(MEDIAN, rel=0.2)
    assert classes.spread[0] == pytest.approx(SPREAD, abs=0.15)


def test_where_nothing_was_cut_off_the_sample_speaks_for_itself() -> None:
    classes = seen_until(np.inf)

    assert not len(classes.ages)
    assert classes.centre[0] == pytest.approx(np.log(classes.lengths).mean())


def test_one_short_answer_among_many_that_go_on_does_not_make_them_short() -> None:
    prompts = prompts_of([[row] for row in range(300)], max_tokens=131_072)
    tokens, finished = np.full(300, np.nan), np.zeros(300, np.bool_)
    tokens[:10], finished[0] = 280.0, True

    classes = find_classes(build_tree(prompts), prompts.max_tokens, Observations(tokens, finished))

    assert np.exp(classes.centre[0]) > 1_500
    assert classes.spread[0] > 1.0
