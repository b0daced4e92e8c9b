"""What happens when the engine dies: the rows without a result run again, on a fresh engine.

The engine's stay on a job is a life. Lives follow each other until all rows have results or one
is stopped on purpose; suspects among the rows (`suspects`) get lives of their own. The invariant:
an engine is started again at most *max_rebuilds* times in a row without any new result, not
counting the deaths that narrow down which row is to blame: there, fewer rows are inside each time.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from blend.core.engines import EngineDiedError, Lost
from blend.core.running.suspects import Mask, Suspects, Turn


@dataclass(frozen=True, slots=True)
class Life:
    """What came of one engine's stay.

    ``answered``: how many rows got a result; ``stopped``: whether it ended on purpose before all
    rows had one; ``death``: why the engine died, with the rows that were ``inside``. ``losses``:
    its replicas that died on the way, while others went on.
    """

    answered: int
    stopped: bool = False
    death: EngineDiedError | None = None
    inside: Sequence[int] = ()
    losses: Sequence[Lost] = ()


class Lives(Protocol):
    """What the supervisor asks of whoever holds the engine and the job."""

    def unfinished(self) -> Mask:
        """Return which rows of the run have no result, by row."""
        ...

    def live(self, rows: Mask) -> Life:
        """Run *rows* until they have results, the engine dies, or a stop."""
        ...

    def blame(self, rows: Sequence[int]) -> None:
        """Keep, also for later runs, that the engine died with *rows* inside."""
        ...

    def fail(self, row: int, message: str) -> None:
        """Record *row* as failed."""
        ...

    def renew(self, reason: str) -> None:
        """Put a fresh engine in the place of the present one."""
        ...


def supervise(lives: Lives, suspects: Suspects, *, max_rebuilds: int) -> None:
    """Run all rows, life after life.

    Raises EngineDiedError, with the reasons grouped, when the engine died too often; what has a
    result by then keeps it.
    """
    _Supervisor(lives, suspects, max_rebuilds).run()


class _Supervisor:
    def __init__(self, lives: Lives, suspects: Suspects, max_rebuilds: int):
        self._lives = lives
        self._suspects = suspects
        self._patience = _Patience(max_rebuilds)
        self._deaths: list[EngineDiedError] = []
        self._reasons: dict[int, str] = {}
        self._used = False

    def run(self) -> None:
        while (turn := self._suspects.turn(self._lives.unfinished())).rows.any():
            if turn.apart and self._used and turn.rows.sum() == 1:
                # What others may have left in an engine must not be one row's fault.
                self._renew("one request runs alone")
            self._used = True
            life = self._lives.live(turn.rows)
            if life.answered:
                self._patience.restore()
                self._fail(self._suspects.answered())
            if life.stopped:
                self._blame(life)
                return
            if life.death is None and not life.losses:
                self._suspects.survived(turn)
            else:
                self._replace(turn, life)

    def _replace(self, turn: Turn, life: Life) -> None:
        """Draw the conclusions from deaths, and start a fresh engine while that promises much."""
        groups = self._blame(life)
        everyone = list(dict.fromkeys(row for rows in groups for row in rows))
        self._patience.spend(everyone, apart=turn.apart)
        # Of a group that ran apart it is not known in which of several replicas who did what.
        for inside in [everyone] if turn.apart else groups:
            if convicted := self._suspects.died(turn, inside, self._lives.unfinished()):
                self._patience.restore()
                self._fail(convicted)
        if self._patience.spent:
            raise _given_up(self._deaths)
        if life.death is not None:
            self._renew(life.death.reason)

    def _blame(self, life: Life) -> list[list[int]]:
        """Keep who was inside at each death of a life, but for rows that another has run since."""
        unfinished = self._lives.unfinished()
        deaths: list[tuple[EngineDiedError, Sequence[int]]] = [
            (loss.death, loss.rows) for loss in life.losses
        ]
        if life.death is not None:
            deaths.append((life.death, life.inside))
        groups = []
        for death, rows in deaths:
            inside = [row for row in rows if unfinished[row] and not death.blameless]
            self._deaths.append(death)
            self._reasons |= dict.fromkeys(inside, death.reason)
            self._lives.blame(inside)
            groups.append(inside)
        return groups

    def _renew(self, reason: str) -> None:
        self._lives.renew(reason)
        self._used = False

    def _fail(self, rows: Sequence[int]) -> None:
        for row in rows:
            times, reason = self._suspects.deaths[row], self._reasons[row]
            self._lives.fail(
                row, f"the engine died {times} times running this request, at last alone: {reason}"
            )


class _Patience:
    """How many more deaths to bear with: those that narrow down who is to blame cost nothing."""

    def __init__(self, max_rebuilds: int):
        self._most = max_rebuilds
        self.restore()

    def restore(self) -> None:
        """Note a new result."""
        self._fruitless = 0
        self._fewest_inside: float = math.inf

    def spend(self, inside: Sequence[int], *, apart: bool) -> None:
        """Note a death."""
        narrower = apart and 0 < len(inside) < self._fewest_inside
        self._fruitless += not narrower
        if apart:
            self._fewest_inside = min(self._fewest_inside, len(inside))

    @property
    def spent(self) -> bool:
        """Whether to give up; without rebuilds, at any death."""
        return self._fruitless > self._most or not self._most


def _given_up(deaths: Sequence[EngineDiedError]) -> EngineDiedError:
    """Return the last of *deaths*, saying how often the engine died and of what."""
    last = deaths[-1]
    if len(deaths) == 1:
        return last
    reasons = Counter(death.reason for death in deaths)
    listed = "".join(f"\n{count} x {reason}" for reason, count in reasons.most_common())
    return EngineDiedError(f"the engine died {len(deaths)} times:{listed}", log=last.log)
