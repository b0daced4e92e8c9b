"""Saving results in small batches: by count or age, and whatever happens at the end."""

from collections.abc import Callable, Iterable
from typing import Self

from blend.core.completion import Completion
from blend.store.job import Job

BATCH_ROWS = 64
BATCH_S = 1.0


class Recorder:
    """Hands completions to the job in batches of 64, or what there is once it is a second old.

    Used as a context manager it saves the rest at the end, after an error or an interrupt too.
    ``add`` is to be called after every step, with nothing when nothing finished: it is what
    notices that a batch has grown old.
    """

    def __init__(self, job: Job, run: int, *, clock: Callable[[], float]):
        self._job = job
        self._run = run
        self._clock = clock
        self._waiting: list[Completion] = []
        self._oldest_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # An interrupt must not cost what has already arrived.
        self.flush()

    def add(self, completions: Iterable[Completion]) -> None:
        """Take completions in; save when the batch is full or old."""
        was_empty = not self._waiting
        self._waiting.extend(completions)
        if not self._waiting:
            return
        now_s = self._clock()
        if was_empty:
            self._oldest_s = now_s
        if len(self._waiting) >= BATCH_ROWS or now_s - self._oldest_s >= BATCH_S:
            self.flush()

    def flush(self) -> None:
        """Save everything taken in so far."""
        if self._waiting:
            # Emptied only once saved: a flush that was interrupted can be done again.
            self._job.record(self._run, self._waiting)
            self._waiting = []
