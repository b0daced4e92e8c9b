"""When a request is tried again: pure arithmetic, no server."""

import pytest

from blend.core.engines.openai_retry import Attempts, Patience, Trouble, retry_after_s, trouble_of

PATIENCE = Patience(attempts=3, row_s=100.0, first_s=1.0, longest_s=8.0)


def pauses(*, count: int, seed: str = "0/0") -> list[float]:
    attempts = Attempts(PATIENCE, seed=seed)
    found = []
    for _ in range(count):
        attempts.fail("unavailable")
        found.append(attempts.pause_s(elapsed_s=0.0, asked_s=None))
    return found


@pytest.mark.parametrize(
    ("status", "trouble"),
    [
        (200, None),
        (400, None),
        (404, None),
        (422, None),
        (501, None),
        (429, "limited"),
        (503, "unavailable"),
        (502, "unavailable"),
        (500, "broken"),
        (504, "broken"),
        (408, "broken"),
    ],
)
def test_each_status_has_its_class(status: int, trouble: str | None) -> None:
    assert trouble_of(status) == trouble


def test_pauses_double_up_to_the_longest_and_are_jittered() -> None:
    for pause, longest in zip(pauses(count=6), [1, 2, 4, 8, 8, 8], strict=True):
        assert longest / 2 <= pause <= longest


def test_the_same_seed_gives_the_same_pauses_and_another_row_others() -> None:
    assert pauses(count=5) == pauses(count=5)
    assert pauses(count=5) != pauses(count=5, seed="0/1")


@pytest.mark.parametrize(
    ("trouble", "spent"), [("broken", 3), ("silent", 3), ("unavailable", None), ("limited", None)]
)
def test_attempts_that_reached_the_server_are_counted_and_being_turned_away_is_not(
    trouble: Trouble, spent: int | None
) -> None:
    attempts = Attempts(PATIENCE, seed="0/0")
    failed = 0
    while failed < 5000 and not attempts.spent(elapsed_s=0.0):
        attempts.fail(trouble)
        failed += 1
        assert attempts.pause_s(elapsed_s=0.0, asked_s=None) <= PATIENCE.longest_s

    assert failed == (spent or 5000)


def test_a_row_is_given_up_when_its_time_is_over_and_no_pause_lasts_longer() -> None:
    attempts = Attempts(PATIENCE, seed="0/0")
    attempts.fail("unavailable")

    assert not attempts.spent(elapsed_s=99.0)
    assert attempts.spent(elapsed_s=100.0)
    assert attempts.pause_s(elapsed_s=99.75, asked_s=None) == 0.25
    assert attempts.pause_s(elapsed_s=90.0, asked_s=7200.0) == 10.0
    assert attempts.pause_s(elapsed_s=101.0, asked_s=None) == 0.0


def test_the_pause_that_the_server_asks_for_is_kept() -> None:
    for row in range(20):
        attempts = Attempts(PATIENCE, seed=f"0/{row}")
        attempts.fail("unavailable")

        assert 30.0 <= attempts.pause_s(elapsed_s=0.0, asked_s=30.0) <= 31.0


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("7", 7.0),
        ("-3", 0.0),
        ("1.5", 1.5),
        ("9" * 400, None),
        ("nan", None),
        ("Sun, 06 Nov 99999999999999999999 08:49:37 GMT", None),
        ("Sun, 06 Nov 1994 08:49:37 +99999999999999999999", None),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 37.0),
        ("Sun, 06 Nov 1994 08:49:37 -0000", 37.0),
        ("Sun, 06 Nov 1994 08:40:00 GMT", 0.0),
        ("soon", None),
        ("", None),
        ("1e999", None),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date(
    header: str | None, seconds: float | None
) -> None:
    now = 784111740.0  # 08:49:00

    assert retry_after_s(header, now=now) == seconds
