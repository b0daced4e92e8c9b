"""The composition of a plan: tree, lengths, order, and what to expect of running it."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from blend.core.planning.blending import blended_order, blending_of, memory_first_order
from blend.core.planning.classes import Blending, LengthClasses, Mode, find_classes
from blend.core.planning.demand import Demand, demand_of
from blend.core.planning.engine_model import EngineModel
from blend.core.planning.hardware import Hardware, ModelShape
from blend.core.planning.lengths import OBSERVED, Lengths, Observations, estimate
from blend.core.planning.merge import merged_density
from blend.core.planning.outline import OutlineNode, outline, subtree_by_row
from blend.core.planning.outlook import Candidate as Candidate
from blend.core.planning.outlook import Outlook
from blend.core.planning.prediction import Prediction, predict
from blend.core.planning.prefix_match import sglang_order
from blend.core.planning.reorder import reorder
from blend.core.planning.split import Split
from blend.core.planning.tree import Floats, Ints, Tree, build_tree, uncached_tokens
from blend.core.planning.ways import AS_IT_COMES, Way
from blend.core.prompts import Prompts
from blend.core.schedule import LEFT, RIGHT, Policy, Schedule

KEPT_SHARING = 0.99

BY_CLASS: tuple[Policy, ...] = ("blend", "memory-first")
"""Policies that order rows by their classes of like length."""


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """What the plan was made with; ``way`` is how the engine is to be run.

    ``candidate``: which of several was chosen, "" where none were compared.
    """

    policy: Policy
    seed: int
    kept_sharing: float
    hardware: Hardware
    model: ModelShape
    mode: Mode
    way: Way = AS_IT_COMES
    candidate: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """A schedule with everything that explains it; ``split`` is None but for ``paper``.

    ``subtree`` (n,) by row: the deepest subtree of the outline that holds it. ``outlook``: what
    simulated runs came to, where there were any.
    """

    schedule: Schedule
    lengths: Lengths
    prediction: Prediction
    outline: tuple[OutlineNode, ...]
    subtree: npt.NDArray[np.int32]
    settings: PlanSettings
    split: Split | None = None
    outlook: Outlook | None = None

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Return the ways of running the job that were simulated, the fastest first."""
        return self.outlook.candidates if self.outlook else ()


@dataclass(frozen=True, slots=True)
class _Order:
    """Rows in order, the prompt tokens and seconds they compute, the density of their node."""

    tree: Tree
    rows: Ints
    uncached: Ints
    comp_s: Floats
    density: Floats
    split: Split | None = None
    border: int | None = None


def plan_on(
    engine: EngineModel,
    prompts: Prompts,
    *,
    policy: Policy,
    observations: Observations | None,
    tree: Tree,
    seed: int,
) -> Plan:
    """Return the plan of *policy* for all *prompts*, on the device and in the mode of *engine*."""
    return make_plan(
        prompts,
        policy=policy,
        hardware=engine.hardware,
        model=engine.model,
        observations=observations,
        tree=tree,
        seed=seed,
        mode=engine.mode,
    )


