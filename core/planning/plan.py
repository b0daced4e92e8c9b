"""The composition of a plan: tree, lengths, order, and what to expect of running it.

Differs from the paper: the predicted times are closed forms over the whole job, the two ends of
what engines can do. No engine beats ``overlapped_s``, and a sequential one ``sequential_s``.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from blend.core.planning.blending import blended_order, blending_of, memory_first_order
from blend.core.planning.classes import Blending, LengthClasses, Mode, find_classes
from blend.core.planning.communication import network_step_s, network_token_s
from blend.core.planning.cost import read_token_steps, weights_s
from blend.core.planning.demand import Demand, demand_of
from blend.core.planning.engine_model import EngineModel
from blend.core.planning.hardware import Hardware, ModelShape, kv_capacity_tokens
from blend.core.planning.lengths import OBSERVED, Lengths, Observations, estimate
from blend.core.planning.merge import merged_density
from blend.core.planning.outline import OutlineNode, outline, subtree_by_row
from blend.core.planning.outlook import Candidate as Candidate
from blend.core.planning.outlook import Outlook
from blend.core.planning.prefix_match import sglang_order
from blend.core.planning.reorder import reorder
from blend.core.planning.split import Split
from blend.core.planning.tree import Floats, Ints, Tree, build_tree, own_tokens, uncached_tokens
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
class Prediction:
    """What running the whole job takes.

    ``computed_tokens`` are the prompt tokens left to compute in this order with a cache that
    forgets nothing (``paper``, ``dfs``: that holds the row before), ``best_computed_tokens`` those
    of a depth-first order; ``sharing`` and ``best_sharing`` are the shares of the prompt tokens
    saved. ``weights_s`` is the time to read the weights at each of ``steps``, the fewest that fit
    the answers and the memory; the times have the overhead of these steps where it was measured,
    and ``network_s``, what several devices say to each other. Tokens a second count input and
    output.
    """

    rows: int
    prompt_tokens: int
    computed_tokens: int
    best_computed_tokens: int
    sharing: float
    best_sharing: float
    output_tokens: float
    comp_s: float
    mem_s: float
    density: float
    steps: float
    weights_s: float
    network_s: float
    overlapped_s: float
    sequential_s: float
    overlapped_tokens_s: float
    sequential_tokens_s: float


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
    prediction = _predict(prompts, lengths, demand, order=order, tree=tree)
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


def _predict(
    prompts: Prompts, lengths: Lengths, demand: Demand, *, order: _Order, tree: Tree
) -> Prediction:
    # An embedding is planned as a row of one token, but has no answer.
    output = np.where(prompts.max_tokens > 0, lengths.expected, 0.0) * prompts.sequences
    comp, mem = float(order.comp_s.sum()), float(demand.mem_s.sum())
    steps = _fewest_steps(tree, lengths, demand, sequences=prompts.sequences)
    weights = steps * weights_s(hardware=demand.hardware, model=demand.model)
    overhead = steps * demand.hardware.step_overhead_s
    prompt_tokens, computed = int(prompts.lengths.sum()), int(order.uncached.sum())
    network = (computed + float(output.sum())) * network_token_s(demand.hardware, demand.model)
    network += steps * network_step_s(demand.hardware, demand.model)
    overlapped, sequential = (
        max(comp, mem + weights, network) + overhead,
        max(comp, weights) + mem + network + overhead,
    )
    best = tree.unique_tokens
    all_tokens = prompt_tokens + float(output.sum())
    return Prediction(
        rows=len(prompts),
        prompt_tokens=prompt_tokens,
        computed_tokens=computed,
        best_computed_tokens=best,
        sharing=1.0 - computed / max(prompt_tokens, 1),
        best_sharing=1.0 - best / max(prompt_tokens, 1),
        output_tokens=float(output.sum()),
        comp_s=comp,
        mem_s=mem,
        density=comp / mem if mem else 0.0,
        steps=steps,
        weights_s=weights,
        network_s=network,
        overlapped_s=overlapped,
        sequential_s=sequential,
        overlapped_tokens_s=all_tokens / overlapped if overlapped else 0.0,
        sequential_tokens_s=all_tokens / sequential if sequential else 0.0,
    )


def _fewest_steps(
    tree: Tree, lengths: Lengths, demand: Demand, *, sequences: npt.NDArray[np.int32]
) -> float:
    """Return the longest answer, or the steps to pass all that is held through the memory."""
    expected, room = lengths.expected, kv_capacity_tokens(demand.hardware, demand.model)
    # A prefix is held once for the rows that share it, and a prompt for all its sequences.
    own = expected[tree.rows] * own_tokens(tree.lengths, tree.lcp)
    grown = sequences * read_token_steps(np.zeros_like(expected), expected)
    held = float(own.sum()) + float(grown.sum())
    return max(float(expected.max(initial=0.0)), held / room if room else 0.0)
