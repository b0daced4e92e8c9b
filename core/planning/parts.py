"""Which rows does each replica run? A schedule cut into parts of equal work (paper §5.5).

    cut(walk, 4) -> the part of every position

A part is balanced in two dimensions, seconds of compute and seconds of cache reads. ``subtrees``
deals out units, runs of sibling subtrees and rows small enough to be balanced: the heaviest first,
each to the part on whose load it weighs least. Units of several sizes are tried, and the cut kept
whose heaviest part, recomputed prefixes counted, is lightest: smaller units balance better and
share less. ``dual-scan`` is the paper's cut: shell by shell from both ends of the schedule.

The invariant: every position is in one part, and a part keeps the order of the schedule.

Differs from the paper: its cut gives one replica the outermost rows and another those in the
middle. Where the lengths of one kind of rows are misjudged, as all lengths are that a sample tells,
whole replicas then have too much; dealt units give every part some of every kind.
"""

from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from blend.core.planning.cost import decode_comp_s, mem_s, segment_comp_s
from blend.core.planning.hardware import Hardware, ModelShape
from blend.core.planning.tree import ROOT, Floats, Ints, Tree, tree_of
from blend.core.schedule import RIGHT, Schedule

CutName = Literal["subtrees", "dual-scan"]
CUTS: tuple[CutName, ...] = get_args(CutName)

UNITS_A_PART = (2, 4, 8, 16, 32, 64)
"""The sizes of units that are tried, as so many of them in a part; the coarser goes first."""

WORTH = 0.002
"""How much lighter, of a fair part, the heaviest part has to become for smaller units."""


@dataclass(frozen=True, slots=True)
class Walk:
    """A schedule as the prefix tree that it walks, and what its rows cost.

    By position (n,): ``expected_tokens`` of an answer and its ``copies``; ``decode_s``, compute
    seconds of these; ``mem_s``, seconds of their cache reads. ``backwards``: the rows that share
    with the one *behind* them, being read from the right.
    """

    tree: Tree
    expected_tokens: Floats
    copies: npt.NDArray[np.integer]
    decode_s: Floats
    mem_s: Floats
    backwards: npt.NDArray[np.bool_]
    hardware: Hardware
    model: ModelShape

    def __len__(self) -> int:
        return len(self.tree)

    def shared(self, positions: Ints) -> Ints:
        """Return the tokens that each row shares with the one before when only these run, (k,)."""
        if not len(positions):
            return np.zeros(0, np.int64)
        starts = np.concatenate([[0], positions[:-1] + 1])
        return np.minimum.reduceat(self.tree.lcp[: positions[-1] + 1], starts)

    @property
    def prefix_s(self) -> Floats:
        """Return the seconds that each row saves because of the one before it, (n,)."""
        depth = self.tree.lcp
        return segment_comp_s(np.zeros_like(depth), depth, hardware=self.hardware, model=self.model)

    def comp_s(self, positions: Ints) -> Floats:
        """Return the compute seconds of each row when only these run, in this order, (k,)."""
        prefill = segment_comp_s(
            self.shared(positions),
            self.tree.lengths[positions],
            hardware=self.hardware,
            model=self.model,
        )
        seconds: Floats = prefill + self.decode_s[positions]
        return seconds


def walked_tree(schedule: Schedule, prompt_tokens: Ints) -> Tree:
    """Return the tree that *schedule* walks, as far as it shares prefixes with neighbours.

    ``prompt_tokens`` by row. An order that is no tree's shares with rows far before; here that
    counts as the row before.
    """
    lengths = prompt_tokens[schedule.order]
    shared = np.clip(lengths - schedule.uncached_tokens, 0, None)
    right = _backwards(schedule)
    # Read from the right, the row behind has paid.
    behind = np.concatenate([[0], np.where(right, shared, 0)[:-1]]) if len(shared) else shared
    lcp = np.where(right, behind, shared)
    lcp[:1] = 0
    lcp[1:] = np.minimum(lcp[1:], np.minimum(lengths[1:], lengths[:-1]))
    return tree_of(schedule.order, lengths=lengths, lcp=lcp)


def walk_of(
    schedule: Schedule,
    *,
    prompt_tokens: Ints,
    sequences: npt.NDArray[np.integer],
    hardware: Hardware,
    model: ModelShape,
    expected_tokens: Floats | None = None,
) -> Walk:
    """Return *schedule* as a walk; prompt tokens and sequences are by row.

    ``expected_tokens`` (n,) by position, where the schedule does not say it.
    """
    expected = schedule.expected_tokens if expected_tokens is None else expected_tokens
    lengths, copies = prompt_tokens[schedule.order], sequences[schedule.order]
    return Walk(
        walked_tree(schedule, prompt_tokens),
        expected,
        copies,
        decode_comp_s(expected * copies, hardware=hardware, model=model),
        copies * mem_s(lengths, expected, hardware=hardware, model=model),
        _backwards(schedule),
        hardware,
        model,
    )


def cut(walk: Walk, parts: int, *, how: CutName = "subtrees") -> Ints:
    """Return the part of every position, (n,): 0 to *parts* - 1."""
    everything = np.arange(len(walk))
    if parts == 1 or not len(walk):
        return np.zeros(len(walk), np.int64)
    comp, mem = _shares(walk.comp_s(everything)), _shares(walk.mem_s)
    if how == "dual-scan":
        return _shells(comp, mem, parts)
    best = _dealt(walk.tree, comp, mem, parts, units=UNITS_A_PART[0])
    least = heaviest_part(walk, best, parts)
    for units in UNITS_A_PART[1:]:
        found = _dealt(walk.tree, comp, mem, parts, units=units)
        weight = heaviest_part(walk, found, parts)
        if weight < least - WORTH:
            best, least = found, weight
    return best


