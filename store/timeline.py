"""The timeline of a run: what moved, summed up to lines of a second, shorter ones at first."""

from contextlib import nullcontext, suppress
from typing import Self

import numpy as np

from blend.core.engines import StepReport
from blend.core.errors import BlendError
from blend.store.job import Job
from blend.store.records import Step

LINE_EVERY_S = 1.0
EARLY_SHARE, LEAST_LINE_S = 0.02, 0.05
"""Of a short run, too, it can be told what a step costs: a line a fiftieth of the time so far."""


class Timeline:
    """Saves a line with the run whenever a second has passed on the engine's clock, or a fiftieth.

    Used as a context manager it saves what has begun at the end, after an error or an interrupt
    too.
    """

    def __init__(self, job: Job, run: int):
        self._job = job
        self._run = run
        self._seconds = 0.0
        self._saved_s = 0.0
        self._sums = np.zeros(6, np.int64)
        self._last: StepReport | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # A second error, of a full disk again, would hide the first.
        with suppress(BlendError) if kind else nullcontext():
            self.flush()

    def add(self, report: StepReport) -> None:
        """Take in one report."""
        self._seconds += report.seconds
        self._last = report
        self._sums += (
            report.steps,
            report.prefill_tokens,
            report.decode_tokens,
            report.cached_tokens,
            report.preemptions,
            len(report.completions),
        )
        line_s = min(max(EARLY_SHARE * self._seconds, LEAST_LINE_S), LINE_EVERY_S)
        if self._seconds - self._saved_s >= line_s:
            self.flush()

    def flush(self) -> None:
        """Save the line that has begun."""
        if self._last is None:
            return
        steps, prefill, decode, cached, preemptions, answered = self._sums.tolist()
        step = Step(
            seconds=self._seconds,
            steps=steps,
            running=self._last.running,
            waiting=self._last.waiting,
            kv_tokens=self._last.kv_tokens,
            prefill_tokens=prefill,
            decode_tokens=decode,
            cached_tokens=cached,
            preemptions=preemptions,
            answered=answered,
        )
        self._job.add_steps(self._run, [step])
        self._sums[:] = 0
        self._saved_s = self._seconds
        self._last = None
