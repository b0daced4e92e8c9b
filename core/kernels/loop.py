"""The loop of a simulated run in compiled form: `blend.core.running.executor.run` over arrays."""

from typing import Any

import numpy as np

from blend.core.kernels.blend import (
    Blend,
    admit_blended,
    finish_blended,
    observe_blended,
    step_blended,
)
from blend.core.kernels.clock import Clock, step_seconds
from blend.core.kernels.compiled import compiled
from blend.core.kernels.dual import Dual, admit_dual, finish_dual, observe_dual
from blend.core.kernels.engine import Engine, finish_step, step, submit, waiting
from blend.core.kernels.flight import Flight, note_finished, note_report
from blend.core.kernels.order import admit_in_order, observe_in_order

UNPACED = 1 << 30

TOTAL = np.dtype(
    [
        ("seconds", np.float64),
        ("compute_s", np.float64),
        ("memory_s", np.float64),
        ("steps", np.int64),
        ("prefill_tokens", np.int64),
        ("decode_tokens", np.int64),
        ("cached_tokens", np.int64),
        ("recomputed_tokens", np.int64),
        ("preemptions", np.int64),
        ("peak_kv_tokens", np.int64),
        ("peak_running", np.int64),
        ("lines", np.int64),
    ]
)

LINE = np.dtype(
    [
        ("seconds", np.float64),
        ("compute_s", np.float64),
        ("memory_s", np.float64),
        ("running", np.int64),
        ("kv_tokens", np.int64),
    ]
)


@compiled
def run_in_order(
    engine: Engine,
    flight: Flight,
    clock: Clock,
    order: Any,
    uncached: Any,
    finished_s: Any,
    total: Any,
    lines: Any,
    line_steps: int,
) -> None:
    """Run all rows in order; fills *finished_s* by row, *total* and every *line_steps* a line."""
    cursor = np.zeros(1, np.int64)
    admitted = np.empty(len(order) + 1, np.int64)
    while True:
        count = admit_in_order(flight, order, uncached, cursor, admitted)
        for i in range(count):
            submit(engine, admitted[i])
        if flight.counts[0].inside == 0:
            return
        take_step(engine, clock, UNPACED, total, lines, line_steps)
        report(engine, flight, finished_s, total[0].seconds)
        observe_in_order(flight)


@compiled
def run_dual(
    engine: Engine,
    dual: Dual,
    clock: Clock,
    finished_s: Any,
    total: Any,
    lines: Any,
    line_steps: int,
) -> None:
    """Run all rows of the paper's dual scan; fills the rest as `run_in_order` does."""
    admitted = np.empty(len(dual.order) + 1, np.int64)
    while True:
        count = admit_dual(dual, admitted)
        for i in range(count):
            submit(engine, admitted[i])
        if dual.state[0].inside == 0:
            return
        take_step(engine, clock, UNPACED, total, lines, line_steps)
        dual.state[0].step += 1
        for i in range(engine.now[0].ended):
            finish_dual(dual, engine.ended[i])
        report(engine, dual.flight, finished_s, total[0].seconds)
        observe_dual(dual)


@compiled
def run_blended(
    engine: Engine,
    blend: Blend,
    clock: Clock,
    finished_s: Any,
    total: Any,
    lines: Any,
    line_steps: int,
) -> None:
    """Run all rows of a blending scanner; fills the rest as `run_in_order` does."""
    admitted = np.empty(len(blend.order) + 1, np.int64)
    while True:
        count = admit_blended(blend, admitted)
        for i in range(count):
            submit(engine, admitted[i])
        if blend.state[0].inside == 0:
            return
        take_step(engine, clock, blend.state[0].pace, total, lines, line_steps)
        report_blended(engine, blend, finished_s, total[0].seconds)


@compiled
def report_blended(engine: Engine, blend: Blend, finished_s: Any, now_s: float) -> None:
    """Tell the blending scanner what the step has moved."""
    now = engine.now[0]
    step_blended(blend, 1)
    for i in range(now.ended):
        row = engine.ended[i]
        fresh = note_finished(blend.flight, row)
        finish_blended(blend, row, engine.rows[row].final - engine.rows[row].prompt, fresh)
        finished_s[row] = now_s
    held = (engine.limits.blocks - now.free) * engine.limits.block_tokens
    note_report(blend.flight, now.running, waiting(engine), held, 1)
    observe_blended(blend, now.prefill, waiting(engine))


@compiled
def report(engine: Engine, flight: Flight, finished_s: Any, now_s: float) -> None:
    """Tell the scanner's account what the step has moved."""
    now = engine.now[0]
    for i in range(now.ended):
        note_finished(flight, engine.ended[i])
        finished_s[engine.ended[i]] = now_s
    held = (engine.limits.blocks - now.free) * engine.limits.block_tokens
    note_report(flight, now.running, waiting(engine), held, 1)


@compiled
def take_step(
    engine: Engine, clock: Clock, pace: int, total: Any, lines: Any, line_steps: int
) -> None:
    """Compute one step and add it up."""
    now, sums = engine.now[0], total[0]
    step(engine, pace)
    seconds = step_seconds(clock, now.prefill + now.decode, now.squares, now.reading)
    compute_s = clock.token_s * (now.prefill + now.decode) + clock.pair_s * now.squares
    memory_s = clock.read_s * now.reading
    held = (engine.limits.blocks - now.free) * engine.limits.block_tokens
    sums.seconds += seconds
    sums.compute_s += compute_s
    sums.memory_s += memory_s
    sums.steps += 1
    sums.prefill_tokens += now.prefill
    sums.decode_tokens += now.decode
    sums.cached_tokens += now.cached
    sums.recomputed_tokens += now.recomputed
    sums.preemptions += now.preempted
    sums.peak_kv_tokens = max(sums.peak_kv_tokens, held)
    sums.peak_running = max(sums.peak_running, now.running)
    _note_line(engine, sums, lines, line_steps, compute_s, memory_s, held)
    finish_step(engine)


@compiled
def _note_line(
    engine: Engine,
    sums: Any,
    lines: Any,
    line_steps: int,
    compute_s: float,
    memory_s: float,
    held: int,
) -> None:
    """Add the step to the timeline, halving its grain when the lines are used up."""
    place = (sums.steps - 1) // line_steps
    if place >= len(lines):
        return
    line = lines[place]
    line.seconds = sums.seconds
    line.compute_s += compute_s
    line.memory_s += memory_s
    line.running = engine.now[0].running
    line.kv_tokens = held
    sums.lines = place + 1
