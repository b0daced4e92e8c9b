"""What becomes of a request that got no answer: is it tried again, and after how long?

Five kinds of trouble. *unreachable*: nothing reached the server. *limited*: the server takes no
more requests for now. *unavailable*: the server, or a gateway before it, asks to come back later.
None is the request's doing, so they cost it time alone; but a server that was killed by a request
may be unavailable behind its gateway. *silent*: the request went in and nothing came out in time.
*broken*: something came out, but no whole answer. Both may be the request's doing, so these
attempts are counted.
"""

import math
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from random import Random
from typing import Literal

Trouble = Literal["unreachable", "limited", "unavailable", "silent", "broken"]

NEVER_IN: frozenset[Trouble] = frozenset({"unreachable", "limited"})
"""What befalls a request before the server has looked into it."""

_LIMITED = 429
_UNAVAILABLE = frozenset({502, 503})
_REQUEST_TIMEOUT = 408
# The model does not serve the endpoint, and will not.
_NOT_IMPLEMENTED = 501


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to bear with a server, in seconds.

    One attempt lasts ``attempt_s`` at most; a row is given up after ``attempts`` silent or broken
    ones, or ``row_s`` after it was first sent. The pause before the next attempt doubles from
    ``first_s`` to ``longest_s``. When for ``outage_s`` every request in flight has been turned
    away, the server is gone; when ``silent_rows`` in a row got nothing in time, it hangs. At the
    start it has ``start_s`` to appear.
    """

    attempts: int = 5
    attempt_s: float = 3600.0
    row_s: float = 7200.0
    first_s: float = 0.5
    longest_s: float = 60.0
    outage_s: float = 300.0
    silent_rows: int = 8
    start_s: float = 60.0


def trouble_of(status: int) -> Trouble | None:
    """Return the trouble that an HTTP status stands for; None when it is an answer for good."""
    if status == _LIMITED:
        return "limited"
    if status in _UNAVAILABLE:
        return "unavailable"
    if (status >= 500 and status != _NOT_IMPLEMENTED) or status == _REQUEST_TIMEOUT:
        return "broken"
    return None


def retry_after_s(header: str | None, *, now: float) -> float | None:
    """Return the pause that a Retry-After header asks for, seconds or a date; None without one."""
    if header is None:
        return None
    with suppress(ValueError):
        seconds = float(header)
        return max(seconds, 0.0) if math.isfinite(seconds) else None
    # Of a year or a zone with many digits, the reading overflows.
    with suppress(ValueError, OverflowError):
        date = parsedate_to_datetime(header)
        # A date without a zone is GMT: HTTP knows no other.
        moment = date if date.tzinfo else date.replace(tzinfo=UTC)
        return max(moment.timestamp() - now, 0.0)
    return None


class Attempts:
    """The attempts of one row, and when the next may be made. The same seed, the same pauses."""

    def __init__(self, patience: Patience, *, seed: str):
        self.failed = 0
        self._patience = patience
        self._random = Random(seed)
        self._broken = 0

    def fail(self, trouble: Trouble) -> None:
        """Count an attempt that has failed."""
        self.failed += 1
        self._broken += trouble in {"silent", "broken"}

    def spent(self, elapsed_s: float) -> bool:
        """Whether the row is to be given up, so long after it was first sent."""
        return self._broken >= self._patience.attempts or elapsed_s >= self._patience.row_s

    def pause_s(self, *, elapsed_s: float, asked_s: float | None) -> float:
        """Return the pause before the next attempt: what the server asked for, or a longer one.

        It ends with the row's time at the latest. Until then the row stays, so that a server which
        sends everybody away for hours is recognised before it has failed row after row.
        """
        pause = self._asked(asked_s) if asked_s else self._backoff()
        return max(min(pause, self._patience.row_s - elapsed_s), 0.0)

    def _asked(self, asked_s: float) -> float:
        # Those that were turned away together must not come back together.
        return asked_s + self._random.uniform(0.0, self._patience.first_s)

    def _backoff(self) -> float:
        doublings = min(self.failed - 1, 32)
        longest = min(self._patience.first_s * 2.0**doublings, self._patience.longest_s)
        return longest * self._random.uniform(0.5, 1.0)
