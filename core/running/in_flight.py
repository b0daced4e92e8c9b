"""What a scanner has submitted and not yet seen finished.

An engine's reports lag behind submissions, by some steps where it runs in another process. So the
scanner counts its own submissions, and whatever is in flight without being reported as running is
taken to wait inside the engine. A queue inside the engine is FIFO: the last ones submitted wait.
"""

from collections import deque
from dataclasses import dataclass

from blend.core.engines import Capacity, StepReport

WAITING_SEQUENCES = 8
"""Sequences that may always wait inside the engine, so that it never runs dry between reports.

Where more have ended between two reports, as many as did may wait: answers of one length that have
begun together end together, and what takes their places has to be there.
"""

AHEAD_STEPS = 3
"""Steps of prompt tokens that may wait inside beyond those of a report, for reports that lag."""


@dataclass(slots=True)
class _Row:
    sequences: int
    tokens: int
    started: bool = False


@dataclass(frozen=True, slots=True)
class Movement:
    """The rows that a report shows to have started and to have finished, in that order."""

    started: tuple[int, ...]
    finished: tuple[int, ...]


class InFlight:
    """The account of the rows inside one engine."""

    def __init__(self, capacity: Capacity):
        self.sequences = 0
        self._capacity = capacity
        self._rows: dict[int, _Row] = {}
        self._queue: deque[int] = deque()
        self._queued_sequences = 0
        self._queued_tokens = 0
        # A row of several sequences stays in flight until the last has ended; those that ended
        # before are neither running nor waiting.
        self._ended_at_most = 0
        self._running = 0
        self._waiting = 0
        self._kv_tokens = 0
        self._steps_per_report = 1
        self._may_wait = WAITING_SEQUENCES

    def __contains__(self, row: int) -> bool:
        return row in self._rows

    @property
    def waiting(self) -> int:
        """Return how many sequences may be waiting inside the engine."""
        return max(self.sequences - self._running - self._ended_at_most, self._waiting, 0)

    def room(self, sequences: int, *, tokens: int) -> bool:
        """Tell whether a row with so many tokens to compute should enter now.

        True for an empty engine; else while few wait inside, or while slots and cache are free
        and what waits fits the steps until the next report.
        """
        if not self.sequences:
            return True
        after = self.sequences + sequences
        if after > self._capacity.max_sequences + self._may_wait:
            return False
        if self.waiting < self._may_wait:
            return True
        ahead_tokens = self._capacity.step_tokens * (AHEAD_STEPS + self._steps_per_report)
        free_tokens = self._capacity.kv_tokens - self._kv_tokens
        return after <= self._capacity.max_sequences and self._queued_tokens + tokens <= min(
            ahead_tokens, free_tokens
        )

    def enter(self, row: int, *, sequences: int, tokens: int) -> None:
        """Count a row as submitted, with its prompt tokens to compute."""
        self._rows[row] = _Row(sequences, tokens)
        self._queue.append(row)
        self.sequences += sequences
        self._queued_sequences += sequences
        self._queued_tokens += tokens

    def withdraw(self, row: int) -> None:
        """Count a row out that has entered here and never reached the engine."""
        record = self._rows.pop(row)
        self.sequences -= record.sequences
        self._queued_sequences -= record.sequences
        self._queued_tokens -= record.tokens

    def observe(self, report: StepReport) -> Movement:
        """Take in a report and return which rows it shows to have started and finished."""
        finished = [c.row for c in report.completions if c.row in self._rows]
        started = [row for row in finished if self._start(row)]
        ended = sum(self._rows[row].sequences for row in finished)
        self._may_wait = max(self._may_wait, min(ended, self._capacity.max_sequences))
        for row in finished:
            record = self._rows.pop(row)
            self.sequences -= record.sequences
            self._ended_at_most -= record.sequences - 1
        self._running = report.running
        self._waiting = report.waiting
        self._kv_tokens = report.kv_tokens
        self._steps_per_report = max(report.steps, 1)
        started += self._start_queued()
        return Movement(tuple(started), tuple(finished))

    def _start_queued(self) -> list[int]:
        started = []
        while self._queue and (
            self._queue[0] not in self._rows
            or self._rows[self._queue[0]].started
            or self._queued_sequences > self.waiting
        ):
            row = self._queue.popleft()
            if row in self._rows and self._start(row):
                started.append(row)
        return started

    def _start(self, row: int) -> bool:
        record = self._rows[row]
        if record.started:
            return False
        record.started = True
        self._queued_sequences -= record.sequences
        self._queued_tokens -= record.tokens
        self._ended_at_most += record.sequences - 1
        return True
