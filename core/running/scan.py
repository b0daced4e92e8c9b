"""Which rows enter the engine next (paper §5.3).

The scanner decides all admissions and the engine decides nothing about order, so the same scanner
drives a simulated and a real engine. Every row of the schedule is admitted exactly once.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from blend.core.engines import Capacity, StepReport
from blend.core.running.dual_scan import DualScanner
from blend.core.running.in_flight import InFlight
from blend.core.schedule import Schedule


class Scanner(Protocol):
    """Says which rows to submit, from what the engine has reported."""

    @property
    def done(self) -> bool:
        """Whether every row has been admitted."""
        ...

    @property
    def pace(self) -> int | None:
        """The prompt tokens that the next step should compute at most; None for no limit."""
        ...

    def admit(self) -> Sequence[int]:
        """Return the rows to submit now, in this order; at least one when nothing is inside."""
        ...

    def withdraw(self, rows: Sequence[int]) -> None:
        """Take rows back that were admitted last and not submitted; they are not admitted again."""
        ...

    def observe(self, report: StepReport) -> None:
        """Take in what the engine has reported."""
        ...


class PassingScanner:
    """Passes everything on to another scanner; what stands around one changes a part of that."""

    def __init__(self, inner: Scanner):
        self._inner = inner

    @property
    def done(self) -> bool:
        """Whether every row has been admitted."""
        return self._inner.done

    @property
    def pace(self) -> int | None:
        """The prompt tokens that the next step should compute at most; None for no limit."""
        return self._inner.pace

    def admit(self) -> Sequence[int]:
        """Return the rows to submit now."""
        return self._inner.admit()

    def withdraw(self, rows: Sequence[int]) -> None:
        """Take rows back that were admitted last and not submitted."""
        self._inner.withdraw(rows)

    def observe(self, report: StepReport) -> None:
        """Take in what the engine has reported."""
        self._inner.observe(report)


class DealtScanner(Scanner, Protocol):
    """A scanner whose rows to come can be changed for others, and that may find some inside."""

    def deal(self, schedule: Schedule) -> None:
        """Put the rows of *schedule* in the place of those not admitted."""
        ...

    def carry(self, ages: Mapping[int, float]) -> None:
        """Count rows at the ends of the schedule that are inside already, by row their ages.

        An age: the tokens of each answer of a row, 0 before the first.
        """
        ...


def open_scanner(
    schedule: Schedule,
    *,
    prompt_tokens: npt.NDArray[np.integer],
    sequences: npt.NDArray[np.integer],
    capacity: Capacity,
) -> DealtScanner:
    """Return the scanner of the schedule's policy.

    ``prompt_tokens`` and ``sequences`` are indexed by row and cover every row of the schedule.
    """
    if schedule.blending is not None:
        from blend.core.running.blend_scan import BlendScanner  # numba is slow to import

        return BlendScanner(
            schedule, prompt_tokens=prompt_tokens, sequences=sequences, capacity=capacity
        )
    if schedule.policy == "paper":
        return DualScanner(
            schedule, prompt_tokens=prompt_tokens, sequences=sequences, capacity=capacity
        )
    return OrderScanner(schedule, sequences=sequences, capacity=capacity)


class OrderScanner:
    """Admits the rows in schedule order, as fast as the engine takes them."""

    pace = None

    def __init__(
        self, schedule: Schedule, *, sequences: npt.NDArray[np.integer], capacity: Capacity
    ):
        self._schedule = schedule
        self._sequences = sequences
        self._inside = InFlight(capacity)
        self._next = 0

    @property
    def done(self) -> bool:
        """Whether every row has been admitted."""
        return self._next == len(self._schedule)

    def admit(self) -> list[int]:
        """Return the rows that the engine has room for."""
        rows = []
        while not self.done:
            sequences, tokens = self._size()
            if not self._inside.room(sequences, tokens=tokens):
                break
            rows.append(self._enter())
        return rows

    def deal(self, schedule: Schedule) -> None:
        """Put the rows of *schedule* in the place of those not admitted."""
        self._schedule, self._next = schedule, 0

    def carry(self, ages: Mapping[int, float]) -> None:
        """Count rows at the beginning of the schedule that are inside already, however old."""
        while not self.done and int(self._schedule.order[self._next]) in ages:
            self._enter()

    def withdraw(self, rows: Sequence[int]) -> None:
        """Take rows back that were admitted last and not submitted."""
        for row in rows:
            self._inside.withdraw(row)

    def observe(self, report: StepReport) -> None:
        """Take in what the engine has reported."""
        self._inside.observe(report)

    def _size(self) -> tuple[int, int]:
        """Return the sequences of the next row, and its prompt tokens to compute."""
        row = self._schedule.order[self._next]
        return int(self._sequences[row]), int(self._schedule.uncached_tokens[self._next])

    def _enter(self) -> int:
        row, (sequences, tokens) = int(self._schedule.order[self._next]), self._size()
        self._inside.enter(row, sequences=sequences, tokens=tokens)
        self._next += 1
        return row
