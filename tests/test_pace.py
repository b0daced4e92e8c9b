"""A pace that one process sets and another keeps."""

from pathlib import Path

import pytest

from blend.core.engines.vllm_pace import SharedPace


def test_what_one_side_sets_the_other_sees_at_once(tmp_path: Path) -> None:
    ours = SharedPace.create(tmp_path / "pace")
    theirs = SharedPace(tmp_path / "pace")
    seen = [theirs.prefill_tokens]
    for limit in (64, 1 << 40, None):
        ours.prefill_tokens = limit
        seen.append(theirs.prefill_tokens)

    assert seen == [None, 64, 1 << 40, None]


def test_a_pace_is_kept_only_when_somebody_says_so(tmp_path: Path) -> None:
    ours = SharedPace.create(tmp_path / "pace")
    before = ours.kept
    SharedPace(tmp_path / "pace").keep()

    assert (before, ours.kept) == (False, True)


@pytest.mark.parametrize("limit", [0, -5])
def test_a_pace_lets_at_least_one_token_through(limit: int, tmp_path: Path) -> None:
    pace = SharedPace.create(tmp_path / "pace")
    pace.prefill_tokens = limit

    assert pace.prefill_tokens == 1


def test_the_file_may_be_removed_while_the_pace_is_used(tmp_path: Path) -> None:
    pace = SharedPace.create(tmp_path / "pace")
    (tmp_path / "pace").unlink()
    pace.prefill_tokens = 7

    assert pace.prefill_tokens == 7
