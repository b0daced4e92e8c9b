"""What a scanner has submitted and not yet seen finished: `running.in_flight`, compiled.

All counts are of sequences. The queue holds rows in the order of their submission; what is in
flight without being reported as running waits inside the engine, and those submitted last wait.
"""

from typing import Any, NamedTuple

import numpy as np

from blend.core.kernels.compiled import compiled
from blend.core.running.in_flight import AHEAD_STEPS, WAITING_SEQUENCES

QUEUED, STARTED, FINISHED = 1, 2, 3

COUNTS = np.dtype(
    [
        ("inside", np.int64),
        ("running", np.int64),
        ("waiting", np.int64),
        ("kv_tokens", np.int64),
        ("queued", np.int64),
        ("queued_tokens", np.int64),
        # Of started rows, which stay in flight until their last sequence has ended.
        ("ended_at_most", np.int64),
        ("first", np.int64),  # of the queue
        ("behind", np.int64),
        ("steps", np.int64),  # of the last report
        ("ended", np.int64),  # since the last report
        ("may_wait", np.int64),
        ("max_sequences", np.int64),
        ("step_tokens", np.int64),
        ("max_kv_tokens", np.int64),
    ]
)


class Flight(NamedTuple):
    """The account of the rows inside one engine; ``counts`` has one element."""

    mark: Any  # by row
    tokens: Any  # by row: prompt tokens to compute
    copies: Any  # by row: its sequences
    queue: Any
    counts: Any


def new_flight(copies: Any, *, kv_tokens: int, max_sequences: int, step_tokens: int) -> Flight:
    """Return the account of an empty engine, for rows of so many sequences each."""
    rows = len(copies)
    counts = np.zeros(1, COUNTS)
    counts["steps"] = 1
    counts["may_wait"] = WAITING_SEQUENCES
    counts["max_kv_tokens"] = kv_tokens
    counts["max_sequences"] = max_sequences
    counts["step_tokens"] = step_tokens
    return Flight(
        np.zeros(rows, np.int8),
        np.zeros(rows, np.int64),
        copies.astype(np.int32),
        np.empty(rows, np.int32),
        counts,
    )


@compiled
def unstarted(flight: Flight) -> int:
    """Return how many sequences may be waiting inside the engine."""
    counts = flight.counts[0]
    return max(counts.inside - counts.running - counts.ended_at_most, counts.waiting, 0)


@compiled
def room(flight: Flight, row: int, tokens: int) -> bool:
    """Tell whether a row with so many tokens to compute should enter now."""
    counts = flight.counts[0]
    after = counts.inside + flight.copies[row]
    if counts.inside == 0:
        return True
    if after > counts.max_sequences + counts.may_wait:
        return False
    if unstarted(flight) < counts.may_wait:
        return True
    ahead = counts.step_tokens * (AHEAD_STEPS + counts.steps)
    free = counts.max_kv_tokens - counts.kv_tokens
    fits = counts.queued_tokens + tokens <= min(ahead, free)
    return fits and after <= counts.max_sequences


@compiled
def enter(flight: Flight, row: int, tokens: int) -> None:
    """Count a row as submitted."""
    counts = flight.counts[0]
    flight.mark[row] = QUEUED
    flight.tokens[row] = tokens
    flight.queue[counts.behind] = row
    counts.behind += 1
    counts.inside += flight.copies[row]
    counts.queued += flight.copies[row]
    counts.queued_tokens += tokens


@compiled
def withdraw(flight: Flight, row: int) -> None:
    """Count a row out that has entered here and never reached the engine."""
    counts = flight.counts[0]
    flight.mark[row] = FINISHED
    counts.inside -= flight.copies[row]
    counts.queued -= flight.copies[row]
    counts.queued_tokens -= flight.tokens[row]


@compiled
def note_finished(flight: Flight, row: int) -> bool:
    """Count a row as finished; tell whether it had not been seen to start."""
    fresh = start(flight, row)
    flight.mark[row] = FINISHED
    flight.counts[0].ended += flight.copies[row]
    flight.counts[0].inside -= flight.copies[row]
    flight.counts[0].ended_at_most -= flight.copies[row] - 1
    return fresh


@compiled
def note_report(flight: Flight, running: int, waiting: int, kv_tokens: int, steps: int) -> None:
    """Take in how full the engine is now; its finished rows have been noted before."""
    counts = flight.counts[0]
    counts.running, counts.waiting = running, waiting
    counts.kv_tokens = kv_tokens
    counts.steps = max(steps, 1)
    counts.may_wait = max(counts.may_wait, min(counts.ended, counts.max_sequences))
    counts.ended = 0


@compiled
def next_started(flight: Flight) -> int:
    """Return the next row that the report shows to have started, -1 when there is no more."""
    counts = flight.counts[0]
    while counts.first < counts.behind:
        row = flight.queue[counts.first]
        if flight.mark[row] == QUEUED:
            if counts.queued <= unstarted(flight):
                return -1
            start(flight, row)
            counts.first += 1
            return row
        counts.first += 1
    return -1


@compiled
def start(flight: Flight, row: int) -> bool:
    """Count a row as started; tell whether it waited until now."""
    if flight.mark[row] != QUEUED:
        return False
    flight.mark[row] = STARTED
    flight.counts[0].queued -= flight.copies[row]
    flight.counts[0].queued_tokens -= flight.tokens[row]
    flight.counts[0].ended_at_most += flight.copies[row] - 1
    return True
