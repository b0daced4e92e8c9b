"""Merged nodes: runs of the schedule that the dual scanner sees as one density (paper §5.2).

Order and sharing stay as they are; only the borders of nodes change. A node holds at most
1/64 of the work unless it is a single row, and rows of like balance, unless it is tiny.
"""

import numpy as np

from blend.core.planning.demand import Demand
from blend.core.planning.tree import ROOT, Floats, Ints, Tree

LARGEST_SHARE = 1 / 64
SMALLEST_SHARE = 1 / 1024
LIKE_BALANCE = 1 / 8  # of comp / (comp + mem)


def merged_density(tree: Tree, demand: Demand) -> Floats:
    """Return for each position the density of its merged node, (n,)."""
    comp = demand.prefill_s(tree.lcp, tree.lengths) + demand.decode_comp_s[tree.rows]
    mem = demand.mem_s[tree.rows]
    starts = node_starts(tree, demand)
    sizes = np.diff(np.append(starts, len(tree)))
    if not len(tree):
        return np.empty(0)
    return np.repeat(np.add.reduceat(comp, starts) / np.add.reduceat(mem, starts), sizes)


def node_starts(tree: Tree, demand: Demand) -> Ints:
    """Return the first position of every merged node, ascending.

    Subtrees within the size limit are never cut; neighbours are joined while they fit.
    """
    starts = _small_subtrees(tree, demand)
    comp = demand.prefill_s(tree.lcp, tree.lengths) + demand.decode_comp_s[tree.rows]
    if not len(tree):
        return starts
    unit_comp = np.add.reduceat(comp, starts)
    unit_mem = np.add.reduceat(demand.mem_s[tree.rows], starts)
    total = float(unit_comp.sum() + unit_mem.sum())
    kept = _join(unit_comp.tolist(), unit_mem.tolist(), total)
    return starts[kept]


def _small_subtrees(tree: Tree, demand: Demand) -> Ints:
    """Return the starts of the largest subtrees within the limit, and of the rows outside them."""
    comp = demand.prefill_s(tree.lcp, tree.lengths) + demand.decode_comp_s[tree.rows]
    # What its rows compute in this order: its first one may bring a segment from above along.
    work = tree.sums(comp + demand.mem_s[tree.rows])
    small = work <= LARGEST_SHARE * work[ROOT]
    small[ROOT] = False
    highest = small & ~small[tree.parent]
    lone = ~small[tree.leaf_parent]
    return np.unique(np.concatenate([tree.lo[highest], np.flatnonzero(lone)]))


def _join(comp: list[float], mem: list[float], total: float) -> list[int]:
    first, node_comp, node_mem = [0], comp[0], mem[0]
    for unit in range(1, len(comp)):
        joined = node_comp + node_mem + comp[unit] + mem[unit]
        balance = comp[unit] / (comp[unit] + mem[unit])
        like = abs(balance - node_comp / (node_comp + node_mem)) <= LIKE_BALANCE
        if joined <= (LARGEST_SHARE if like else SMALLEST_SHARE) * total:
            node_comp, node_mem = node_comp + comp[unit], node_mem + mem[unit]
        else:
            first.append(unit)
            node_comp, node_mem = comp[unit], mem[unit]
    return first
