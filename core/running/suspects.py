"""Which rows may be what kills the engine, and how are they found out without harm to others?

A row is suspected when it was inside the engine at two deaths, and while others are suspected, at
one. Suspects wait until all other rows have run. Then they run in groups, with nothing else inside;
a group in which the engine dies again is halved, until a row dies alone, in an engine of its own.
The invariant: a row is convicted only after it was alone inside an engine that died, and after an
engine has answered another row since it came under suspicion, or when the job has no other row to
ask. So an engine that cannot run anything convicts nobody.

With k guilty rows of n there are about 2 + k·(1 + log2 n) deaths.
"""

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]

SUSPECTED_AFTER_DEATHS = 2


@dataclass(frozen=True, slots=True)
class Turn:
    """The rows to run next, a mask over all rows; ``apart`` when they are suspects."""

    rows: Mask
    apart: bool


class Suspects:
    """The account of the rows that were inside at a death.

    ``deaths``: how many each has seen; ``others_wait``: whether the job has rows to run that are
    not of this run.
    """

    def __init__(self, deaths: Mapping[int, int], *, others_wait: bool = False):
        self.deaths = dict(deaths)
        self._others_wait = others_wait
        self._groups: deque[tuple[int, ...]] = deque()
        self._accused: list[int] = []
        # An engine has answered a row since the newest suspicion.
        self._proof = False
        # Rows that have seen as many deaths were in one group, as far as can be known.
        for count in sorted({n for n in deaths.values() if n >= SUSPECTED_AFTER_DEATHS}):
            self._split([row for row in deaths if deaths[row] == count])

    def turn(self, unfinished: Mask) -> Turn:
        """Return what to run next of the *unfinished* rows: those above suspicion before others."""
        left = (tuple(row for row in group if unfinished[row]) for group in self._groups)
        self._groups = deque(group for group in left if group)
        others = unfinished.copy()
        others[[*self._accused, *(row for group in self._groups for row in group)]] = False
        if others.any() or not self._groups:
            return Turn(others, apart=False)
        rows = np.zeros_like(unfinished)
        rows[list(self._groups[0])] = True
        return Turn(rows, apart=True)

    def survived(self, turn: Turn) -> None:
        """Note that an engine has run all rows of *turn*."""
        if turn.apart:
            self._groups.popleft()

    def answered(self) -> list[int]:
        """Note that an engine has answered a row; return the rows that this convicts."""
        self._proof = True
        return self._convict()

    def died(self, turn: Turn, inside: Collection[int], unfinished: Mask) -> list[int]:
        """Note that an engine died with the rows *inside*; return the rows that this convicts.

        *unfinished*: the rows without a result at the moment of the death.
        """
        for row in inside:
            self.deaths[row] = self.deaths.get(row, 0) + 1
        suspects = inside
        if turn.apart:
            group = self._groups.popleft()
            # Those that only waited for their turn are no more suspected than before.
            waited = tuple(row for row in group if unfinished[row] and row not in inside)
            self._groups.extend([waited] if waited else [])
        else:
            enough = 1 if self._groups or self._accused else SUSPECTED_AFTER_DEATHS
            suspects = [row for row in inside if self.deaths[row] >= enough]
            self._proof = self._proof and not suspects
        if len(inside) == 1 and self.deaths[next(iter(inside))] >= SUSPECTED_AFTER_DEATHS:
            self._accused += inside
        else:
            self._split(suspects)
        alone = int(unfinished.sum()) == len(self._accused) and not self._others_wait
        return self._convict() if self._proof or alone else []

    def _split(self, rows: Collection[int]) -> None:
        """Queue two halves of *rows*, which together kill the engine, behind the other groups."""
        half = (len(rows) + 1) // 2
        parts = tuple(rows)[:half], tuple(rows)[half:]
        self._groups.extend(part for part in parts if part)

    def _convict(self) -> list[int]:
        convicted, self._accused = self._accused, []
        return convicted
