"""Which way of running a job is the fastest? Simulate a few on drawn lengths, and keep the best.

No policy wins on every job: a forecast has nothing to win on a job of one kind, and a tiny cache
leaves no room for a reserve. The file's own order is always among the candidates, so that a plan
is not slower than it as far as the simulation can tell. All candidates get the same draws.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from blend.core.planning.blending import blended_schedule, memory_first_schedule
from blend.core.planning.classes import LengthClasses, find_classes
from blend.core.planning.engine_model import EngineModel
from blend.core.planning.lengths import Observations
from blend.core.planning.outlook import Candidate, Outlook, look_ahead
from blend.core.planning.plan import Plan, make_plan
from blend.core.planning.tree import Ints, Tree, build_tree, uncached_tokens
from blend.core.prompts import Prompts
from blend.core.schedule import LEFT, Policy, Schedule

GAIN = 1.002
"""How much faster than the file order a candidate must be, to be worth leaving it."""

GUESS_SPREAD = 0.7
"""Deviation of the log of a length that is guessed from `max_tokens`: a factor of two."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The best candidate's schedule, and what all candidates come to."""

    schedule: Schedule
    outlook: Outlook

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Return what was simulated, the fastest first."""
        return self.outlook.candidates


def guarded_plan(
    prompts: Prompts,
    tree: Tree,
    engine: EngineModel,
    *,
    observations: Observations | None = None,
    seed: int = 0,
    draws: int = 1,
    wanted: Callable[[], bool] = lambda: True,
) -> Plan:
    """Return the plan of the candidate that is fastest for the rows without an answer yet."""
    each = _by_sequence(prompts, tree, observations)
    schedules = {
        name: one.only(each.pending)
        for name, one in candidates_of(each.tree, each.classes, engine, seed=seed).items()
    }
    choice = choose(
        each.tree, each.classes, engine, schedules, draws=draws, seed=seed, wanted=wanted
    )
    plan = make_plan(
        prompts,
        policy=choice.schedule.policy,
        hardware=engine.hardware,
        model=engine.model,
        observations=observations,
        tree=tree,
        seed=seed,
        mode=engine.mode,
    )
    # The order is that of the plan; how boldly to admit is that of the candidate.
    schedule = replace(plan.schedule, blending=choice.schedule.blending)
    return replace(plan, schedule=schedule, outlook=choice.outlook)


def outlook_of(
    plan: Plan,
    prompts: Prompts,
    tree: Tree,
    engine: EngineModel,
    *,
    observations: Observations | None = None,
    draws: int = 1,
    wanted: Callable[[], bool] = lambda: True,
) -> Outlook:
    """Return what *plan* comes to for the rows without an answer, beside the file's own order."""
    each = _by_sequence(prompts, tree, observations)
    schedule, settings = plan.schedule, plan.settings
    if len(each.prompts) > len(prompts):
        schedule = make_plan(
            each.prompts,
            policy=settings.policy,
            hardware=engine.hardware,
            model=engine.model,
            observations=each.observations,
            tree=each.tree,
            seed=settings.seed,
            mode=engine.mode,
        ).schedule
    schedules = {
        schedule.policy: schedule,
        "fcfs": plain_schedule(each.tree, "fcfs", np.arange(len(each.tree))),
    }
    return look_ahead(
        each.tree,
        engine,
        {name: one.only(each.pending) for name, one in schedules.items()},
        drawing(each.classes, seed=settings.seed),
        draws=draws,
        wanted=wanted,
    )


@dataclass(frozen=True, slots=True)
class _Sequences:
    """A job as the simulator takes it: one sequence a row, ``pending`` those without an answer."""

    prompts: Prompts
    tree: Tree
    classes: LengthClasses
    observations: Observations | None
    pending: npt.NDArray[np.bool_]


def _by_sequence(prompts: Prompts, tree: Tree, observations: Observations | None) -> _Sequences:
    each, row = prompts.by_sequence()
    tree = tree if len(each) == len(prompts) else build_tree(each)
    pending = np.ones(len(each), np.bool_)
    if observations is not None:
        observations = Observations(observations.tokens[row], observations.finished[row])
        pending = ~(observations.finished & ~np.isnan(observations.tokens))
    classes = find_classes(tree, each.max_tokens, observations, known_tokens=each.known_tokens)
    return _Sequences(each, tree, classes, observations, pending)


