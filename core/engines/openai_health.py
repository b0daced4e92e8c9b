"""Is the server still there? Judged by what becomes of the requests in flight.

A row that is turned away or gets no answer may be at fault itself; the server is lost when none in
flight fares better, for long enough.
"""

from dataclasses import dataclass

from blend.core.engines.openai_retry import NEVER_IN, Patience, Trouble
from blend.core.engines.openai_wire import Response

# How long an attempt may be under way before it counts as one that the server has taken on.
_TAKEN_ON_S = 30.0


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed; ``asked_s`` is the pause that the server asked for."""

    trouble: Trouble
    reason: str
    response: Response | None = None
    asked_s: float | None = None


@dataclass(slots=True)
class _Row:
    """``sent`` is when its present attempt was sent, None in the pauses between.

    ``been_in``: whether any attempt may have reached what computes the answers.
    """

    sent: float | None
    turned_away: bool = False
    been_in: bool = False


class Health:
    """The account of the rows in flight. Times are seconds on the caller's clock."""

    def __init__(self, patience: Patience):
        self._patience = patience
        self._rows: dict[int, _Row] = {}
        self._refusing_since: float | None = None
        self._silent_rows: set[int] = set()

    def send(self, row: int, *, now: float) -> None:
        """Note that an attempt for *row* is sent."""
        self._rows.setdefault(row, _Row(now)).sent = now

    def leave(self, row: int) -> None:
        """Note that *row* is no longer in flight."""
        self._rows.pop(row, None)

    def hear(self, row: int) -> None:
        """Note that the server has taken on *row*: it is there."""
        self._rows[row].turned_away = False
        self._refusing_since = None
        self._silent_rows.clear()

    @property
    def blameless(self) -> bool:
        """Whether no row in flight can be what the server was lost by: it was gone before."""
        return not any(row.been_in for row in self._rows.values())

    def fail(self, row: int, failure: Failure, *, now: float, pause_s: float) -> str | None:
        """Note a failed attempt and the pause after it; return why the server is lost, if it is."""
        self._rows[row].sent = None
        self._rows[row].been_in |= failure.trouble not in NEVER_IN
        match failure.trouble:
            case "broken":
                self.hear(row)
                return None
            case "silent":
                return self._silence(row, failure)
        return self._refusal(row, failure, now=now, pause_s=pause_s)

    def _silence(self, row: int, failure: Failure) -> str | None:
        self._silent_rows.add(row)
        if len(self._silent_rows) < self._patience.silent_rows:
            return None
        return (
            f"takes requests and answers none: {failure.reason} "
            f"for {len(self._silent_rows)} rows in a row"
        )

    def _refusal(self, row: int, failure: Failure, *, now: float, pause_s: float) -> str | None:
        self._rows[row].turned_away = True
        if self._refusing_since is None:
            self._refusing_since = now
        # The pause counts: nothing changes for this row before it is over.
        lasts_s = now + pause_s - self._refusing_since
        if lasts_s < self._patience.outage_s or self._taken_on(now):
            return None
        asked = f", come back in {failure.asked_s:,.0f} s" if failure.asked_s else ""
        return (
            f"has turned every request away for {now - self._refusing_since:.0f} s: "
            f"{failure.reason}{asked}"
        )

    def _taken_on(self, now: float) -> bool:
        """Whether the server may be working on any row."""
        return any(
            not row.turned_away or (row.sent is not None and now - row.sent > _TAKEN_ON_S)
            for row in self._rows.values()
        )
