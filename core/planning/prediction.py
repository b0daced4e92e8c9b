"""What does a whole job take in a given order? Tokens, seconds and density, in closed forms.

Differs from the paper: the two times are the ends of what engines can do. No engine beats
``overlapped_s``, and no sequential one ``sequential_s``.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from blend.core.planning.communication import network_step_s, network_token_s
from blend.core.planning.cost import read_token_steps, weights_s
from blend.core.planning.demand import Demand
from blend.core.planning.hardware import kv_capacity_tokens
from blend.core.planning.lengths import Lengths
from blend.core.planning.tree import Tree, own_tokens
from blend.core.prompts import Prompts


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


def predict(
    prompts: Prompts,
    lengths: Lengths,
    demand: Demand,
    *,
    tree: Tree,
    computed_tokens: int,
    comp_s: float,
) -> Prediction:
    """Return what to expect of an order that computes *computed_tokens* of the prompts.

    ``comp_s``: the seconds of compute of all rows in that order, their decodes too.
    """
    # An embedding is planned as a row of one token, but has no answer.
    output = np.where(prompts.max_tokens > 0, lengths.expected, 0.0) * prompts.sequences
    output_tokens, mem_s = float(output.sum()), float(demand.mem_s.sum())
    steps = _fewest_steps(tree, lengths, demand, sequences=prompts.sequences)
    weights = steps * weights_s(hardware=demand.hardware, model=demand.model)
    overhead = steps * demand.hardware.step_overhead_s
    network = (computed_tokens + output_tokens) * network_token_s(demand.hardware, demand.model)
    network += steps * network_step_s(demand.hardware, demand.model)
    overlapped = max(comp_s, mem_s + weights, network) + overhead
    sequential = max(comp_s, weights) + mem_s + network + overhead
    prompt_tokens, best = int(prompts.lengths.sum()), tree.unique_tokens
    all_tokens = prompt_tokens + output_tokens
    return Prediction(
        rows=len(prompts),
        prompt_tokens=prompt_tokens,
        computed_tokens=computed_tokens,
        best_computed_tokens=best,
        sharing=1.0 - computed_tokens / max(prompt_tokens, 1),
        best_sharing=1.0 - best / max(prompt_tokens, 1),
        output_tokens=output_tokens,
        comp_s=comp_s,
        mem_s=mem_s,
        density=comp_s / mem_s if mem_s else 0.0,
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
