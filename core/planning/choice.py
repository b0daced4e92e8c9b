"""Which rows to run when there is no time for all? As many as can be finished.

A row costs what it computes and reads by itself; the prefix of a subtree is paid by the first
row of it that is chosen. lambda: the seconds that one more row may cost. For a given lambda
the best choice is exact: a subtree is worth its rows minus its prefix, or nothing. Raising lambda
until the time is filled gives the choice; of the rows that tie at the end the plan's order decides.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from blend.core.engines import Capacity
from blend.core.planning.communication import network_step_s, network_token_s
from blend.core.planning.cost import (
    decode_comp_s,
    mem_s,
    read_token_steps,
    segment_comp_s,
    weights_s,
)
from blend.core.planning.hardware import Hardware, ModelShape
from blend.core.planning.parts import walked_tree
from blend.core.planning.tree import ROOT, Floats, Ints, Tree
from blend.core.schedule import LEFT, TWO_ENDED, Schedule

Flags = npt.NDArray[np.bool_]

DOUBLINGS = 10
"""From the cost of the first choice to that of all rows."""

SAFE_SHARE = 0.8
"""Of the time, what a schedule may be predicted to take to be thought in time as it is."""

HALVINGS = 32
"""Of the interval that lambda lies in."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of each row below its subtree's prefix, (n,) by position, and of each prefix, (m,).

    ``tree`` is that of the schedule's own order, ``decode_s`` the part of ``own_s`` for decoding.
    """

    tree: Tree
    own_s: Floats
    prefix_s: Floats
    decode_s: Floats

    def of(self, chosen: Flags) -> float:
        """Return the seconds of the rows *chosen*, by position, with the prefixes they need."""
        seen = np.concatenate([[0], np.cumsum(chosen)])
        needed = seen[self.tree.hi] > seen[self.tree.lo]
        return float(self.own_s[chosen].sum() + self.prefix_s[needed].sum())

    @property
    def shared_out_s(self) -> Floats:
        """Return the seconds of each row, (n,) by position, prefixes paid by all of their rows."""
        each = self.prefix_s / np.maximum(self.tree.hi - self.tree.lo, 1)
        steps = np.zeros(len(self.own_s) + 1)
        np.add.at(steps, self.tree.lo, each)
        np.subtract.at(steps, self.tree.hi, each)
        seconds: Floats = self.own_s + np.cumsum(steps)[:-1]
        return seconds


def costs_of(
    schedule: Schedule,
    *,
    prompt_tokens: Ints,
    sequences: npt.NDArray[np.int32],
    capacity: Capacity,
    hardware: Hardware,
    model: ModelShape,
) -> Costs:
    """Return what the rows of *schedule* cost; prompt tokens and sequences are by row.

    A decode step reads all weights for whatever is inside, and has its overhead: a row pays for its
    part of the cache or of the slots, whichever is more.
    """
    lengths, copies = prompt_tokens[schedule.order], sequences[schedule.order]
    tree = walked_tree(schedule, prompt_tokens)
    expected = schedule.expected_tokens
    held = read_token_steps(lengths, expected) / max(capacity.kv_tokens, 1)
    part = np.maximum(held, expected / max(capacity.max_sequences, 1))
    depth, talk_s = tree.depth, network_token_s(hardware, model)
    prefill = segment_comp_s(depth[tree.leaf_parent], lengths, hardware=hardware, model=model)
    prefill += talk_s * (lengths - depth[tree.leaf_parent])
    decode = decode_comp_s(expected * copies, hardware=hardware, model=model)
    decode += talk_s * expected * copies
    decode += copies * mem_s(lengths, expected, hardware=hardware, model=model)
    step = weights_s(hardware=hardware, model=model) + hardware.step_overhead_s
    step += network_step_s(hardware, model)
    decode += copies * part * step
    prefix = segment_comp_s(depth[tree.parent], depth, hardware=hardware, model=model)
    prefix += talk_s * (depth - depth[tree.parent])
    return Costs(tree, prefill + decode, prefix, decode)


def compute_bound_rows(schedule: Schedule, among: Flags, *, share: float) -> Flags:
    """Return which rows *among* these, (n,) by row, come first of those denser than the whole.

    They have no more than *share* of all tokens to compute.
    """
    dense = among[schedule.order] & (schedule.density > schedule.root_density)
    until = np.cumsum(np.where(dense, schedule.uncached_tokens, 0))
    chosen = np.zeros(len(among), np.bool_)
    chosen[schedule.order] = dense & (until <= share * schedule.uncached_tokens.sum())
    return chosen


def most_in_time(schedule: Schedule, costs: Costs, budget_s: float) -> Schedule:
    """Return the rows in the order that finishes the most of them in about *budget_s* seconds.

    The best choices for a small part of the whole cost first, then for twice that, and so on: how
    far the time goes need not be known, for neither speed nor lengths are sure. Within each the
    order stays. A schedule that should be through in time stays as it is. The new order is read
    from the left alone.
    """
    whole_s = costs.of(np.ones(len(schedule), np.bool_))
    if whole_s <= SAFE_SHARE * budget_s:
        return schedule
    taken = np.zeros(len(schedule), np.bool_)
    choices = [choose(costs, whole_s / 2**part) for part in range(DOUBLINGS, -1, -1)]
    positions = np.empty(0, np.int64)
    for chosen in choices:
        positions = np.concatenate([positions, np.flatnonzero(chosen & ~taken)])
        taken |= chosen
    return replace(schedule.at(positions), policy="fcfs", blending=None)


def first_rows(schedule: Schedule, count: int) -> Schedule:
    """Return the first rows of a schedule, *count* at most.

    Of one that is read from both ends they come from both, so that the mixture stays.
    """
    left = min(count, len(schedule))
    if schedule.policy in TWO_ENDED and len(schedule):
        left = round(left * int((schedule.side == LEFT).sum()) / len(schedule))
    right = min(count, len(schedule)) - left
    return schedule.at(np.r_[0:left, len(schedule) - right : len(schedule)])


def choose(costs: Costs, budget_s: float) -> Flags:
    """Return which rows to run in *budget_s* seconds, (n,) by position: as many as possible.

    Never fewer than the first rows in order that fit.
    """
    everything = np.ones(len(costs.own_s), np.bool_)
    if costs.of(everything) <= budget_s:
        return everything
    levels = _levels(costs.tree)
    alone_s = _alone_s(costs, levels)
    cheapest_alone = np.argsort(alone_s, kind="stable")
    nothing, in_order = ~everything, np.arange(len(everything))
    cheap = _cheapest(costs, budget_s, levels, most_s=float(alone_s.max(initial=0.0)))
    found = (cheap, _filled(costs, nothing, in_order, budget_s))
    # What is left may do for a row that is dear by itself.
    topped = [_filled(costs, one, cheapest_alone, budget_s) for one in found]
    return max(topped, key=np.count_nonzero)


def _alone_s(costs: Costs, levels: list[Ints]) -> Floats:
    """Return the seconds of each row with all of its prefix, (n,) by position."""
    path_s = costs.prefix_s.copy()
    for nodes in levels:
        path_s[nodes] += path_s[costs.tree.parent[nodes]]
    alone: Floats = costs.own_s + path_s[costs.tree.leaf_parent]
    return alone


def _cheapest(costs: Costs, budget_s: float, levels: list[Ints], *, most_s: float) -> Flags:
    """Return the choice for the largest lambda, below *most_s*, that fits."""
    low, high = 0.0, most_s
    within, beyond = np.zeros(len(costs.own_s), np.bool_), np.ones(len(costs.own_s), np.bool_)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        chosen = _worth(costs, middle, levels)
        if costs.of(chosen) <= budget_s:
            low, within = middle, chosen
        else:
            high, beyond = middle, chosen
    return _filled(costs, within, np.flatnonzero(beyond), budget_s)


def _worth(costs: Costs, most_s: float, levels: list[Ints]) -> Flags:
    """Return the rows that are worth their cost when one may cost *most_s* seconds."""
    tree = costs.tree
    gain = np.maximum(most_s - costs.own_s, 0.0)
    value = np.bincount(tree.leaf_parent, gain, len(tree.parent)) - costs.prefix_s
    for nodes in reversed(levels):
        value[nodes] = np.maximum(value[nodes], 0.0)
        np.add.at(value, tree.parent[nodes], value[nodes])
    worth = value > 0
    worth[ROOT] = True
    for nodes in levels:
        worth[nodes] &= worth[tree.parent[nodes]]
    chosen: Flags = worth[tree.leaf_parent] & (gain > 0)
    return chosen


def _levels(tree: Tree) -> list[Ints]:
    """Return the nodes below the root, level by level."""
    level = [0] * len(tree.parent)
    parent = tree.parent.tolist()
    for node in range(1, len(level)):
        level[node] = level[parent[node]] + 1
    levels = np.array(level)
    order = np.argsort(levels, kind="stable")
    ends = np.searchsorted(levels[order], np.arange(1, levels.max(initial=0) + 2))
    return [order[lo:hi] for lo, hi in pairwise(ends)]


def _filled(costs: Costs, chosen: Flags, more: Ints, budget_s: float) -> Flags:
    """Return *chosen* and as many of the positions *more*, from the first on, as fit."""
    positions = more[~chosen[more]]
    low, high = 0, len(positions)
    while low < high:
        middle = (low + high + 1) // 2
        if costs.of(_with(chosen, positions[:middle])) <= budget_s:
            low = middle
        else:
            high = middle - 1
    return _with(chosen, positions[:low])


def _with(chosen: Flags, positions: Ints) -> Flags:
    both = chosen.copy()
    both[positions] = True
    return both
