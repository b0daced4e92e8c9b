"""Which way of running a job is the fastest? Simulate a few on drawn lengths, and keep the best.

No policy wins on every job: a forecast has nothing to win on a job of one kind, and a tiny cache
leaves no room for a reserve. The file's own order is always among the candidates, so that a plan
is not slower than it as far as the simulation can tell. All candidates get the same draws.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from blend.core.planning.blending import blended_schedule, memory_first_schedule
from blend.core.planning.classes import LengthClasses, find_classes
from blend.core.planning.engine_model import EngineModel
from blend.core.planning.lengths import Observations
from blend.core.planning.plan import Candidate, Plan, make_plan
from blend.core.planning.simulate import Simulated, simulate
from blend.core.planning.tree import Floats, Ints, Tree, uncached_tokens
from blend.core.prompts import Prompts
from blend.core.schedule import LEFT, Policy, Schedule

GAIN = 1.002
"""How much faster than the file order a candidate must be, to be worth leaving it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The best candidate's schedule, and all candidates, the fastest first."""

    schedule: Schedule
    candidates: tuple[Candidate, ...]


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
    classes = find_classes(
        tree, prompts.max_tokens, observations, known_tokens=prompts.known_tokens
    )
    pending = np.ones(len(prompts), np.bool_)
    if observations is not None:
        pending = ~(observations.finished & ~np.isnan(observations.tokens))
    schedules = {
        name: one.only(pending)
        for name, one in candidates_of(tree, classes, engine, seed=seed).items()
    }
    choice = choose(tree, classes, engine, schedules, draws=draws, seed=seed, wanted=wanted)
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
    return replace(plan, schedule=schedule, candidates=choice.candidates)


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
    schedule always is.
    """
    rng = np.random.default_rng(seed)
    lengths = [draw_lengths(classes, rng) for _ in range(draws)]
    found: dict[str, Candidate] = {}
    for name, schedule in schedules.items():
        if found and not wanted():
            break
        runs = [simulate(tree, schedule, output_tokens=one, engine=engine) for one in lengths]
        found[name] = candidate_of(name, schedule.policy, runs, tree)
    first = next(iter(found.values()))
    ranked = sorted(found.values(), key=lambda one: one.seconds)
    best = ranked[0] if ranked[0].seconds * GAIN < first.seconds else first
    return Choice(schedules[best.name], tuple(ranked))


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


def candidate_of(name: str, policy: Policy, runs: Sequence[Simulated], tree: Tree) -> Candidate:
    """Return what *runs* of one schedule on several draws of the lengths come to."""
    seconds = np.array([run.seconds for run in runs])
    prompt_tokens = max(int(tree.lengths.sum()), 1)

    def mean(of: Callable[[Simulated], float]) -> float:
        return float(np.mean([of(run) for run in runs]))

    low_s, high_s = _quantiles(seconds)
    return Candidate(
        name,
        policy,
        float(seconds.mean()),
        low_s,
        high_s,
        steps=mean(lambda run: run.steps),
        sharing=mean(lambda run: run.cached_tokens / prompt_tokens),
        preemptions=mean(lambda run: run.preemptions),
        peak_kv_tokens=mean(lambda run: run.peak_kv_tokens),
    )


def _quantiles(seconds: Floats) -> tuple[float, float]:
    low, high = np.quantile(seconds, [0.1, 0.9])
    return float(low), float(high)
