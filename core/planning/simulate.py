"""How a whole job would run: its schedule, its answer lengths and an engine, in virtual time.

    simulate(tree, schedule, output_tokens=…, engine=…) -> Simulated

*tree* is that of `build_tree`, or of `tree_of` where only lengths and shared tokens are known (no
token ids are needed); *schedule* says order and policy; *output_tokens* are the lengths that the
answers get, which the policy does not see before they end. All arrays are by row.

The same decisions and steps as `executor.run` with `open_scanner` on `SimEngine`, as machine code:
tests hold that both give the same report after every step. One sequence a row.
"""

from dataclasses import dataclass
from typing import Any

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
    from blend.core.kernels import loop  # numba is slow to import

    outputs = np.maximum(np.asarray(output_tokens, np.int64), 1)
    prompts = np.empty(len(tree), np.int64)
    prompts[tree.rows] = tree.lengths
    fits = prompts + outputs <= _cache_tokens(engine)
    schedule = schedule.only(fits)
    finished_s = np.full(len(tree), np.nan)
    total = np.zeros(1, loop.TOTAL)
    lines = np.zeros(_line_count(schedule, outputs, line_steps), loop.LINE)
    state = _engine_state(tree, prompts, outputs, engine)
    unheard = loop.new_unheard(state.limits)
    book = (finished_s, total, lines, line_steps)
    if schedule.blending is not None:
        from blend.core.running.blend_scan import new_state

        blend = new_state(
            schedule,
            prompt_tokens=prompts,
            sequences=np.ones(len(tree), np.int64),
            capacity=engine.capacity,
        )
        loop.run_blended(state, blend, unheard, _clock(engine), *book)
    elif schedule.policy == "paper":
        from blend.core.kernels.dual import new_dual

        dual = new_dual(_flight_state(len(tree), engine), schedule, prompt=prompts)
        loop.run_dual(state, dual, unheard, _clock(engine), *book)
    else:
        flight = _flight_state(len(tree), engine)
        order, uncached = schedule.order, schedule.uncached_tokens
        loop.run_in_order(state, flight, unheard, _clock(engine), order, uncached, *book)
    return _simulated(total[0], lines, line_steps, finished_s, refused=int((~fits).sum()))


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


def _cache_tokens(engine: EngineModel) -> int:
    size = engine.capacity.block_tokens
    return engine.capacity.kv_tokens // size * size


def _engine_state(tree: Tree, prompts: Ints, outputs: Ints, engine: EngineModel) -> Any:
    from blend.core.kernels.engine import Limits, new_engine

    capacity = engine.capacity
    keys, starts = block_keys(tree, block_tokens=capacity.block_tokens)
    limits = Limits(
        blocks_of_use(capacity, prompts + outputs),
        capacity.block_tokens,
        capacity.max_sequences,
        capacity.step_tokens,
        capacity.prefill_threshold,
        capacity.report_lag,
    )
    return new_engine(
        limits, prompt_tokens=prompts, output_tokens=outputs, keys=keys, key_starts=starts
    )


def _flight_state(rows: int, engine: EngineModel) -> Any:
    from blend.core.kernels.flight import new_flight

    capacity = engine.capacity
    return new_flight(
        np.ones(rows, np.int64),
        kv_tokens=capacity.kv_tokens,
        max_sequences=capacity.max_sequences,
        step_tokens=capacity.step_tokens,
    )


def _clock(engine: EngineModel) -> Any:
    from blend.core.kernels.clock import Clock

    return Clock(
        engine.token_s,
        engine.decode_s,
        engine.pair_s,
        engine.read_s,
        engine.weights_s,
        engine.overhead_s,
        engine.interference,
        engine.mode == "overlapped",
        engine.shared_bandwidth,
    )


def _line_count(schedule: Schedule, outputs: Ints, line_steps: int) -> int:
    # No run takes more steps than its tokens; most take far fewer.
    most = int(outputs[schedule.order].sum()) + len(schedule)
    return min(most // line_steps + 1, 1 << 16)


def _simulated(
    total: Any, lines: Any, line_steps: int, finished_s: Floats, *, refused: int
) -> Simulated:
    used = lines[: int(total["lines"])]
    sums = {name: total[name].item() for name in total.dtype.names if name != "lines"}
    columns = {name: np.ascontiguousarray(used[name]) for name in used.dtype.names}
    timeline = Timeline(line_steps, **columns)
    return Simulated(**sums, refused=refused, finished_s=finished_s, timeline=timeline)
