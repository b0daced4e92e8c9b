"""How would several replicas run a job? Each its part, in virtual time, rows dealt anew meanwhile.

    replicas = simulate_replicas(tree, schedule, walk, output_tokens=…, engine=…, replicas=4)
    replicas.seconds                     the slowest one's

The same cut and the same dealing as an execution. Every replica is an engine of its own with its
own cache and clock; every now and then, when a part of what is left has been done, the rows that
nobody has admitted are looked over.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from blend.core.planning.dealing import Dealer, Standing
from blend.core.planning.engine_model import EngineModel
from blend.core.planning.parts import CutName, Walk, cut, part_of, walk_of
from blend.core.planning.simulate import Simulated
from blend.core.planning.tree import Floats, Ints, Tree
from blend.core.schedule import Schedule

if TYPE_CHECKING:
    from blend.core.planning.virtual_run import Run

LOOK_SHARE = 0.05
"""The time between two looks, of what is left."""

_SUMMED = (
    "steps",
    "compute_s",
    "memory_s",
    "prefill_tokens",
    "decode_tokens",
    "cached_tokens",
    "recomputed_tokens",
    "preemptions",
    "refused",
)
_GREATEST = ("peak_kv_tokens", "peak_running")


@dataclass(frozen=True, slots=True)
class SimulatedReplicas:
    """What came of it; ``runs`` by replica, ``dealt`` rows that were handed over."""

    runs: tuple[Simulated, ...]
    dealt: int

    @property
    def seconds(self) -> float:
        """The time of the slowest."""
        return max(run.seconds for run in self.runs)

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens found in the caches."""
        return sum(run.cached_tokens for run in self.runs)

    @property
    def together(self) -> Simulated:
        """All runs as one: sums, the peaks of any, and the timeline of the slowest."""
        slowest = max(self.runs, key=lambda run: run.seconds)

        def total(name: str) -> Any:
            return sum(getattr(run, name) for run in self.runs)

        return replace(
            slowest,
            **{name: total(name) for name in _SUMMED},
            **{name: max(getattr(run, name) for run in self.runs) for name in _GREATEST},
        )


@dataclass(frozen=True, slots=True)
class Several:
    """So many replicas, and what is expected of each answer, (n,) by row."""

    replicas: int
    expected_tokens: Floats

    def simulate(
        self,
        tree: Tree,
        schedule: Schedule,
        *,
        output_tokens: npt.NDArray[np.integer],
        engine: EngineModel,
    ) -> Simulated:
        """Return all that comes of *schedule*, one sequence a row, as one run."""
        prompts = np.empty(len(tree), np.int64)
        prompts[tree.rows] = tree.lengths
        walk = walk_of(
            schedule,
            prompt_tokens=prompts,
            sequences=np.ones(len(tree), np.int64),
            hardware=engine.hardware,
            model=engine.model,
            expected_tokens=self.expected_tokens[schedule.order],
        )
        return simulate_replicas(
            tree,
            schedule,
            walk,
            output_tokens=output_tokens,
            engine=engine,
            replicas=self.replicas,
        ).together


def simulate_replicas(
    tree: Tree,
    schedule: Schedule,
    walk: Walk,
    *,
    output_tokens: npt.NDArray[np.integer],
    engine: EngineModel,
    replicas: int,
    how: CutName = "subtrees",
    deals: bool = True,
    line_steps: int = 256,
) -> SimulatedReplicas:
    """Run *schedule*, which *walk* is of, on so many engines; one sequence a row.

    Without ``deals`` each runs its part as it was cut. No row runs that no cache can hold.
    """
    from blend.core.planning.virtual_run import Run, world_of

    world = world_of(tree, output_tokens=output_tokens, engine=engine)
    part = cut(walk, replicas, how=how)
    runs = []
    for one in range(replicas):
        mine = part_of(schedule, walk, np.flatnonzero(part == one))
        runs.append(Run(world, mine.only(world.fits), line_steps=line_steps))
    moved = _run_together(runs, schedule, walk, engine) if deals and replicas > 1 else 0
    for run in runs:
        run.advance()
    refused = int((~world.fits).sum())
    found = (run.simulated(refused=0 if number else refused) for number, run in enumerate(runs))
    return SimulatedReplicas(tuple(found), moved)


def _run_together(
    runs: "Sequence[Run]", schedule: Schedule, walk: Walk, engine: EngineModel
) -> int:
    """Run until nothing is left to admit; return how many rows were handed over."""
    dealer = Dealer(walk, parts=len(runs), interference=engine.mode_interference)
    place = np.zeros(int(schedule.order.max(initial=-1)) + 1, np.int64)
    place[schedule.order] = np.arange(len(schedule))
    watched = [_Watched(run, place) for run in runs]
    now_s, moved = 0.0, 0
    while any(len(run.left) for run in runs):
        standings = [one.standing(dealer) for one in watched]
        for number, positions in dealer.deal(standings).items():
            moved += max(len(positions) - len(standings[number].left), 0)
            runs[number].deal(part_of(schedule, walk, positions), at_s=now_s)
        loads = [dealer.seconds(standing) for standing in standings]
        now_s += max(LOOK_SHARE * float(np.mean(loads)), dealer.least_s / 2)
        for run in runs:
            run.advance(now_s)
    return moved


class _Watched:
    """A run, and since which of its steps each row has been inside, as far as the looks tell."""

    def __init__(self, run: "Run", place: Ints):
        self._run = run
        self._place = place
        self._since = np.zeros(0)
        self._seen_steps = 0

    def standing(self, dealer: Dealer) -> Standing:
        """Return how far the replica is."""
        run, rows = self._run, self._run.admitted
        new = np.full(len(rows) - len(self._since), (self._seen_steps + run.steps) / 2)
        self._since, self._seen_steps = np.concatenate([self._since, new]), run.steps
        inside = np.isnan(run.finished_s(rows))
        ages = run.steps - self._since[inside]
        return dealer.standing(self._place[run.left], self._place[rows[inside]], ages)
