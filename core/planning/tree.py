"""The prefix tree of all prompts, as arrays (paper §5.1).

Rows lie in depth-first order, so every subtree is a range of positions and every sum over a
subtree a difference of two prefix sums. Inner nodes are shared segments; a row is a leaf of the
deepest node that holds it. Node 0 is the root, at depth 0.

Invariant: a node's range contains the ranges of its children, its depth is greater than its
parent's (the root aside), its number too, and it has at least two children (the root aside).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from blend.core.prompts import Prompts

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

ROOT = 0


@dataclass(frozen=True, slots=True)
class Tree:
    """A prefix tree over n rows with m nodes.

    By position (n,): ``rows``; ``lengths``, prompt tokens; ``lcp``, tokens shared with the
    position before (0 for the first); ``leaf_parent``, the node a row hangs from. By node (m,):
    ``lo`` and ``hi``, its positions [lo, hi); ``parent`` (the root is its own); ``depth``, tokens.
    """

    rows: Ints
    lengths: Ints
    lcp: Ints
    leaf_parent: Ints
    lo: Ints
    hi: Ints
    parent: Ints
    depth: Ints

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def segment(self) -> Ints:
        """Return the tokens that each node adds to its parent's prefix, (m,)."""
        return self.depth - self.depth[self.parent]

    @property
    def unique_tokens(self) -> int:
        """Return the tokens a depth-first order computes: each shared segment once."""
        return int((self.lengths - self.lcp).sum())

    @property
    def sharing(self) -> float:
        """Return the share of prompt tokens that a depth-first order need not compute."""
        total = int(self.lengths.sum())
        return 1.0 - self.unique_tokens / total if total else 0.0

    def sums(self, by_position: npt.ArrayLike) -> Floats:
        """Return the sum of *by_position*, (n,), over the subtree of every node, (m,)."""
        cumulative = np.concatenate([[0.0], np.cumsum(by_position, dtype=np.float64)])
        over: Floats = cumulative[self.hi] - cumulative[self.lo]
        return over

    def path(self, row: int) -> list[int]:
        """Return the nodes from the root to the one that *row* hangs from."""
        node = int(self.leaf_parent[int(np.flatnonzero(self.rows == row)[0])])
        nodes = [node]
        while node != ROOT:
            node = int(self.parent[node])
            nodes.append(node)
        return nodes[::-1]


def build_tree(prompts: Prompts) -> Tree:
    """Return the prefix tree of *prompts*, children in the order of their token ids.

    O(n log n) comparisons of prompts and O(n) for the nodes; no recursion, so that chains of any
    depth are fine. Holds one more copy of the tokens while sorting.
    """
    rows = np.array(_sorted_rows(prompts), dtype=np.int64)
    lcp = np.zeros(len(rows), dtype=np.int64)
    lcp[1:] = list(_shared_with_previous(prompts, rows))
    return tree_of(rows, lengths=prompts.lengths[rows], lcp=lcp)


def tree_of(rows: Ints, *, lengths: Ints, lcp: Ints) -> Tree:
    """Return the tree of *rows* in depth-first order that share *lcp* tokens with the row before.

    The nodes are the maximal ranges that share a prefix (lcp intervals), found with one stack.
    """
    lo, hi, parent, depth, leaf_parent = _intervals(lcp.tolist())
    return Tree(rows, lengths, lcp, leaf_parent, lo=lo, hi=hi, parent=parent, depth=depth)


def uncached_tokens(tree: Tree, order: Ints) -> Ints:
    """Return the prompt tokens each row computes in *order* with an unbounded cache, (n,) by row.

    A node's segment is computed by the first row of its subtree to come.
    """
    rank = np.empty(len(tree), dtype=np.int64)
    rank[order] = np.arange(len(order))
    payer = _first_by_node(tree, rank[tree.rows])
    paid = np.bincount(payer, weights=tree.segment, minlength=len(tree))[: len(tree)]
    uncached = np.empty(len(tree), dtype=np.int64)
    uncached[tree.rows] = tree.lengths - tree.depth[tree.leaf_parent]
    uncached[order] += paid.astype(np.int64)
    return uncached


def shared_within(tree: Tree, rows: npt.NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Return the positions of *rows*, (n,) by row, and what each shares with the one before.

    As `Tree.lcp` would say of a tree of these rows alone: (k,) and (k,).
    """
    kept = np.flatnonzero(rows[tree.rows])
    if len(kept) == len(tree):
        return kept, tree.lcp
    starts = np.concatenate([np.zeros(min(len(kept), 1), np.int64), kept[:-1] + 1])
    shared = np.minimum.reduceat(tree.lcp[: kept[-1] + 1], starts) if len(kept) else kept
    return kept, shared


def own_tokens(lengths: Ints, lcp: Ints) -> Ints:
    """Return the tokens of each row that no other row begins with, (n,) by position as both are."""
    own: Ints = lengths - np.maximum(lcp, np.append(lcp[1:], 0))
    return own


def _sorted_rows(prompts: Prompts) -> list[int]:
    # Big-endian ids compare as bytes the way they compare as numbers, at memcmp's speed.
    keys = [prompts[row].astype(">u4").tobytes() for row in range(len(prompts))]
    return sorted(range(len(keys)), key=keys.__getitem__)


def _shared_with_previous(prompts: Prompts, rows: Ints) -> Iterator[int]:
    tokens = prompts.tokens
    starts, ends = prompts.starts[rows].tolist(), prompts.starts[rows + 1].tolist()
    for i in range(1, len(starts)):
        length = min(ends[i - 1] - starts[i - 1], ends[i] - starts[i])
        before = tokens[starts[i - 1] : starts[i - 1] + length]
        differs = before != tokens[starts[i] : starts[i] + length]
        first = int(differs.argmax()) if length else 0
        yield first if length and differs[first] else length


def _first_by_node(tree: Tree, rank: Ints) -> Ints:
    leaf_first = np.full(len(tree.parent), len(tree), dtype=np.int64)
    np.minimum.at(leaf_first, tree.leaf_parent, rank)
    first, parent = leaf_first.tolist(), tree.parent.tolist()
    for node in range(len(first) - 1, 0, -1):
        first[parent[node]] = min(first[parent[node]], first[node])
    return np.array(first, dtype=np.int64)


def _intervals(lcp: list[int]) -> tuple[Ints, ...]:
    n = len(lcp)
    lo, hi, parent, depth = [0], [n], [ROOT], [0]
    leaf_parent = [ROOT] * n
    path = [ROOT]

    def enter(position: int, shared: int) -> None:
        path.append(len(lo))
        lo.append(position)
        hi.append(n)
        parent.append(ROOT)
        depth.append(shared)

    for position in range(n):
        shared = lcp[position + 1] if position + 1 < n else 0
        if shared > depth[path[-1]]:
            enter(position, shared)
        leaf_parent[position] = path[-1]
        while depth[path[-1]] > shared:
            node = path.pop()
            hi[node] = position + 1
            if depth[path[-1]] < shared:
                # The next row leaves this node halfway down: a node above adopts both.
                enter(lo[node], shared)
            parent[node] = path[-1]
    return _parents_first(lo, hi, parent, depth, leaf_parent)


def _parents_first(*columns: list[int]) -> tuple[Ints, ...]:
    lo, hi, parent, depth, leaf_parent = (np.array(c, dtype=np.int64) for c in columns)
    order = np.lexsort((depth, lo))
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    return lo[order], hi[order], number[parent[order]], depth[order], number[leaf_parent]