def make_plan(
    prompts: Prompts,
    *,
    policy: Policy,
    hardware: Hardware,
    model: ModelShape,
    observations: Observations | None = None,
    tree: Tree | None = None,
    seed: int = 0,
    kept_sharing: float = KEPT_SHARING,
    mode: Mode = "sequential",
) -> Plan:
    """Return the plan of *policy* for all *prompts*, on an engine of this *mode*.

    ``tree`` is that of `build_tree` where it is at hand, and is built otherwise; ``seed`` is that
    of the ``random`` policy.
    """
    tree = build_tree(prompts) if tree is None else tree
    lengths = estimate(tree, prompts, observations)
    classes: LengthClasses | None = None
    blending: Blending | None = None
    if policy in BY_CLASS and len(tree):
        classes = find_classes(
            tree, prompts.max_tokens, observations, known_tokens=prompts.known_tokens
        )
        lengths = _by_class(lengths, classes)
    demand = demand_of(prompts, lengths, hardware=hardware, model=model)
    if classes is None:
        order = _order(tree, demand, policy=policy, seed=seed, kept_sharing=kept_sharing)
    else:
        order = _class_order(tree, classes, demand, lengths, policy=policy, seed=seed)
        if policy == "blend":
            blending = blending_of(classes, hardware=hardware, model=model, mode=mode)
    shown = outline(order.tree, lengths, demand)
    prediction = predict(
        prompts,
        lengths,
        demand,
        tree=tree,
        computed_tokens=int(order.uncached.sum()),
        comp_s=float(order.comp_s.sum()),
    )
    return Plan(
        Schedule(
            policy,
            order=order.rows,
            side=_sides(order, demand, policy=policy, root=prediction.density),
            expected_tokens=lengths.expected[order.rows],
            uncached_tokens=order.uncached,
            density=order.density,
            root_density=prediction.density,
            blending=blending,
        ),
        lengths,
        prediction,
        shown,
        subtree_by_row(order.tree, shown),
        PlanSettings(policy, seed, kept_sharing, hardware, model, mode),
        order.split,
    )


def _order(tree: Tree, demand: Demand, *, policy: Policy, seed: int, kept_sharing: float) -> _Order:
    if policy == "paper":
        reordered, split = reorder(tree, demand, kept_sharing=kept_sharing)
        return _depth_first(reordered, demand, split=split)
    if policy == "dfs":
        return _depth_first(tree, demand)
    rows = np.arange(len(tree))
    if policy == "random":
        rows = np.random.default_rng(seed).permutation(len(tree))
    if policy == "sglang":
        rows = sglang_order(tree)
    return _scattered(tree, demand, rows=rows, uncached=uncached_tokens(tree, rows)[rows])


def _class_order(
    tree: Tree,
    classes: LengthClasses,
    demand: Demand,
    lengths: Lengths,
    *,
    policy: Policy,
    seed: int,
) -> _Order:
    if policy == "memory-first":
        rows = memory_first_order(tree, classes, demand)
        return _scattered(tree, demand, rows=rows, uncached=uncached_tokens(tree, rows)[rows])
    found = blended_order(tree, classes, demand, lengths.expected, seed=seed)
    order = _scattered(tree, demand, rows=found.rows, uncached=found.uncached)
    return replace(order, density=found.density, border=found.border)


def _by_class(lengths: Lengths, classes: LengthClasses) -> Lengths:
    """Return the expectation of each row's class where the row's own answer is not known."""
    from blend.core.planning.beliefs import expected_tokens  # numba is slow to import

    expected = expected_tokens(classes)
    return Lengths(np.where(lengths.source == OBSERVED, lengths.expected, expected), lengths.source)


def _scattered(tree: Tree, demand: Demand, *, rows: Ints, uncached: Ints) -> _Order:
    """Return an order that need not follow the tree."""
    lengths = np.empty(len(tree), dtype=np.int64)
    lengths[tree.rows] = tree.lengths
    comp = demand.prefill_s(lengths[rows] - uncached, lengths[rows]) + demand.decode_comp_s[rows]
    return _Order(tree, rows, uncached, comp, comp / demand.mem_s[rows])


def _depth_first(tree: Tree, demand: Demand, *, split: Split | None = None) -> _Order:
    comp = demand.prefill_s(tree.lcp, tree.lengths) + demand.decode_comp_s[tree.rows]
    density = merged_density(tree, demand)
    return _Order(tree, tree.rows, tree.lengths - tree.lcp, comp, density, split)


def _sides(order: _Order, demand: Demand, *, policy: Policy, root: float) -> npt.NDArray[np.int8]:
    """Return LEFT up to the border that puts the most memory time on the side where it belongs."""
    side = np.full(len(order.rows), LEFT, dtype=np.int8)
    if order.border is not None:
        side[order.border :] = RIGHT
    if policy == "paper":
        seconds = demand.mem_s[order.rows]
        agreement = np.cumsum(np.where(order.density >= root, seconds, -seconds))
        border = int(agreement.argmax()) + 1 if agreement.max(initial=0.0) > 0 else 0
        side[border:] = RIGHT
    return side