def candidates_of(
    tree: Tree, classes: LengthClasses, engine: EngineModel, *, seed: int = 0
) -> dict[str, Schedule]:
    """Return the schedules that the guard compares, by name; the file order is the first."""
    ours = blended_schedule(
        tree, classes, hardware=engine.hardware, model=engine.model, mode=engine.mode, seed=seed
    )
    known = ours.blending
    assert known is not None
    return {
        "fcfs": plain_schedule(tree, "fcfs", np.arange(len(tree))),
        "dfs": plain_schedule(tree, "dfs", tree.rows),
        "memory-first": memory_first_schedule(
            tree, classes, hardware=engine.hardware, model=engine.model
        ),
        "blend": ours,
        "blend, bold": replace(ours, blending=replace(known, caution=0.0)),
        "blend, bolder": replace(ours, blending=replace(known, caution=0.0, reserved=False)),
    }


def plain_schedule(tree: Tree, policy: Policy, rows: Ints) -> Schedule:
    """Return the schedule of a plain order, which needs no lengths."""
    n = len(tree)
    return Schedule(
        policy,
        rows,
        np.full(n, LEFT, np.int8),
        np.ones(n),
        uncached_tokens(tree, rows)[rows],
        np.ones(n),
        1.0,
    )


def choose(
    tree: Tree,
    classes: LengthClasses,
    engine: EngineModel,
    schedules: Mapping[str, Schedule],
    *,
    draws: int = 1,
    seed: int = 0,
    wanted: Callable[[], bool] = lambda: True,
) -> Choice:
    """Return the fastest of *schedules*, of which the first is kept unless another is faster.

    Lengths are drawn *draws* times. Once ``wanted`` is false nothing more is simulated; the first
    schedule always is, on the first draw.
    """
    outlook = look_ahead(
        tree, engine, schedules, drawing(classes, seed=seed), draws=draws, wanted=wanted
    )
    found = {one.name: one for one in outlook.candidates}
    first, best = found[next(iter(schedules))], outlook.candidates[0]
    if best.seconds * GAIN >= first.seconds:
        best = first
    return Choice(schedules[best.name], outlook)


def drawing(classes: LengthClasses, *, seed: int) -> Callable[[int], Ints]:
    """Return what draws lengths: first from the sample as it is, then each time from it anew."""
    rng = np.random.default_rng(seed)
    return lambda number: draw_lengths(redrawn(classes, rng) if number else classes, rng)


def draw_lengths(classes: LengthClasses, rng: np.random.Generator) -> Ints:
    """Return a length for every row, (n,), from its class's estimate; known ones as they are."""
    from blend.core.kernels.survival import EDGE
    from blend.core.planning.beliefs import beliefs_of  # numba is slow to import

    survival = beliefs_of(classes).survival
    lengths = classes.known.copy()
    for one in range(len(classes)):
        rows = np.flatnonzero((classes.label == one) & (classes.known == 0))
        # Survival falls with length, and np.interp wants what rises.
        drawn = np.interp(rng.random(len(rows)), survival[one][::-1], EDGE[::-1])
        lengths[rows] = np.minimum(np.ceil(drawn), classes.limit[one])
    return np.maximum(lengths, 1).astype(np.int64)


def redrawn(classes: LengthClasses, rng: np.random.Generator) -> LengthClasses:
    """Return the classes as another sample of the same size might have shown them."""
    lengths, centre = classes.lengths.copy(), classes.centre.copy()
    for one in range(len(classes)):
        seen = np.flatnonzero(classes.length_label == one)
        if len(seen):
            lengths[seen] = rng.choice(classes.lengths[seen], len(seen))
            centre[one] = np.log(np.maximum(lengths[seen], 1.0)).mean()
        else:
            centre[one] += rng.normal(0.0, GUESS_SPREAD)
    return replace(classes, lengths=lengths, centre=centre)
