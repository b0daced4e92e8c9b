"""How do the policies compare on one engine? All of them simulated, each on the same draws.

What is unknown of a job is how long its answers will be. So the time has a range: each draw first
takes the sample anew (a bootstrap; a guess from `max_tokens` alone moves by a factor), then draws
a length for every row. The schedules know the sample as it is, and so can be as wrong as a real
plan.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from blend.core.planning.classes import LengthClasses, find_classes
from blend.core.planning.engine_model import EngineModel
from blend.core.planning.guard import candidate_of, candidates_of, draw_lengths
from blend.core.planning.lengths import Observations
from blend.core.planning.optimum import bound_s, practical_optimum_s, work_of
from blend.core.planning.plan import Candidate, make_plan
from blend.core.planning.simulate import Simulated, simulate
from blend.core.planning.tree import Ints, Tree
from blend.core.prompts import Prompts
from blend.core.schedule import POLICIES, Policy, Schedule

GUESS_SPREAD = 0.7
"""Deviation of the log of a length that is guessed from `max_tokens`: a factor of two."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The policies on one engine, the fastest first, and what no order can beat.

    Counts and seconds are means over the draws. ``best_sharing``: the share of prompt tokens that
    a cache without end would save. ``cut_answers``: those that ended where the cache was full.
    ``optimum_s``: the practical optimum, of engines that overlap compute and memory.
    """

    engine: EngineModel
    candidates: tuple[Candidate, ...]
    draws: int
    rows: int
    prompt_tokens: int
    output_tokens: float
    best_sharing: float
    cut_answers: float
    bound_s: float
    optimum_s: float

    def tokens_s(self, one: Candidate) -> float:
        """Return input and output tokens a second."""
        return (self.prompt_tokens + self.output_tokens) / one.seconds

    def sharing_kept(self, one: Candidate) -> float | None:
        """Return the part of the possible sharing that is found; None where there is none."""
        return one.sharing / self.best_sharing if self.best_sharing else None

    def behind(self, one: Candidate) -> float:
        """Return how much longer than the fastest it takes, as a share of the fastest's time."""
        return one.seconds / self.candidates[0].seconds - 1.0


@dataclass(frozen=True, slots=True)
class _Draw:
    lengths: Ints
    cut_answers: int
    bound_s: float
    optimum_s: float


def compare(
    prompts: Prompts,
    tree: Tree,
    engine: EngineModel,
    *,
    policies: Sequence[Policy] = POLICIES,
    observations: Observations | None = None,
    draws: int = 5,
    seed: int = 0,
    wanted: Callable[[], bool] = lambda: True,
    on_run: Callable[[int], None] = lambda _: None,
) -> Comparison:
    """Simulate the whole job, one sequence a row, under each policy; ``blend`` in three tempers.

    The answers in *observations* get their own length. Once ``wanted`` is false no further draw
    is made; there is always one. ``on_run`` hears how many runs each draw has, before each run. The
    cache must hold every prompt.
    """
    classes = find_classes(
        tree, prompts.max_tokens, observations, known_tokens=prompts.known_tokens
    )
    schedules = _schedules(prompts, tree, classes, engine, policies, observations, seed=seed)
    rng = np.random.default_rng(seed)
    drawn: list[_Draw] = []
    runs: dict[str, list[Simulated]] = {name: [] for name in schedules}
    while len(drawn) < draws and (not drawn or wanted()):
        drawn.append(_draw(prompts, tree, classes, engine, observations, rng))
        for name, schedule in schedules.items():
            on_run(len(schedules))
            lengths = drawn[-1].lengths
            runs[name].append(simulate(tree, schedule, output_tokens=lengths, engine=engine))
    found = [candidate_of(name, one.policy, runs[name], tree) for name, one in schedules.items()]
    return Comparison(
        engine,
        tuple(sorted(found, key=lambda one: one.seconds)),
        draws=len(drawn),
        rows=len(tree),
        prompt_tokens=int(tree.lengths.sum()),
        output_tokens=float(np.mean([one.lengths.sum() for one in drawn])),
        best_sharing=tree.sharing,
        cut_answers=float(np.mean([one.cut_answers for one in drawn])),
        bound_s=float(np.mean([one.bound_s for one in drawn])),
        optimum_s=float(np.mean([one.optimum_s for one in drawn])),
    )


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


def _schedules(
    prompts: Prompts,
    tree: Tree,
    classes: LengthClasses,
    engine: EngineModel,
    policies: Sequence[Policy],
    observations: Observations | None,
    *,
    seed: int,
) -> dict[str, Schedule]:
    """Return the schedules to simulate, by name: the guard's, and of what it leaves out."""
    guarded = candidates_of(tree, classes, engine, seed=seed)
    found = {name: one for name, one in guarded.items() if one.policy in policies}
    for policy in policies:
        if policy not in guarded:
            found[policy] = make_plan(
                prompts,
                policy=policy,
                hardware=engine.hardware,
                model=engine.model,
                observations=observations,
                tree=tree,
                seed=seed,
                mode=engine.mode,
            ).schedule
    return found


def _draw(
    prompts: Prompts,
    tree: Tree,
    classes: LengthClasses,
    engine: EngineModel,
    observations: Observations | None,
    rng: np.random.Generator,
) -> _Draw:
    lengths = draw_lengths(redrawn(classes, rng), rng)
    if observations is not None:
        ended = observations.finished & ~np.isnan(observations.tokens)
        lengths[ended] = np.maximum(np.rint(observations.tokens[ended]), 1).astype(np.int64)
    block = engine.capacity.block_tokens
    room = engine.capacity.kv_tokens // block * block - prompts.lengths
    held = np.minimum(lengths, room)
    work = work_of(tree, held, hardware=engine.hardware, model=engine.model)
    return _Draw(
        held,
        int((lengths > room).sum()),
        bound_s(work, engine),
        practical_optimum_s(work, alpha=engine.interference),
    )