def loads(walk: Walk, part: Ints, parts: int) -> tuple[Floats, Floats]:
    """Return compute and memory seconds of each part, prefixes that it computes again counted."""
    comp = [walk.comp_s(np.flatnonzero(part == one)).sum() for one in range(parts)]
    read: Floats = np.bincount(part, walk.mem_s, parts).astype(np.float64)
    return np.array(comp), read


def heaviest_part(walk: Walk, part: Ints, parts: int) -> float:
    """Return the greatest load in either dimension, of a fair part of a job that is not cut."""
    comp, mem = loads(walk, part, parts)
    whole = walk.comp_s(np.arange(len(walk))).sum(), walk.mem_s.sum()
    return max(
        float(comp.max() * parts / whole[0]), float(mem.max() * parts / max(whole[1], 1e-12))
    )


def lost_tokens(walk: Walk, part: Ints, parts: int) -> int:
    """Return the prompt tokens that the parts compute and a job that is not cut does not."""
    shared = sum(int(walk.shared(np.flatnonzero(part == one)).sum()) for one in range(parts))
    return int(walk.tree.lcp.sum()) - shared


def part_of(schedule: Schedule, walk: Walk, positions: Ints) -> Schedule:
    """Return the schedule of the rows at *positions*, ascending, alone."""
    shared = walk.shared(positions)
    lcp = walk.tree.lcp
    right = walk.backwards[positions]
    # What a row behind has paid, the last one of a part pays itself.
    before, now = lcp[positions], shared
    behind = np.append(lcp, 0)[positions + 1]
    before, now = np.where(right, behind, before), np.where(right, np.append(shared[1:], 0), now)
    uncached = schedule.uncached_tokens[positions] + np.maximum(before - now, 0)
    uncached = np.minimum(uncached, walk.tree.lengths[positions])
    part = replace(schedule.at(positions), uncached_tokens=uncached)
    if part.blending is None:
        return part
    return replace(part, blending=replace(part.blending, movable=True))


def _backwards(schedule: Schedule) -> npt.NDArray[np.bool_]:
    if schedule.blending is None:
        return np.zeros(len(schedule), np.bool_)
    right: npt.NDArray[np.bool_] = schedule.side == RIGHT
    return right


def _shares(seconds: Floats) -> Floats:
    shares: Floats = seconds / max(float(seconds.sum()), 1e-300)
    return shares


def _dealt(tree: Tree, comp: Floats, mem: Floats, parts: int, *, units: int) -> Ints:
    """Deal units out: the heaviest first, each where the sum of the squared loads grows least."""
    starts = _units(tree, comp, mem, most=1.0 / (units * parts))
    unit_comp, unit_mem = np.add.reduceat(comp, starts), np.add.reduceat(mem, starts)
    load = np.zeros((parts, 2))
    of_unit = np.empty(len(starts), np.int64)
    for unit in np.argsort(-np.maximum(unit_comp, unit_mem), kind="stable").tolist():
        weight = unit_comp[unit], unit_mem[unit]
        chosen = int((load @ weight).argmin())
        load[chosen] += weight
        of_unit[unit] = chosen
    return np.repeat(of_unit, np.diff(np.append(starts, len(tree))))


def _units(tree: Tree, comp: Floats, mem: Floats, *, most: float) -> Ints:
    """Return the first positions of runs of siblings, each of about *most* of either at most."""
    # In the order of the walk a subtree's first row may bring a segment from above along.
    small = np.maximum(tree.sums(comp), tree.sums(mem)) <= most
    small[ROOT] = False
    highest = np.flatnonzero(small & ~small[tree.parent])
    lone = np.flatnonzero(~small[tree.leaf_parent])
    first = np.concatenate([tree.lo[highest], lone])
    parent = np.concatenate([tree.parent[highest], tree.leaf_parent[lone]])
    order = np.argsort(first, kind="stable")
    first, parent = first[order], parent[order]
    weight = np.maximum(np.add.reduceat(comp, first), np.add.reduceat(mem, first))
    # A sibling begins a new run when the one before it ends in another stretch of the weight.
    ends = np.cumsum(weight)
    stretch = np.floor((ends - weight / 2) / most)
    new = np.concatenate([[True], (np.diff(stretch) != 0) | (np.diff(parent) != 0)])
    starts: Ints = first[new]
    return starts


def _shells(comp: Floats, mem: Floats, parts: int) -> Ints:
    """Return the paper's cut: each shell takes from both ends what makes it a fair part."""
    n = len(comp)
    both = np.concatenate([[0.0], np.cumsum(comp + mem)])
    read = np.concatenate([[0.0], np.cumsum(mem)])
    part = np.empty(n, np.int64)
    lo, hi = 0, n
    for shell in range(parts - 1):
        inner = (parts - 1 - shell) / parts
        # The rows that are left lie between two cuts, neither outside the last shell.
        left = np.arange(lo, hi + 1)
        right = np.searchsorted(both, both[left] + 2.0 * inner)
        right = np.clip(right, left, hi)
        off = np.abs(read[right] - read[left] - inner) + np.abs(
            both[right] - both[left] - 2.0 * inner
        )
        best = int(off.argmin())
        part[lo : left[best]], part[right[best] : hi] = shell, shell
        lo, hi = int(left[best]), int(right[best])
    part[lo:hi] = parts - 1
    return part
