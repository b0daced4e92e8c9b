"""The order a plan puts the rows in, as written to disk and read by the scanner."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from blend.core.planning.classes import Blending

Policy = Literal["paper", "blend", "memory-first", "dfs", "fcfs", "random", "sglang"]
POLICIES: tuple[Policy, ...] = get_args(Policy)

PolicyChoice = Literal["auto", "paper", "blend", "memory-first", "dfs", "fcfs", "random", "sglang"]
"""``auto``: whichever the simulation finds fastest."""

LEFT, RIGHT = 0, 1

TWO_ENDED: tuple[Policy, ...] = ("paper", "blend")
"""The policies whose scanner reads the order from both ends."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Rows from the compute-bound end (left, first) to the memory-bound end (right, last).

    All arrays have shape (n,) and are indexed by position. ``order``: rows, a permutation;
    ``side``: LEFT or RIGHT, the end a row belongs to; ``expected_tokens``: output tokens expected
    of one sequence; ``uncached_tokens``: prompt tokens left to compute when the shared prefix is
    cached; ``density``: compute density of the merged node a row belongs to (constant within the
    node). Policies other than ``paper`` and ``blend`` are read from the left alone. ``blending``:
    what the scanner of ``blend`` knows of lengths and speeds, by row; None for the others.
    """

    policy: Policy
    order: npt.NDArray[np.int64]
    side: npt.NDArray[np.int8]
    expected_tokens: npt.NDArray[np.float64]
    uncached_tokens: npt.NDArray[np.int64]
    density: npt.NDArray[np.float64]
    root_density: float
    blending: Blending | None = None

    def __len__(self) -> int:
        return len(self.order)

    def renumbered(self, rows: npt.NDArray[np.int64], *, total: int) -> "Schedule":
        """Return this schedule of *rows*, (n,) by its own numbers, by those of a job of *total*."""
        known = None if self.blending is None else self.blending.renumbered(rows, total=total)
        return replace(self, order=rows[self.order], blending=known)

    def at(self, positions: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> "Schedule":
        """Return the schedule of what stands at these positions, in their order, or where true."""
        return replace(
            self,
            order=self.order[positions],
            side=self.side[positions],
            expected_tokens=self.expected_tokens[positions],
            uncached_tokens=self.uncached_tokens[positions],
            density=self.density[positions],
        )

    def only(self, pending: npt.NDArray[np.bool_]) -> "Schedule":
        """Return the schedule of the rows for which *pending*, indexed by row, is true."""
        return self.at(pending[self.order])

    def beginning_with(self, inside: npt.NDArray[np.bool_]) -> "Schedule":
        """Return this schedule with the rows of *inside*, indexed by row, at the ends of its order.

        Each stands at the end that it belongs to: at the first where the order is read from there
        alone.
        """
        two_ended = self.policy in TWO_ENDED
        belongs_right = (self.side == RIGHT) & two_ended
        first = np.where(inside[self.order], np.where(belongs_right, 2, 0), 1)
        return self.at(np.argsort(first, kind="stable"))
