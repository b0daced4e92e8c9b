"""The order of the paper's policy: cut outliers off, then sort by density (paper §5.2)."""

import numpy as np

from blend.core.planning.demand import Demand, leaf_seconds, subtree_seconds
from blend.core.planning.split import Split, split_outliers
from blend.core.planning.tree import Ints, Tree


def reorder(tree: Tree, demand: Demand, *, kept_sharing: float = 0.99) -> tuple[Tree, Split]:
    """Return *tree* with its outliers cut off, sorted by density, and what the split did.

    At least *kept_sharing* of the shared tokens stay shared.
    """
    divided, split = split_outliers(tree, demand, kept_sharing=kept_sharing)
    return sort_layers(divided, demand), split


def sort_layers(tree: Tree, demand: Demand) -> Tree:
    """Return *tree* with the children of every node sorted by density, highest first (Algorithm 1).

    Only siblings move: every node keeps its number, parent, depth and rows, so sharing is
    untouched. Equal densities keep their order.
    """
    node_comp, node_mem = subtree_seconds(tree, demand)
    leaf_comp, leaf_mem = leaf_seconds(tree, demand)
    # Children are the nodes but the root, then the rows.
    parent = np.concatenate([tree.parent[1:], tree.leaf_parent])
    comp, mem = np.concatenate([node_comp[1:], leaf_comp]), np.concatenate([node_mem[1:], leaf_mem])
    size = np.concatenate([tree.hi[1:] - tree.lo[1:], np.ones(len(tree), dtype=np.int64)])
    place = np.concatenate([tree.lo[1:], np.arange(len(tree))])
    order = np.lexsort((place, -comp / mem, parent))
    offset = _offset_in_parent(parent[order], size[order])
    start = np.empty_like(offset)
    start[order] = offset
    return _moved(tree, start_in_parent=start)


def _offset_in_parent(parent: Ints, size: Ints) -> Ints:
    """Return the rows of the siblings before each child; children lie grouped by parent."""
    before = np.cumsum(size) - size
    first = np.searchsorted(parent, parent)
    return before - before[first]


def _moved(tree: Tree, *, start_in_parent: Ints) -> Tree:
    nodes = len(tree.parent) - 1
    lo = [0, *start_in_parent[:nodes].tolist()]
    parent = tree.parent.tolist()
    for node in range(1, len(lo)):
        lo[node] += lo[parent[node]]
    node_lo = np.array(lo, dtype=np.int64)
    position = start_in_parent[nodes:] + node_lo[tree.leaf_parent]
    source = np.empty(len(tree), dtype=np.int64)
    source[position] = np.arange(len(tree))
    return Tree(
        tree.rows[source],
        tree.lengths[source],
        _lcp(tree, start_in_parent, np.concatenate([node_lo[1:], position])),
        tree.leaf_parent[source],
        lo=node_lo,
        hi=node_lo + tree.hi - tree.lo,
        parent=tree.parent,
        depth=tree.depth,
    )


def _lcp(tree: Tree, start_in_parent: Ints, place: Ints) -> Ints:
    # Each position but the first is the start of exactly one child that is not its parent's
    # first; what it shares with the position before is that parent's prefix.
    parent = np.concatenate([tree.parent[1:], tree.leaf_parent])
    later = start_in_parent > 0
    lcp = np.zeros(len(tree), dtype=np.int64)
    lcp[place[later]] = tree.depth[parent[later]]
    return lcp
