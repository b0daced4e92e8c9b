"""How fast can a job run at all? Bounds on its time in any order (paper §3.3).

Work is counted as an engine does it: every prompt token computed once, shared prefixes too, and of
an answer of d tokens the first comes from the prefill and d - 1 from decode steps, each of which
reads all tokens before its own.

Invariant: no sequence of steps that does this work takes less than a bound for its kind of engine:
overlapped, where a step takes max(comp, mem) and what `interference` leaves of the other, or
sequential, where it takes max(comp, weights) + mem and an overhead; what several devices say to
each other is one more thing to overlap, or added. `bound_s` counts the reads of the weights, which
make a small job wait for its longest answer; the practical optimum does not.

Differs from the paper: its practical optimum is a polynomial profiled on its engine; ours is one
constant, `INTERFERENCE`, where no calibration has fitted a polynomial. Shares of the two are not
comparable.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from blend.core.planning.communication import network_token_s
from blend.core.planning.cost import decode_comp_s, segment_comp_s
from blend.core.planning.engine_model import INTERFERENCE, EngineModel
from blend.core.planning.hardware import Hardware, ModelShape
from blend.core.planning.interference import Interference, at_once_s
from blend.core.planning.tree import Ints, Tree, own_tokens, shared_within


@dataclass(frozen=True, slots=True)
class Work:
    """What a job asks of a device when every shared prefix is computed once.

    ``held_token_steps`` sums over all decode steps the cached tokens that a row shares with no
    other; ``longest_tokens`` is the longest answer of one sequence. ``network_s`` is what devices
    that share the model take to tell each other of the tokens.
    """

    comp_s: float
    mem_s: float
    held_token_steps: float
    longest_tokens: float
    network_s: float = 0.0

    def shared_by(self, replicas: int) -> "Work":
        """Return the work of each of so many replicas; no two share an answer."""
        return Work(
            self.comp_s / replicas,
            self.mem_s / replicas,
            self.held_token_steps / replicas,
            self.longest_tokens,
            self.network_s / replicas,
        )


def work_of(
    tree: Tree,
    output_tokens: Ints,
    *,
    hardware: Hardware,
    model: ModelShape,
    sequences: Ints | None = None,
    rows: npt.NDArray[np.bool_] | None = None,
    attention: bool = True,
) -> Work:
    """Return the work of the prompts in *tree* with answers of *output_tokens*, (n,) by row.

    Of *rows* alone, (n,), where they are given. ``attention=False`` leaves prefill attention out,
    as the paper does.
    """
    kept, shared = shared_within(tree, np.ones(len(tree), np.bool_) if rows is None else rows)
    prompt, row = tree.lengths[kept], tree.rows[kept]
    longest = np.asarray(output_tokens, dtype=np.float64)[row]
    steps = np.maximum(longest - 1.0, 0.0)
    times = 1.0 if sequences is None else sequences[row]
    grown = float((times * steps * (steps + 1.0) / 2.0).sum())
    read = float((times * steps * prompt).sum()) + grown
    prefill = decode_comp_s(prompt - shared, hardware=hardware, model=model)
    if attention:
        prefill = segment_comp_s(shared, prompt, hardware=hardware, model=model)
    decode = decode_comp_s(steps * times, hardware=hardware, model=model)
    computed = float((prompt - shared).sum()) + float((steps * times).sum())
    return Work(
        comp_s=float(prefill.sum()) + float(decode.sum()),
        mem_s=read * model.kv_bytes_per_token / hardware.bandwidth_bytes_s,
        # Rows that share a prefix read it each, but the cache holds it once, for all sequences too.
        held_token_steps=float((steps * own_tokens(prompt, shared)).sum()) + grown,
        longest_tokens=float(np.max(longest, initial=0.0)),
        network_s=computed * network_token_s(hardware, model),
    )


def practical_optimum_s(work: Work, *, interference: Interference = INTERFERENCE) -> float:
    """Return the seconds in which no overlapped engine finishes: all sums of the work at once."""
    return at_once_s(work.comp_s, work.mem_s, work.network_s, interference=interference)


def fewest_steps(work: Work, *, capacity_tokens: int) -> float:
    """Return the steps a job needs: those of its longest answer, or to pass all rows through.

    The KV cache holds no more than *capacity_tokens* at a time.
    """
    return max(work.longest_tokens, work.held_token_steps / max(capacity_tokens, 1))


def sequential_bound_s(
    work: Work, *, weights_s: float, capacity_tokens: int, step_overhead_s: float = 0.0
) -> float:
    """Return the seconds in which no sequential engine finishes: compute rides on the weights."""
    steps = fewest_steps(work, capacity_tokens=capacity_tokens)
    computed = max(work.comp_s, steps * weights_s)
    return computed + work.mem_s + work.network_s + step_overhead_s * steps


def bound_s(work: Work, engine: EngineModel) -> float:
    """Return the seconds in which *engine* cannot finish the work, the weights' reads counted."""
    capacity = engine.capacity.kv_tokens
    if engine.mode == "sequential":
        return sequential_bound_s(
            work,
            weights_s=engine.weights_s,
            capacity_tokens=capacity,
            step_overhead_s=engine.overhead_s + engine.network_step_s,
        )
    steps = fewest_steps(work, capacity_tokens=capacity)
    weights, overhead = steps * engine.weights_s, steps * engine.overhead_s
    if engine.shared_bandwidth:
        comp, mem = work.comp_s, work.mem_s + weights
    else:
        comp, mem = max(work.comp_s, weights), work.mem_s
    network = work.network_s + steps * engine.network_step_s
    return at_once_s(comp, mem, network, interference=engine.interference) + overhead
