"""How a whole job would run: its schedule, its answer lengths and an engine, in virtual time.

    simulate(tree, schedule, output_tokens=…, engine=…) -> Simulated

*tree* is that of `build_tree`, or of `tree_of` where only lengths and shared tokens are known (no
token ids are needed); *schedule* says order and policy; *output_tokens* are the lengths that the
answers get, which the policy does not see before they end. All arrays are by row.

The same decisions and steps as `executor.run` with `open_scanner` on `SimEngine`, as machine code:
tests hold that both give the same report after every step. One sequence a row.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from blend.core.engines import Capacity
from blend.core.planning.engine_model import EngineModel
from blend.core.planning.tree import Floats, Ints, Tree
from blend.core.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Timeline:
    """The run in stretches of ``steps`` steps each; arrays (k,), one value a stretch.

    ``seconds`` at its end; ``compute_s`` and ``memory_s``, computing tokens and reading the cache
    of decodes (without weights); ``running`` and ``kv_tokens`` in its last step.
    """

    steps: int
    seconds: Floats
    compute_s: Floats
    memory_s: Floats
    running: Ints
    kv_tokens: Ints


@dataclass(frozen=True, slots=True)
class Simulated:
    """What came of a simulated run.

    ``cached_tokens``: prompt tokens found in the cache when their row was first admitted;
    ``recomputed_tokens``: computed again after preemptions, less what other rows' prefixes saved;
    ``finished_s`` (n,): when each row ended, NaN for one that the cache could never hold and for
    one outside the schedule.
    """

    seconds: float
    steps: int
    compute_s: float
    memory_s: float
    prefill_tokens: int
    decode_tokens: int
    cached_tokens: int
    recomputed_tokens: int
    preemptions: int
    peak_kv_tokens: int
    peak_running: int
    refused: int
    finished_s: Floats
    timeline: Timeline


def simulate(
    tree: Tree,
    schedule: Schedule,
    *,
    output_tokens: npt.NDArray[np.integer],
    engine: EngineModel,
    line_steps: int = 256,
) -> Simulated:
    """Run *schedule* to its end in virtual time; an answer is at least one token long.

    ``line_steps``: the grain of the timeline.
    """
    from blend.core.planning.virtual_run import Run, world_of

    world = world_of(tree, output_tokens=output_tokens, engine=engine)
    run = Run(world, schedule.only(world.fits), line_steps=line_steps)
    run.advance()
    return run.simulated(refused=int((~world.fits).sum()))


def block_keys(tree: Tree, *, block_tokens: int) -> tuple[npt.NDArray[np.int32], Ints]:
    """Return a number for the prefix up to the end of every full block, and where rows start.

    Flat by row: those of row ``r`` are ``keys[starts[r]:starts[r + 1]]``; equal numbers mean equal
    prefixes. Numbers are given in depth-first order.
    """
    from blend.core.kernels.prefixes import number_prefixes

    full = tree.lengths // block_tokens
    by_row = np.zeros(len(tree) + 1, np.int64)
    by_row[tree.rows + 1] = full
    starts = np.cumsum(by_row)
    shared = tree.lcp // block_tokens
    return number_prefixes(tree.rows, full, shared, starts), starts


def blocks_of_use(capacity: Capacity, tokens: Ints) -> int:
    """Return the blocks of a cache, no more than sequences of so many *tokens* each can fill.

    A server that tells of no cache counts as boundless, and a simulated cache has all its blocks.
    """
    needed = int((-(-(tokens + 1) // capacity.block_tokens)).sum())
    return min(capacity.kv_tokens // capacity.block_tokens, needed)
