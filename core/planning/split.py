"""Conditional split: rows on the wrong side of their group are cut off (paper §5.2, Algorithm 2).

A group that shares a prefix stays together in the schedule, so the few long answers among its
short ones would run far from their like. The *balance* of a row is comp / (comp + mem); in eighths
it is its *band*. The rows of one band below a node are a *part* of it, the one with most work its
main part. A part two or more bands from the main one is an outlier. Cut off, it hangs under the
prefix that all rows share, where the sort finds its place, and the node's segment is computed
once more for it. Its gain is its seconds of work times the difference of the balances; it must
exceed the seconds recomputed times a price. Bottom up, a part joins those of the same band from
the siblings, and together they pay for the segments above. The price starts at 1 and doubles
until the shared tokens lost are within the threshold.

Differs from the paper: outliers of one node that are cut together keep sharing its prefix, so it
is paid once and not once a child; 1 % of the sharing would otherwise pay for 1 % of the rows at
most. And an outlier is told by its balance, not by the order of densities alone: of two rows both
limited by compute it does not matter which runs first.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from blend.core.planning.demand import Demand, fair_comp_s
from blend.core.planning.tree import ROOT, Floats, Ints, Tree, tree_of

BANDS = 8
APART = 2  # bands between a row and its part from which on it is in the wrong place

StopReason = Literal["ordered", "unaffordable"]
Filing = tuple[int, ...]  # the band that each band of a node is filed under

AS_IS: Filing = tuple(range(BANDS))


@dataclass(frozen=True, slots=True)
class Split:
    """What the split did: parts cut off, rows in them, prompt tokens computed once more for them.

    The rows of a group's largest part count as those that stayed.
    ``stopped``: "ordered" when no outlier is left (C1), "unaffordable" when all that are left cost
    more than their gain or than the threshold (C2).
    """

    cuts: int
    rows_moved: int
    recomputed_tokens: int
    threshold_tokens: int
    stopped: StopReason


@dataclass(slots=True)
class _Part:
    comp_s: float
    work_s: float
    cost_s: float = 0.0


_Parts = dict[int, _Part]


def split_outliers(tree: Tree, demand: Demand, *, kept_sharing: float) -> tuple[Tree, Split]:
    """Return the tree with its outliers cut off and what was done; each row moves at most once.

    At least *kept_sharing* of the shared tokens stay shared.
    """
    top = _common_prefix(tree)
    comp_s = fair_comp_s(tree, demand)
    work_s = comp_s + demand.mem_s[tree.rows]
    band = np.minimum((comp_s / work_s * BANDS).astype(np.int64), BANDS - 1)
    segment_s = demand.prefill_s(tree.depth[tree.parent], tree.depth)
    threshold = int((1.0 - kept_sharing) * int(tree.lcp.sum()))
    price = 1.0
    while True:
        parts = _leaf_parts(tree, band, comp_s, work_s)
        filed = _file(tree, parts, (segment_s * price).tolist(), top)
        label = np.array(filed, dtype=np.int64)[tree.leaf_parent, band]
        order, lcp = _regrouped(tree, label, top)
        recomputed = int(tree.lcp.sum() - lcp.sum())
        if recomputed <= threshold:
            break
        price *= 2.0
    cuts, rows_moved = _count(tree, label, top)
    left = bool((np.abs(band - label) >= APART).any())
    split = Split(cuts, rows_moved, recomputed, threshold, "unaffordable" if left else "ordered")
    if not cuts:
        return tree, split
    return tree_of(tree.rows[order], lengths=tree.lengths[order], lcp=lcp), split


def _common_prefix(tree: Tree) -> int:
    """Return the node of the prefix that all rows share, the root when there is none."""
    common = len(tree.parent) > 1 and tree.hi[1] - tree.lo[1] == len(tree)
    return 1 if common else ROOT


def _leaf_parts(tree: Tree, band: Ints, comp_s: Floats, work_s: Floats) -> list[_Parts]:
    """Return for each node the parts that its own leaves make."""
    parts: list[_Parts] = [{} for _ in tree.parent]
    keys, index = np.unique(tree.leaf_parent * BANDS + band, return_inverse=True)
    comp = np.bincount(index.reshape(-1), weights=comp_s).tolist()
    work = np.bincount(index.reshape(-1), weights=work_s).tolist()
    for i, key in enumerate(keys.tolist()):
        parts[key // BANDS][key % BANDS] = _Part(comp[i], work[i])
    return parts


def _file(tree: Tree, parts: list[_Parts], segment_cost_s: list[float], top: int) -> list[Filing]:
    """Return for each node the band that the rows of each band are filed under in the end."""
    parent = tree.parent.tolist()
    filed = [AS_IS] * len(parent)
    for node in range(len(parent) - 1, top, -1):
        filed[node] = _keep_what_pays(parts[node], segment_cost_s[node])
        for band, part in parts[node].items():
            _join(parts[parent[node]], band, part)
    for node in range(top + 1, len(parent)):
        above = filed[parent[node]]
        # A part that joined the main one here goes wherever that one goes further up.
        filed[node] = above if filed[node] is AS_IS else tuple(above[b] for b in filed[node])
    return filed


def _keep_what_pays(parts: _Parts, segment_cost_s: float) -> Filing:
    """Join every part that is not worth its cost with the main one; return where each band went."""
    if len(parts) < 2:
        return AS_IS
    main = max(parts, key=lambda band: parts[band].work_s)
    filing = list(AS_IS)
    for band in [band for band in parts if band != main]:
        part = parts[band]
        part.cost_s += segment_cost_s
        if abs(band - main) < APART or _gain_s(part, parts[main]) <= part.cost_s:
            filing[band] = main
            _join(parts, main, parts.pop(band))
    return tuple(filing)


def _gain_s(part: _Part, main: _Part) -> float:
    return part.work_s * abs(part.comp_s / part.work_s - main.comp_s / main.work_s)


def _join(parts: _Parts, band: int, part: _Part) -> None:
    if band in parts:
        mine = parts[band]
        mine.comp_s += part.comp_s
        mine.work_s += part.work_s
        mine.cost_s += part.cost_s
    else:
        parts[band] = part


def _regrouped(tree: Tree, label: Ints, top: int) -> tuple[Ints, Ints]:
    """Return the positions part by part and what each shares with the one before, (n,) each."""
    order = np.argsort(-label, kind="stable")
    lcp = np.zeros(len(tree), dtype=np.int64)
    filled = 0
    for band in np.unique(label)[::-1]:
        positions = np.flatnonzero(label == band)
        lcp[filled] = tree.depth[top] if filled else 0
        if len(positions) > 1:
            # Two rows share the least that any neighbours between them share.
            between = tree.lcp[: positions[-1] + 1]
            shared = np.minimum.reduceat(between, positions[:-1] + 1)
            lcp[filled + 1 : filled + len(positions)] = shared
        filled += len(positions)
    return order, lcp


def _count(tree: Tree, label: Ints, top: int) -> tuple[int, int]:
    """Return how many parts were cut off and how many rows lie outside their group's largest."""
    group = np.cumsum(tree.lcp <= tree.depth[top]) - 1
    groups = int(group[-1]) + 1 if len(tree) else 0
    rows = np.bincount(group * BANDS + label, minlength=groups * BANDS).reshape(groups, BANDS)
    return int((rows > 0).sum()) - groups, len(tree) - int(rows.max(axis=1).sum())
