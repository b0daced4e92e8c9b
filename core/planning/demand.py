"""What every row and every subtree asks of a device, shared prefixes computed once (paper §5.1)."""

from dataclasses import dataclass

import numpy as np

from blend.core.planning.cost import decode_comp_s, mem_s, segment_comp_s
from blend.core.planning.hardware import Hardware, ModelShape
from blend.core.planning.lengths import Lengths
from blend.core.planning.tree import Floats, Ints, Tree
from blend.core.prompts import Prompts


@dataclass(frozen=True, slots=True)
class Demand:
    """Seconds of decode compute and of KV reads of each row, all its sequences, (n,) by row.

    Prefill depends on what is cached, so it is asked for by depth: `prefill_s`.
    """

    decode_comp_s: Floats
    mem_s: Floats
    hardware: Hardware
    model: ModelShape

    def prefill_s(self, start_depth: Ints, end_depth: Ints) -> Floats:
        """Return the seconds to compute prompt tokens from one depth to another."""
        return segment_comp_s(start_depth, end_depth, hardware=self.hardware, model=self.model)


def demand_of(
    prompts: Prompts, lengths: Lengths, *, hardware: Hardware, model: ModelShape
) -> Demand:
    """Return the demand of *prompts* if their answers get the expected lengths."""
    expected, sequences = lengths.expected, prompts.sequences
    return Demand(
        decode_comp_s(expected * sequences, hardware=hardware, model=model),
        sequences * mem_s(prompts.lengths, expected, hardware=hardware, model=model),
        hardware,
        model,
    )


def leaf_seconds(tree: Tree, demand: Demand) -> tuple[Floats, Floats]:
    """Return compute and memory seconds of each row below its parent's prefix, (n,) by position."""
    own = demand.prefill_s(tree.depth[tree.leaf_parent], tree.lengths)
    return own + demand.decode_comp_s[tree.rows], demand.mem_s[tree.rows]


def subtree_seconds(tree: Tree, demand: Demand) -> tuple[Floats, Floats]:
    """Return compute and memory seconds of each subtree below its parent's prefix, (m,)."""
    in_order = demand.prefill_s(tree.lcp, tree.lengths) + demand.decode_comp_s[tree.rows]
    first = np.minimum(tree.lo, max(len(tree) - 1, 0))
    # The first row of a subtree was charged from where it left the row before: too much.
    above = demand.prefill_s(tree.lcp[first], tree.depth[tree.parent]) if len(tree) else 0.0
    return tree.sums(in_order) - above, tree.sums(demand.mem_s[tree.rows])


def fair_comp_s(tree: Tree, demand: Demand) -> Floats:
    """Return the compute seconds of each row when the rows of a subtree share its segment equally.

    (n,) by position; sums to the compute of the whole tree. Unlike a leaf's own part it does not
    call the twin of a long prompt cheap.
    """
    rows_below = np.maximum(tree.hi - tree.lo, 1)
    share = demand.prefill_s(tree.depth[tree.parent], tree.depth) / rows_below
    path_s, parent = share.tolist(), tree.parent.tolist()
    for node in range(1, len(path_s)):
        path_s[node] += path_s[parent[node]]
    fair: Floats = leaf_seconds(tree, demand)[0] + np.array(path_s)[tree.leaf_parent]
    return fair
