"""The prefix tree as a person reads it: the few subtrees that make the job."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from blend.core.planning.demand import Demand, subtree_seconds
from blend.core.planning.lengths import OBSERVED, Lengths
from blend.core.planning.tree import ROOT, Floats, Tree


@dataclass(frozen=True, slots=True)
class OutlineNode:
    """One subtree: its place, its rows and tokens, what it shares and what it costs.

    ``level`` is 0 for the whole job and ``parent`` the index of the node above in the outline;
    ``prefix_tokens`` are shared by all its rows; ``computed_tokens`` are left of its prompt tokens
    when each shared segment is computed once, ``sharing`` is the share that is not. Seconds and
    density leave out the prefix of the node above. ``expected_tokens`` is the mean output of a
    sequence, ``sampled_tokens`` that of the rows that ran in the sample and finished. ``lo`` and
    ``hi``: its positions [lo, hi) in the depth-first order of its tree.
    """

    level: int
    parent: int
    rows: int
    prefix_tokens: int
    prompt_tokens: int
    computed_tokens: int
    sharing: float
    comp_s: float
    mem_s: float
    density: float
    expected_tokens: float
    sampled_rows: int
    sampled_tokens: float | None
    example_row: int
    lo: int
    hi: int


def outline(
    tree: Tree, lengths: Lengths, demand: Demand, *, levels: int = 4, children: int = 12
) -> tuple[OutlineNode, ...]:
    """Return the *children* costliest subtrees of every node down to *levels*, depth first."""
    if not len(tree):
        return ()
    comp, mem = subtree_seconds(tree, demand)
    expected = lengths.expected[tree.rows]
    observed = lengths.source[tree.rows] == OBSERVED
    computed = tree.sums(tree.lengths - tree.lcp) + tree.lcp[tree.lo]
    columns = {
        "rows": tree.hi - tree.lo,
        "prefix_tokens": tree.depth,
        "prompt_tokens": tree.sums(tree.lengths).astype(np.int64),
        "computed_tokens": computed.astype(np.int64),
        "sharing": 1.0 - computed / np.maximum(tree.sums(tree.lengths), 1.0),
        "comp_s": comp,
        "mem_s": mem,
        "density": comp / mem,
        "expected_tokens": tree.sums(expected) / (tree.hi - tree.lo),
        "sampled_rows": tree.sums(observed).astype(np.int64),
        "example_row": tree.rows[tree.lo],
        "lo": tree.lo,
        "hi": tree.hi,
    }
    sampled = tree.sums(np.where(observed, expected, 0.0)) / np.maximum(tree.sums(observed), 1.0)
    return tuple(
        OutlineNode(
            level=level,
            parent=above,
            sampled_tokens=float(sampled[node]) if columns["sampled_rows"][node] else None,
            **{name: column[node].item() for name, column in columns.items()},
        )
        for node, level, above in _visit(tree, comp + mem, levels, children)
    )


def subtree_by_row(tree: Tree, nodes: Sequence[OutlineNode]) -> npt.NDArray[np.int32]:
    """Return the index of the deepest of *nodes* that holds each row, (n,)."""
    found = np.zeros(len(tree), np.int32)
    for index, node in enumerate(nodes):
        found[tree.rows[node.lo : node.hi]] = index
    return found


def top_subtrees(parents: Sequence[int]) -> list[int]:
    """Return for each node of an outline the one right below the root that it is in; 0 for none."""
    top: list[int] = []
    for node, above in enumerate(parents):
        top.append(top[above] or node if node else 0)
    return top


def _visit(
    tree: Tree, work_s: Floats, levels: int, children: int
) -> Iterator[tuple[int, int, int]]:
    """Yield the nodes to show with their level and the index of the node above."""
    waiting = [(ROOT, 0, 0)]
    shown = 0
    while waiting:
        node, level, above = waiting.pop()
        yield node, level, above
        if level < levels:
            below = np.flatnonzero(tree.parent == node)
            below = below[below != ROOT]
            costliest = below[np.argsort(-work_s[below], kind="stable")][:children]
            waiting += [(int(child), level + 1, shown) for child in reversed(costliest)]
        shown += 1
