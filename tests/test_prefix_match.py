"""SGLang's order: file order in a long queue, the longest match first in a short one."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blend.core.planning import prefix_match
from blend.core.planning.prefix_match import sglang_order
from blend.core.planning.tree import build_tree
from tests.prompt_sets import prompts_of, token_lists


def shared(one: Sequence[int], other: Sequence[int]) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def by_hand(token_ids: Sequence[Sequence[int]], matched: int) -> list[int]:
    """Take row by row, looking at everything that was taken before."""
    waiting, taken = list(range(len(token_ids))), []
    while waiting:
        row = waiting[0]
        if len(waiting) <= matched:
            row = max(
                waiting,
                key=lambda r: max((shared(token_ids[r], token_ids[t]) for t in taken), default=0),
            )
        waiting.remove(row)
        taken.append(row)
    return taken


@given(token_lists, st.integers(1, 15))
def test_it_is_the_order_that_taking_row_by_row_gives(token_ids, matched: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prefix_match, "MATCHED_ROWS", matched)
        order = sglang_order(build_tree(prompts_of(token_ids)))

    assert order.tolist() == by_hand(token_ids, matched)


def test_a_long_queue_is_taken_in_file_order() -> None:
    prompts = prompts_of([[row % 9] * (1 + row % 9) + [100 + row] for row in range(500)])
    order = sglang_order(build_tree(prompts)).tolist()

    assert order[: 500 - 128] == list(range(500 - 128))
    groups = [row % 9 for row in order[500 - 128 :]]
    assert groups == sorted(groups, reverse=True)
