"""Ids remembered in flat memory."""

from hypothesis import given
from hypothesis import strategies as st

from blend.store.seen_ids import SeenIds


@given(st.lists(st.sampled_from(["a", "b", "", "a\0", "é", "A", "a "]), max_size=20))
def test_every_use_after_the_first_is_answered_with_the_first(custom_ids: list[str]) -> None:
    first: dict[str, tuple[str, int]] = {}
    with SeenIds() as seen:
        for line, custom_id in enumerate(custom_ids, start=1):
            answer = seen.add(custom_id, source=f"{line}.jsonl", line=line)

            assert answer == first.get(custom_id)
            first.setdefault(custom_id, (f"{line}.jsonl", line))
