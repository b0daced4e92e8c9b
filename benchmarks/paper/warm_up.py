"""A run that begins with its sample, as `blend run` does, in virtual time.

The sample runs first, others behind it; after a bound the plan is made of what has ended and of the
ages of what runs on, and finds that inside. So the sample is part of the time, its rows run once,
and of most long answers the plan knows no more than that they go on. As in the simulated engine,
the plan itself takes no time.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from benchmarks.traces import Ints
from blend.cli.planning import CLASS_MINIMUM, SAMPLE_S, run_ahead
from blend.core.planning.engine_model import EngineModel
from blend.core.planning.lengths import Observations
from blend.core.planning.plan import Plan
from blend.core.planning.simulate import Simulated
from blend.core.planning.tree import Tree
from blend.core.planning.virtual_run import Run, world_of
from blend.core.planning.wanted import WantedAnswers
from blend.core.planning.ways import Reach
from blend.core.prompts import Prompts
from blend.core.schedule import PolicyChoice

LOOK_S = 0.25


def warmed_run(
    prompts: Prompts,
    tree: Tree,
    engine: EngineModel,
    sampled: npt.NDArray[np.bool_],
    *,
    output_tokens: Ints,
    plan_of: Callable[[Observations], Plan],
    policy: PolicyChoice,
    reach: Reach,
    line_steps: int,
    seed: int,
) -> tuple[Observations, Plan, Simulated]:
    """Return what the plan knows, the plan, and the whole run; ``sampled`` (n,) by row."""
    ahead = run_ahead(engine, prompts, tree, sampled, policy=policy, reach=reach, seed=seed)
    world = world_of(tree, output_tokens=output_tokens, engine=engine)
    wanted = WantedAnswers(tree, prompts, sampled & world.fits, minimum=CLASS_MINIMUM)
    run = Run(world, ahead, line_steps=line_steps)
    ended = ~world.fits
    while wanted and run.seconds < SAMPLE_S:
        run.advance(min(run.seconds + LOOK_S, SAMPLE_S))
        fresh = ~np.isnan(world.finished_s) & ~ended
        for row in np.flatnonzero(fresh):
            wanted.see(int(row))
        ended |= fresh
    seen = _seen(run, world.finished_s, output_tokens)
    plan = plan_of(seen)
    run.go_on(plan.schedule)
    run.advance()
    return seen, plan, run.simulated(refused=int((~world.fits).sum()))


def _seen(run: Run, finished_s: npt.NDArray[np.float64], output_tokens: Ints) -> Observations:
    finished = ~np.isnan(finished_s)
    tokens = np.where(finished, output_tokens, np.nan)
    for row, age in run.ages.items():
        # An age of 0 tells nothing.
        tokens[row] = age or np.nan
    return Observations(tokens, finished)
