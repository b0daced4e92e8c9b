"""The order of the blending policy: compute-bound classes first, the memory-bound ones last.

Classes stand by their density, on the left in depth-first order. Inside a memory-bound class no
order may follow anything that goes with length, for the estimator takes the rows for exchangeable
draws: subtrees and rows come at random, every subtree in one piece. Where lengths are known the
last to be taken are the longest first, so that none is left running alone.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from blend.core.planning.classes import Blending, LengthClasses, Mode
from blend.core.planning.cost import decode_comp_s, mem_s, weights_s
from blend.core.planning.demand import Demand
from blend.core.planning.hardware import Hardware, ModelShape
from blend.core.planning.tree import Floats, Ints, Tree, uncached_tokens
from blend.core.schedule import LEFT, RIGHT, Schedule

LONGEST_FIRST_SHARE = 0.3


@dataclass(frozen=True, slots=True)
class BlendOrder:
    """Rows in order, with the density of their class and the tokens they compute, by position.

    ``border``: the position of the first memory-bound row.
    """

    rows: Ints
    density: Floats
    uncached: Ints
    border: int


def blended_schedule(
    tree: Tree,
    classes: LengthClasses,
    *,
    hardware: Hardware,
    model: ModelShape,
    mode: Mode,
    seed: int = 0,
    caution: float = 2.0,
    reserved: bool = True,
) -> Schedule:
    """Return the schedule of the policy ``blend`` for one sequence a row."""
    expected, demand = _expected_demand(tree, classes, hardware=hardware, model=model)
    order = blended_order(tree, classes, demand, expected, seed=seed)
    blending = blending_of(
        classes, hardware=hardware, model=model, mode=mode, caution=caution, reserved=reserved
    )
    side = np.where(np.arange(len(tree)) < order.border, LEFT, RIGHT).astype(np.int8)
    return Schedule(
        "blend",
        order.rows,
        side,
        expected[order.rows],
        order.uncached,
        order.density,
        class_densities(tree, classes, demand)[1],
        blending,
    )


def memory_first_schedule(
    tree: Tree, classes: LengthClasses, *, hardware: Hardware, model: ModelShape
) -> Schedule:
    """Return the schedule that takes memory-bound classes first, each in depth-first order."""
    expected, demand = _expected_demand(tree, classes, hardware=hardware, model=model)
    rows = memory_first_order(tree, classes, demand)
    density, root = class_densities(tree, classes, demand)
    return Schedule(
        "memory-first",
        rows,
        np.full(len(tree), LEFT, np.int8),
        expected[rows],
        uncached_tokens(tree, rows)[rows],
        density[classes.label[rows]],
        root,
    )


def memory_first_order(tree: Tree, classes: LengthClasses, demand: Demand) -> Ints:
    """Return the rows, memory-bound classes first, each in depth-first order."""
    density, _ = class_densities(tree, classes, demand)
    rows: Ints = np.lexsort((_places(tree, tree.rows), classes.label, density[classes.label]))
    return rows


def blending_of(
    classes: LengthClasses,
    *,
    hardware: Hardware,
    model: ModelShape,
    mode: Mode,
    caution: float = 2.0,
    reserved: bool = True,
) -> Blending:
    """Return what the scanner is told of a device."""
    return Blending(
        classes,
        token_s=float(decode_comp_s(np.ones(1), hardware=hardware, model=model)[0]),
        read_s=model.kv_bytes_per_token / hardware.bandwidth_bytes_s,
        weights_s=weights_s(hardware=hardware, model=model),
        mode=mode,
        caution=caution,
        reserved=reserved,
    )


def _expected_demand(
    tree: Tree, classes: LengthClasses, *, hardware: Hardware, model: ModelShape
) -> tuple[Floats, Demand]:
    from blend.core.planning.beliefs import expected_tokens  # numba is slow to import

    prompts = np.empty(len(tree), np.int64)
    prompts[tree.rows] = tree.lengths
    expected = expected_tokens(classes)
    return expected, Demand(
        decode_comp_s(expected, hardware=hardware, model=model),
        mem_s(prompts, expected, hardware=hardware, model=model),
        hardware,
        model,
    )


def blended_order(
    tree: Tree, classes: LengthClasses, demand: Demand, expected: Floats, *, seed: int
) -> BlendOrder:
    """Return the order of all rows of *tree*; ``expected`` (n,) by row."""
    density, root = class_densities(tree, classes, demand)
    of_row = density[classes.label]
    right = of_row < min(root, 1.0)
    rng = np.random.default_rng(seed)
    key = np.where(right, shuffled_places(tree, rng), _places(tree, tree.rows))
    _put_longest_last(key, right & (classes.known > 0), classes.label, expected, rng=rng)
    rows = np.lexsort((key, classes.label, -of_row))
    border = int((~right).sum())
    return BlendOrder(rows, of_row[rows], _uncached(tree, rows, border), border)


def class_densities(tree: Tree, classes: LengthClasses, demand: Demand) -> tuple[Floats, float]:
    """Return the density of each class, its own prompt tokens alone, and of all rows together."""
    own = np.empty(len(tree))
    own[tree.rows] = demand.prefill_s(tree.depth[tree.leaf_parent], tree.lengths)
    comp = np.bincount(classes.label, own + demand.decode_comp_s, len(classes))
    mem = np.bincount(classes.label, demand.mem_s, len(classes))
    density: Floats = comp / np.maximum(mem, 1e-12)
    return density, float(comp.sum() / max(mem.sum(), 1e-12))


def shuffled_places(tree: Tree, rng: np.random.Generator) -> Ints:
    """Return the place of each row, (n,), in a depth-first order with children at random."""
    nodes, n = len(tree.parent), len(tree)
    # The children of a node are its subtrees and its own rows.
    parent = np.concatenate([tree.parent[1:], tree.leaf_parent])
    size = np.concatenate([(tree.hi - tree.lo)[1:], np.ones(n, np.int64)])
    order = np.lexsort((rng.random(len(parent)), parent))
    before = np.cumsum(size[order]) - size[order]
    first = np.searchsorted(parent[order], np.arange(nodes))
    offset = np.empty(len(parent), np.int64)
    offset[order] = before - before[np.minimum(first[parent[order]], len(before) - 1)]
    start = [0] * nodes
    above, inside = tree.parent.tolist(), offset[: nodes - 1].tolist()
    for node in range(1, nodes):
        start[node] = start[above[node]] + inside[node - 1]
    places = np.empty(n, np.int64)
    places[tree.rows] = np.array(start)[tree.leaf_parent] + offset[nodes - 1 :]
    return places


def _places(tree: Tree, order: Ints) -> Ints:
    places = np.empty(len(tree), np.int64)
    places[order] = np.arange(len(tree))
    return places


def _put_longest_last(
    key: Ints,
    known: npt.NDArray[np.bool_],
    label: npt.NDArray[np.int32],
    expected: Floats,
    *,
    rng: np.random.Generator,
) -> None:
    """Reorder known rows of each class: the last part, taken from the right, longest first."""
    for one in np.unique(label[known]):
        rows = rng.permutation(np.flatnonzero(known & (label == one)))
        last = int(LONGEST_FIRST_SHARE * len(rows))
        rows[:last] = rows[:last][np.argsort(expected[rows[:last]], kind="stable")]
        key[rows] = np.arange(len(rows))


def _uncached(tree: Tree, rows: Ints, border: int) -> Ints:
    # The right side is taken from its end, so there the last row of a subtree pays for it.
    taken = np.concatenate([rows[:border], rows[border:][::-1]])
    uncached: Ints = uncached_tokens(tree, taken)[rows]
    return uncached
