"""How do the policies compare on one engine? All of them simulated, each on the same draws.

What is unknown of a job is how long its answers will be. So the time has a range: each draw first
takes the sample anew (a bootstrap; a guess from `max_tokens` alone moves by a factor), then draws
a length for every row. The schedules know the sample as it is, and so can be as wrong as a real
plan.
"""

from collections.abc import Callable, Sequence

import numpy as np

from blend.core.planning.classes import LengthClasses, find_classes
from blend.core.planning.engine_model import EngineModel
from blend.core.planning.guard import candidates_of, draw_lengths, redrawn
from blend.core.planning.lengths import Observations
from blend.core.planning.outlook import Contender, Outlook, look_ahead
from blend.core.planning.plan import plan_on
from blend.core.planning.replicas import Several
from blend.core.planning.tree import Ints, Tree
from blend.core.prompts import Prompts
from blend.core.schedule import POLICIES, Policy


def compare(
    prompts: Prompts,
    tree: Tree,
    engine: EngineModel,
    *,
    policies: Sequence[Policy] = POLICIES,
    observations: Observations | None = None,
    draws: int = 5,
    seed: int = 0,
    replicas: int = 1,
    wanted: Callable[[], bool] = lambda: True,
    on_run: Callable[[int], None] = lambda _: None,
) -> Outlook:
    """Simulate the whole job, one sequence a row, under each policy; ``blend`` in several ways.

    On so many ``replicas`` of the engine. The answers in *observations* get their own length. Once
    ``wanted`` is false no further draw is made; there is always one. ``on_run`` hears how many runs
    each draw has, before each run. The cache must hold every prompt.
    """
    from blend.core.planning.beliefs import expected_tokens  # numba is slow to import

    classes = find_classes(
        tree, prompts.max_tokens, observations, known_tokens=prompts.known_tokens
    )
    contenders = _contenders(prompts, tree, classes, engine, policies, observations, seed=seed)
    rng = np.random.default_rng(seed)
    return look_ahead(
        tree,
        engine,
        contenders,
        lambda _: _drawn(classes, observations, rng),
        draws=draws,
        least=len(contenders),
        several=Several(replicas, expected_tokens(classes)) if replicas > 1 else None,
        wanted=wanted,
        on_run=on_run,
    )


def _drawn(
    classes: LengthClasses, observations: Observations | None, rng: np.random.Generator
) -> Ints:
    """Return lengths drawn from the sample drawn anew; answers that are there keep theirs."""
    lengths = draw_lengths(redrawn(classes, rng), rng)
    if observations is not None:
        ended = observations.answered
        lengths[ended] = np.maximum(np.rint(observations.tokens[ended]), 1).astype(np.int64)
    return lengths


def _contenders(
    prompts: Prompts,
    tree: Tree,
    classes: LengthClasses,
    engine: EngineModel,
    policies: Sequence[Policy],
    observations: Observations | None,
    *,
    seed: int,
) -> dict[str, Contender]:
    """Return what to simulate, by name: the guard's candidates, and what those leave out."""
    guarded = candidates_of(tree, classes, engine, seed=seed)
    found = {name: one for name, one in guarded.items() if one.schedule.policy in policies}
    for policy in policies:
        if policy not in guarded:
            plan = plan_on(
                engine, prompts, policy=policy, observations=observations, tree=tree, seed=seed
            )
            found[policy] = Contender(plan.schedule)
    return found
