"""Saving results in small batches: by count or age, and whatever happens at the end."""

from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from typing import Self

from blend.core.completion import Completion
from blend.core.errors import BlendError
from blend.store.disk_sync import DiskSync
from blend.store.job import DiskFullError, Job

BATCH_ROWS = 64
BATCH_S = 1.0
BEAT_S = 5.0


class Recorder:
    """Hands completions to the job in batches of 64, or what there is once it is a second old.

    Used as a context manager it does not wait for the disk, which a thread does, and saves the rest
    at the end, after an error or an interrupt too: all of it or, on a disk that has no room for
    that, what fits.
    ``add`` is to be called every few seconds at least, with nothing when nothing finished: it is
    what notices that a batch has grown old, and says every five seconds that the run is alive.
    """

    def __init__(self, job: Job, run: int, *, clock: Callable[[], float]):
        self._job = job
        self._run = run
        self._clock = clock
        self._waiting: list[Completion] = []
        self._oldest_s = 0.0
        self._beat_s = clock()
        self._disk: DiskSync | None = None

    def __enter__(self) -> Self:
        self._disk = self._job.disk_sync()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # An interrupt must not cost what has already arrived.
        try:
            self._flush_what_fits()
        except BaseException:
            self._leave_to_disk(quietly=True)
            raise
        self._leave_to_disk(quietly=kind is not None)

    def add(self, completions: Iterable[Completion]) -> None:
        """Take completions in; save when the batch is full or old."""
        was_empty = not self._waiting
        self._waiting.extend(completions)
        now_s = self._clock()
        if now_s - self._beat_s >= BEAT_S:
            self._job.beat(self._run)
            self._beat_s = now_s
        if not self._waiting:
            return
        if was_empty:
            self._oldest_s = now_s
        if len(self._waiting) >= BATCH_ROWS or now_s - self._oldest_s >= BATCH_S:
            self.flush()

    def flush(self) -> None:
        """Save everything taken in so far."""
        if self._waiting:
            # Emptied only once saved: a flush that was interrupted can be done again.
            self._job.record(self._run, self._waiting, durable=self._disk is None)
            self._waiting = []
            if self._disk is not None:
                self._disk.ask()

    def _flush_what_fits(self) -> None:
        try:
            self.flush()
        except DiskFullError:
            self._save_what_fits()
            self.flush()

    def _leave_to_disk(self, *, quietly: bool) -> None:
        if self._disk is not None:
            # A second error, of a disk that fails, would hide the first.
            with suppress(BlendError) if quietly else nullcontext():
                self._disk.close()

    def _save_what_fits(self) -> None:
        left = []
        for completion in self._waiting:
            try:
                self._job.record(self._run, [completion])
            except DiskFullError:
                left.append(completion)
        self._waiting = left
