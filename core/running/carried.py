"""Rows that run already when a scanner begins: it counts them, and they are not submitted again.

A plan can be ready while its sample still runs. The schedule then begins with what is inside, at
the end where each row belongs, so that its scanner names those rows first; they pass as submitted.
The invariant: of the rows that a scanner names, all but the carried ones are returned, once each.

How old the answers of carried rows are, a scanner does not learn: it takes them for new.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from blend.core.engines import StepReport, silence
from blend.core.running.scan import PassingScanner, Scanner


@dataclass(frozen=True, slots=True)
class Carried:
    """What one run leaves inside the engine for the next.

    ``ages``: the output tokens that each row has, over its ``sequences`` (n,), by row of the job;
    ``last``: the engine's last report.
    """

    ages: Mapping[int, int]
    sequences: npt.NDArray[np.integer]
    last: StepReport | None


class CarryingScanner(PassingScanner):
    """Passes on what another scanner admits, but for the rows that are inside already."""

    def __init__(self, inner: Scanner, carried: Carried):
        super().__init__(inner)
        self._carried = carried
        self._unnamed = set(carried.ages)
        self._ended: set[int] = set()

    @property
    def unnamed(self) -> int:
        """How many of those inside the scanner has not come to yet."""
        return len(self._unnamed)

    def admit(self) -> Sequence[int]:
        """Return the rows to submit now, once those inside have been counted as far as they fit."""
        rows: list[int] = []
        while named := self._inner.admit():
            inside = self._unnamed.intersection(named)
            rows += [row for row in named if row not in inside]
            if not inside:
                break
            self._count(inside)
        return rows

    def observe(self, report: StepReport) -> None:
        """Take in what the engine has reported."""
        self._ended.update(one.row for one in report.completions if one.row in self._unnamed)
        super().observe(report)

    def _count(self, inside: set[int]) -> None:
        """Let the scanner count rows that it has named; those that have ended hold nothing."""
        self._unnamed -= inside
        if ended := sorted(inside & self._ended):
            self._inner.withdraw(ended)
        ages, sequences = self._carried.ages, self._carried.sequences
        prefilled = sum(int(sequences[row]) for row in inside - self._ended if ages[row])
        # Their prompts were computed before, which no report will say again.
        told = replace(silence(self._carried.last), silent=False, prefilled=prefilled)
        self._inner.observe(told)
