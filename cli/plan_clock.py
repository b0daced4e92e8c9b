"""How long may a plan be thought about? A small part of the run that it is for."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from blend.core.planning.engine_model import EngineModel
from blend.core.planning.lengths import Observations, estimate
from blend.core.planning.optimum import bound_s, work_of
from blend.core.planning.tree import Tree
from blend.core.prompts import Prompts

PLAN_SHARE = 0.05
"""The part of the predicted run that planning may take."""

MOST_S = 120.0
"""The time after which a plan simulates nothing more, unless it was given another."""

COMPILE_S = 60.0
"""What compiling may take: a plan with less time than that does without."""


def part_of_run_s(
    prompts: Prompts, tree: Tree, observations: Observations, engine: EngineModel
) -> float:
    """Return the seconds that planning may take: a small part of the fastest run."""
    work = work_of(
        tree,
        np.rint(estimate(tree, prompts, observations).expected).astype(np.int64),
        hardware=engine.hardware,
        model=engine.model,
        sequences=prompts.sequences.astype(np.int64),
        rows=~observations.answered,
    )
    return min(PLAN_SHARE * bound_s(work, engine), MOST_S)


class PlanClock:
    """Says whether another simulated run, as long as the last, still ends in time."""

    def __init__(self, limit_s: float, *, spent_s: float):
        self.limit_s = limit_s
        self._started_s = time.monotonic() - spent_s
        self._asked_s: float | None = None

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Let no time go by inside."""
        began_s = time.monotonic()
        yield
        self._started_s += time.monotonic() - began_s

    def left(self) -> bool:
        """Tell whether there is time for another run."""
        now_s = time.monotonic()
        last_s = 0.0 if self._asked_s is None else now_s - self._asked_s
        self._asked_s = now_s
        return now_s + last_s - self._started_s < self.limit_s

    def left_to_simulate(self) -> bool:
        """Tell whether there is time for another run, and to compile where nothing is compiled."""
        return self.left() and (self.limit_s >= COMPILE_S or simulator_compiled())


def simulator_compiled() -> bool:
    """Tell whether the kernels of the simulator were compiled before."""
    from blend.core.kernels.compiled import kept  # numba is slow to import

    # The last to be compiled.
    return kept("blend.carry_blended") and kept("blend.hear_blended")
