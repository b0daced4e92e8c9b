"""The end of a run at a set time: what would not be finished by then is not begun.

A row takes about as many steps as it has expected output tokens and parts of its prompt, and a step
as long as the shortest so far that computed no prompt. Lengths are uncertain, and a row that is
begun for nothing costs less than one that is left out for nothing: so a row is passed over when
even a quarter of its steps would not fit. It has not run, and is left for another run.
"""

from collections.abc import Callable, Sequence

import numpy as np

from blend.core.engines import Capacity, StepReport
from blend.core.planning.tree import Floats
from blend.core.running.scan import PassingScanner, Scanner
from blend.core.schedule import Schedule

NEEDED_SHARE = 0.25
"""Of the steps expected of a row, those that must fit for it to be begun."""


class TimeLimit:
    """How much of *seconds* is left, from now on by *clock*, or in the engine's own time.

    ``observe`` is to be told every report: it is what the engine's own time is known by.
    """

    def __init__(self, seconds: float, *, clock: Callable[[], float] | None = None):
        self._seconds = seconds
        self._clock = clock
        self._begun_s = clock() if clock else 0.0
        self._engine_s = 0.0
        self._step_s: float | None = None

    @property
    def left_s(self) -> float:
        """The seconds left; negative when the time is over."""
        now_s = self._clock() if self._clock else self._engine_s
        return self._seconds - (now_s - self._begun_s)

    @property
    def over(self) -> bool:
        """Whether there is no time left."""
        return self.left_s <= 0

    def fits(self, steps: float) -> bool:
        """Tell whether a row of so many expected steps should be begun."""
        return NEEDED_SHARE * steps * (self._step_s or 0.0) < self.left_s

    def observe(self, report: StepReport) -> None:
        """Take in how long the last steps took."""
        self._engine_s += report.seconds
        # A step that computes prompts takes many times as long as those that a row mostly needs.
        if report.steps and not report.prefill_tokens:
            step_s = report.seconds / report.steps
            self._step_s = step_s if self._step_s is None else min(step_s, self._step_s)


class TimedScanner(PassingScanner):
    """Passes on what another scanner admits, but for rows that would not end in time.

    ``passed_over``: whether there were any.
    """

    def __init__(self, inner: Scanner, limit: TimeLimit, schedule: Schedule, *, capacity: Capacity):
        super().__init__(inner)
        self._limit = limit
        prefill = schedule.uncached_tokens / capacity.step_tokens
        self._steps = _by_row(schedule, prefill + schedule.expected_tokens)
        self.passed_over = False

    def admit(self) -> Sequence[int]:
        """Return the rows to submit now; none when none of those left would end in time."""
        while rows := self._inner.admit():
            begun = [row for row in rows if self._limit.fits(self._steps[row])]
            if len(begun) < len(rows):
                self.passed_over = True
                self._inner.withdraw(sorted(set(rows).difference(begun)))
            if begun:
                return begun
        return ()

    def observe(self, report: StepReport) -> None:
        """Take in what the engine has reported."""
        self._limit.observe(report)
        super().observe(report)


def _by_row(schedule: Schedule, by_position: Floats) -> Floats:
    by_row = np.zeros(int(schedule.order.max(initial=-1)) + 1)
    by_row[schedule.order] = by_position
    return by_row
