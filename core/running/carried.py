"""Rows that run already when a scanner begins: it counts them, and they are not submitted again.

A plan can be ready while its sample still runs. The schedule then begins with what is inside, at
the end where each row belongs, so that its scanner names those rows first; they pass as submitted.
The invariant: of the rows that a scanner names, all but the carried ones are returned, once each.

How old the answers of carried rows are, a scanner does not learn: it takes them for new.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from blend.core.engines import Capacity, StepReport, silence
from blend.core.running.scan import DealtScanner, PassingScanner, open_scanner
from blend.core.schedule import Schedule


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

    def __init__(self, inner: DealtScanner, carried: Carried):
        super().__init__(inner)
        self._dealt = inner
        self._carried = carried
        self._unnamed = set(carried.ages)
        self._ended: set[int] = set()

    @property
    def unnamed(self) -> frozenset[int]:
        """The rows inside that the scanner has still to name."""
        return frozenset(self._unnamed)

    def deal(self, schedule: Schedule) -> None:
        """Put the rows of *schedule*, with those unnamed, in the place of those not admitted."""
        self._dealt.deal(_beginning_with(schedule, self._unnamed, self._carried))

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


def open_carrying(
    schedule: Schedule,
    *,
    prompt_tokens: npt.NDArray[np.integer],
    sequences: npt.NDArray[np.integer],
    capacity: Capacity,
    carried: Carried | None,
) -> DealtScanner:
    """Return the scanner of the schedule's policy, which finds what is *carried* inside."""
    if carried:
        schedule = _beginning_with(schedule, carried.ages, carried)
    scanner = open_scanner(
        schedule, prompt_tokens=prompt_tokens, sequences=sequences, capacity=capacity
    )
    return CarryingScanner(scanner, carried) if carried else scanner


def _beginning_with(schedule: Schedule, rows: Iterable[int], carried: Carried) -> Schedule:
    inside = np.zeros(len(carried.sequences), np.bool_)
    inside[list(rows)] = True
    return schedule.beginning_with(inside)
