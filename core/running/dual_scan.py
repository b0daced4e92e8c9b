"""The paper's dual scan: two pointers that blend compute-bound with memory-bound rows (§5.3, §5.4).

M: KV memory [tokens]; rho: compute density; L, R: the node under the left and the right pointer.
p, d, u: prompt tokens, expected output tokens and uncached prompt tokens of a row.

    M_L + M_R = M,   rho_L·M_L + rho_R·M_R = rho_root·M

Each side is kept filled up to its share of the memory, from its own end of the schedule, until the
pointers meet. The invariant: no row is admitted that would take the footprints in flight beyond M,
unless it has the engine to itself. A row that runs past its estimate moves to the right side, with
twice the estimate.

Differs from the paper: a row's footprint is u + d/2 instead of p + d/2, because the cache holds a
shared prefix once; counting it for every row would leave most of the memory of a job with long
shared prefixes empty. The first row of an empty side brings its prefix along and counts p.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from blend.core.engines import Capacity, StepReport
from blend.core.running.in_flight import InFlight
from blend.core.schedule import LEFT, RIGHT, Schedule

START_STEPS = 8
"""Steps a row may take beyond its expected output before it counts as running over."""

_DENSEST = 1e12


def partition(memory: float, *, left: float, right: float, root: float) -> tuple[float, float]:
    """Split the memory so that the two densities blend to the root's, as far as they can.

    Where the root does not lie between them, all of it goes to the side that is nearer.
    """
    left, right, root = (min(density, _DENSEST) for density in (left, right, root))
    if left - right <= 1e-9 * abs(left):
        share = 1.0 if left >= root else 0.0
    else:
        share = min(max((root - right) / (left - right), 0.0), 1.0)
    return memory * share, memory * (1.0 - share)


@dataclass(slots=True)
class _Row:
    side: int
    uncached_tokens: int
    sequences: int
    expected_tokens: float
    footprint_tokens: float
    started_step: int = 0


class DualScanner:
    """Admits rows from both ends of a schedule so that each side fills its share of the memory."""

    pace = None

    def __init__(
        self,
        schedule: Schedule,
        *,
        prompt_tokens: npt.NDArray[np.integer],
        sequences: npt.NDArray[np.integer],
        capacity: Capacity,
    ):
        self._schedule = schedule
        self._prompt_tokens = prompt_tokens
        self._sequences = sequences
        self._capacity = capacity
        self._inside = InFlight(capacity)
        self._ends = [0, len(schedule) - 1]
        self._rows: dict[int, _Row] = {}
        self._used = [0.0, 0.0]
        self._count = [0, 0]
        self._deadlines: list[tuple[int, int]] = []
        self._step = 0

    @property
    def done(self) -> bool:
        """Whether the pointers have passed each other."""
        return self._ends[LEFT] > self._ends[RIGHT]

    @property
    def used_tokens(self) -> tuple[float, float]:
        """Return the footprints in flight on the left and on the right."""
        return self._used[LEFT], self._used[RIGHT]

    @property
    def shares_tokens(self) -> tuple[float, float]:
        """Return M_L and M_R for the nodes under the pointers."""
        return partition(
            self._capacity.kv_tokens,
            left=float(self._schedule.density[self._ends[LEFT]]),
            right=float(self._schedule.density[self._ends[RIGHT]]),
            root=self._schedule.root_density,
        )

    def admit(self) -> list[int]:
        """Return the rows that fill up both sides, the emptier side first."""
        rows = []
        while not self.done and (row := self._admit_one()) is not None:
            rows.append(row)
        return rows

    def deal(self, schedule: Schedule) -> None:
        """Put the rows of *schedule* in the place of those not admitted."""
        self._schedule = schedule
        self._ends = [0, len(schedule) - 1]

    def carry(self, ages: Mapping[int, float]) -> None:
        """Count rows at the ends of the schedule that are inside already, as if they were new."""
        inside = np.isin(self._schedule.order, list(ages))
        for side in (LEFT, RIGHT):
            belongs = inside & (self._schedule.side == side)
            while not self.done and belongs[at := self._ends[side]]:
                self._put_inside(side, self._row_at(at, side))

    def withdraw(self, rows: Sequence[int]) -> None:
        """Take rows back that were admitted last and not submitted."""
        for row in rows:
            self._inside.withdraw(row)
            self._free(self._rows.pop(row))

    def observe(self, report: StepReport) -> None:
        """Free what has finished and move what runs past its estimate to the right side."""
        self._step += report.steps
        movement = self._inside.observe(report)
        for row in movement.started:
            self._rows[row].started_step = self._step
            self._set_deadline(row)
        for row in movement.finished:
            self._free(self._rows.pop(row))
        while self._deadlines and self._deadlines[0][0] < self._step:
            _, row = heapq.heappop(self._deadlines)
            if row in self._rows:
                self._run_over(row)

    def _admit_one(self) -> int | None:
        shares = self.shares_tokens
        for side in sorted((LEFT, RIGHT), key=lambda side: self._filled(side, shares[side])):
            row = self._row_at(self._ends[side], side)
            used = self._used[LEFT] + self._used[RIGHT]
            fits = used + row.footprint_tokens <= self._capacity.kv_tokens
            if not self._rows or (shares[side] and not self._count[side]):
                # A side that wants memory and holds nothing goes first: when its next row does
                # not fit, the other side must not take the room that becomes free.
                return self._enter(side, row) if fits or not self._rows else None
            if fits and self._used[side] + row.footprint_tokens <= shares[side]:
                return self._enter(side, row)
        return None

    def _filled(self, side: int, share: float) -> float:
        return self._used[side] / share if share else float("inf")

    def _row_at(self, position: int, side: int) -> _Row:
        row = self._schedule.order[position]
        sequences = int(self._sequences[row])
        uncached = int(self._schedule.uncached_tokens[position])
        expected = float(self._schedule.expected_tokens[position])
        prompt = uncached if self._count[side] else int(self._prompt_tokens[row])
        footprint = prompt + sequences * expected / 2
        return _Row(side, uncached, sequences, expected, footprint)

    def _enter(self, side: int, record: _Row) -> int | None:
        if not self._inside.room(record.sequences, tokens=record.uncached_tokens):
            return None
        return self._put_inside(side, record)

    def _put_inside(self, side: int, record: _Row) -> int:
        row = int(self._schedule.order[self._ends[side]])
        self._inside.enter(row, sequences=record.sequences, tokens=record.uncached_tokens)
        self._rows[row] = record
        self._used[side] += record.footprint_tokens
        self._count[side] += 1
        self._ends[side] += 1 if side == LEFT else -1
        return row

    def _set_deadline(self, row: int) -> None:
        record = self._rows[row]
        prefill_steps = record.uncached_tokens // self._capacity.step_tokens
        steps = int(record.expected_tokens) + prefill_steps + START_STEPS
        heapq.heappush(self._deadlines, (record.started_step + steps, row))

    def _free(self, record: _Row) -> None:
        self._used[record.side] -= record.footprint_tokens
        self._count[record.side] -= 1

    def _run_over(self, row: int) -> None:
        record = self._rows[row]
        more_tokens = max(record.expected_tokens, 1.0)
        self._free(record)
        record.side = RIGHT
        record.expected_tokens += more_tokens
        record.footprint_tokens += record.sequences * more_tokens / 2
        self._used[RIGHT] += record.footprint_tokens
        self._count[RIGHT] += 1
        self._set_deadline(row)
