"""The loop of a simulated run in compiled form: `blend.core.running.executor.run` over arrays."""

from typing import Any, NamedTuple

import numpy as np

from blend.core.kernels.blend import Blend, admit_blended, hear_blended
from blend.core.kernels.clock import Clock, compute_seconds, step_seconds
from blend.core.kernels.compiled import compiled
from blend.core.kernels.dual import Dual, admit_dual, finish_dual, observe_dual
from blend.core.kernels.engine import Engine, Limits, finish_step, step, submit, waiting
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

REPORT = np.dtype(
    [
        ("ended", np.int64),
        ("running", np.int64),
        ("waiting", np.int64),
        ("kv_tokens", np.int64),
        ("prefill", np.int64),
        ("decode", np.int64),
        ("prefilled", np.int64),
    ]
)


class Unheard(NamedTuple):
    """The reports that are on their way to the scanner, in a ring; ``ended`` holds rows."""

    reports: Any
    ended: Any
    answers: Any  # the tokens of those that ended
    ring: Any  # the place of the oldest, and how many there are


def new_unheard(limits: Limits) -> Unheard:
    """Return a ring without reports."""
    places = limits.lag + 1
    ended = np.empty((places, limits.max_sequences + 1), np.int64)
    return Unheard(np.zeros(places, REPORT), ended, ended.copy(), np.zeros(2, np.int64))


@compiled
def run_in_order(
    engine: Engine,
    flight: Flight,
    unheard: Unheard,
    clock: Clock,
    order: Any,
    uncached: Any,
    cursor: Any,
    until_s: float,
    finished_s: Any,
    total: Any,
    lines: Any,
    line_steps: int,
) -> None:
    """Run all rows in order, or until a time, to be called again; *cursor* is the next position.

    Fills *finished_s* by row, *total* and every *line_steps* a line.
    """
    admitted = np.empty(len(order) + 1, np.int64)
    while total[0].seconds < until_s:
        count = admit_in_order(flight, order, uncached, cursor, admitted)
        for i in range(count):
            submit(engine, admitted[i])
        if flight.counts[0].inside == 0:
            return
        at = run_on(engine, clock, UNPACED, unheard, finished_s, total, lines, line_steps)
        for i in range(unheard.reports[at].ended):
            note_finished(flight, unheard.ended[at, i])
        hear(flight, unheard, at)
        observe_in_order(flight)


@compiled
def run_dual(
    engine: Engine,
    dual: Dual,
    unheard: Unheard,
    clock: Clock,
    until_s: float,
    finished_s: Any,
    total: Any,
    lines: Any,
    line_steps: int,
) -> None:
    """Run all rows of the paper's dual scan, otherwise as `run_in_order` does."""
    admitted = np.empty(len(dual.order) + 1, np.int64)
    while total[0].seconds < until_s:
        count = admit_dual(dual, admitted)
        for i in range(count):
            submit(engine, admitted[i])
        if dual.state[0].inside == 0:
            return
        at = run_on(engine, clock, UNPACED, unheard, finished_s, total, lines, line_steps)
        dual.state[0].step += 1
        for i in range(unheard.reports[at].ended):
            finish_dual(dual, unheard.ended[at, i])
            note_finished(dual.flight, unheard.ended[at, i])
        hear(dual.flight, unheard, at)
        observe_dual(dual)


@compiled
def run_blended(
    engine: Engine,
    blend: Blend,
    unheard: Unheard,
    clock: Clock,
    until_s: float,
    finished_s: Any,
    total: Any,
    lines: Any,
    line_steps: int,
) -> None:
    """Run all rows of a blending scanner, otherwise as `run_in_order` does."""
    admitted = np.empty(len(blend.order) + 1, np.int64)
    while total[0].seconds < until_s:
        count = admit_blended(blend, admitted)
        for i in range(count):
            submit(engine, admitted[i])
        if blend.state[0].inside == 0:
            return
        pace = UNPACED if blend.state[0].gated else blend.state[0].pace
        at = run_on(engine, clock, pace, unheard, finished_s, total, lines, line_steps)
        report = unheard.reports[at]
        hear_blended(
            blend,
            unheard.ended[at, : report.ended],
            unheard.answers[at, : report.ended],
            report.running,
            report.waiting,
            report.kv_tokens,
            1,
            report.prefill,
            report.decode,
            report.prefilled,
        )


@compiled
def hear(flight: Flight, unheard: Unheard, at: int) -> None:
    """Tell the scanner's account how full the engine was after a step."""
    report = unheard.reports[at]
    note_report(flight, report.running, report.waiting, report.kv_tokens, 1)


@compiled
def run_on(
    engine: Engine,
    clock: Clock,
    pace: int,
    unheard: Unheard,
    finished_s: Any,
    total: Any,
    lines: Any,
    line_steps: int,
) -> int:
    """Run on until a report is due, and return the place of the oldest that was not heard."""
    ring, now, places = unheard.ring, engine.now[0], len(unheard.reports)
    while ring[1] < places and now.running + waiting(engine) > 0:
        take_step(engine, clock, pace, total, lines, line_steps)
        place = (ring[0] + ring[1]) % places
        report = unheard.reports[place]
        report.ended = now.ended
        report.running, report.waiting = now.running, waiting(engine)
        report.kv_tokens = (engine.limits.blocks - now.free) * engine.limits.block_tokens
        report.prefill, report.decode = now.prefill, now.decode
        report.prefilled = now.prefilled
        for i in range(now.ended):
            row = engine.ended[i]
            unheard.ended[place, i] = row
            unheard.answers[place, i] = engine.rows[row].final - engine.rows[row].prompt
            finished_s[row] = total[0].seconds
        ring[1] += 1
    place = ring[0]
    ring[0] = (ring[0] + 1) % places
    ring[1] -= 1
    return place


@compiled
def take_step(
    engine: Engine, clock: Clock, pace: int, total: Any, lines: Any, line_steps: int
) -> None:
    """Compute one step and add it up."""
    now, sums = engine.now[0], total[0]
    step(engine, pace)
    compute_s = compute_seconds(clock, now.prefill, now.decode, now.squares)
    seconds = step_seconds(clock, compute_s, now.prefill + now.decode, now.reading)
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
