"""A person can name failures by what `blend status` shows of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blend.core.causes import cause_of, meant, name_of

TOO_LONG = (400, "the prompt has 5003 tokens, the context 4096")
BOOM = (500, "boom")
BAD_GATEWAY = (502, "boom")
NUMBER = (400, "17")
GROUPS = [TOO_LONG, BOOM, BAD_GATEWAY, NUMBER]


def test_a_reason_is_a_status_a_cause_both_or_a_part() -> None:
    assert meant("500", GROUPS) == [BOOM]
    assert meant("400", GROUPS) == [TOO_LONG, NUMBER]
    assert meant("boom", GROUPS) == [BOOM, BAD_GATEWAY]
    assert meant("502: boom", GROUPS) == [BAD_GATEWAY]
    assert meant("the prompt has 7 tokens, the context 9", GROUPS) == [TOO_LONG]
    assert meant("the prompt has 50…", GROUPS) == [TOO_LONG]
    assert meant("", GROUPS) == []
    assert meant("quota", GROUPS) == []


@pytest.mark.parametrize("reason", ["4", "40", "4040", "x7: 9", "…", ""])
def test_a_number_alone_is_no_part_of_a_cause(reason: str) -> None:
    groups = [(404, "no model m1"), (500, "worker 7 died")]

    assert meant(reason, groups) == []


def test_a_whole_cause_is_not_a_part_of_another() -> None:
    longer = (500, "boom again")

    assert meant("boom", [*GROUPS, longer]) == [BOOM, BAD_GATEWAY]


STATUSES = st.sampled_from([400, 429, 500])
MESSAGES = st.sampled_from(["", "boom", "boom again", "no 5", "500", "429: boom", "a: b"])


@given(st.lists(st.tuples(STATUSES, MESSAGES), unique_by=lambda g: (g[0], cause_of(g[1]))))
def test_every_group_has_a_name_that_means_it(groups: list[tuple[int, str]]) -> None:
    for group in groups:
        assert group in meant(name_of(group, groups), groups)
