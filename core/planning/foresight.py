"""How is the run of a plan expected to go? Its timeline, simulated on lengths that were drawn.

Each answer is drawn around the length that the plan expects: means alone would let all answers of
a kind end in one step. A job of some thousand answers is simulated by the object loop, which needs
no compiler; a larger one by the kernels, which give the same.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from blend.core.engines import StepReport
from blend.core.engines.sim import SimEngine
from blend.core.planning.classes import SPREAD
from blend.core.planning.engine_model import EngineModel
from blend.core.planning.lengths import KNOWN, KNOWN_TOKENS, OBSERVED, Lengths
from blend.core.planning.simulate import blocks_of_use, simulate
from blend.core.planning.timeline import (
    BUCKETS,
    Stretches,
    TimelineBuckets,
    bucketed,
    measured_timeline,
)
from blend.core.planning.tree import Ints, Tree
from blend.core.prompts import Prompts
from blend.core.request import Request
from blend.core.running import executor
from blend.core.running.scan import open_scanner
from blend.core.schedule import Schedule

SMALL_STEPS = 200_000
"""Output tokens up to which the object loop takes no more than about a second."""

LINE_STEPS = 16
LINES = 1 << 16
LEAST_RUNNING = 4  # sequences at a time in any large job, on the average


def foreseen_timeline(
    prompts: Prompts,
    tree: Tree,
    schedule: Schedule,
    lengths: Lengths,
    engine: EngineModel,
    *,
    kernels: Callable[[], bool] = lambda: True,
    seed: int = 0,
    buckets: int = BUCKETS,
) -> TimelineBuckets | None:
    """Return the timeline of running *schedule* on *engine*.

    None where the engine's cache cannot hold a prompt, for a large job where *kernels* says that
    they would cost too much, and for one whose requests have several answers each, which they do
    not run.
    """
    if not len(schedule) or not _fits(prompts, engine):
        return None
    drawn = drawn_lengths(prompts, lengths, seed=seed)
    if float((drawn * prompts.sequences)[schedule.order].sum()) <= SMALL_STEPS:
        run = _object_run(prompts, schedule, drawn, engine)
        return measured_timeline(run, engine, buckets=buckets)
    if (prompts.sequences > 1).any() or not kernels():
        return None
    return _compiled_run(tree, schedule, drawn, engine, buckets)


def drawn_lengths(prompts: Prompts, lengths: Lengths, *, seed: int) -> Ints:
    """Return a length for each row, (n,): what was observed, else drawn with the expected mean."""
    spread = np.where(prompts.max_tokens > KNOWN_TOKENS, SPREAD, 0.0)
    spread[np.isin(lengths.source, (OBSERVED, KNOWN))] = 0.0
    noise = np.random.default_rng(seed).standard_normal(len(prompts))
    drawn = lengths.expected * np.exp(spread * noise - spread * spread / 2.0)
    limit = np.maximum(prompts.max_tokens, 1)
    lengths_drawn: Ints = np.clip(np.rint(drawn), 1, limit).astype(np.int64)
    return lengths_drawn


def _fits(prompts: Prompts, engine: EngineModel) -> bool:
    longest = int(prompts.lengths.max(initial=0))
    return engine.capacity.kv_tokens >= longest + engine.capacity.block_tokens


def _compiled_run(
    tree: Tree, schedule: Schedule, drawn: Ints, engine: EngineModel, buckets: int
) -> TimelineBuckets:
    most = int(drawn[schedule.order].sum()) // (LINES * LEAST_RUNNING)
    steps = max(LINE_STEPS, most)
    ran = simulate(tree, schedule, output_tokens=drawn, engine=engine, line_steps=steps)
    lines, ended_s = ran.timeline, np.sort(ran.finished_s[~np.isnan(ran.finished_s)])
    return bucketed(
        lines.seconds,
        compute_s=lines.compute_s,
        # As of a real run, which tells only how full its cache is.
        memory_s=engine.read_s * lines.kv_tokens * np.minimum(steps, ran.steps),
        kv_tokens=lines.kv_tokens,
        running=lines.running,
        answered=np.searchsorted(ended_s, lines.seconds, side="right"),
        buckets=buckets,
    )


def _object_run(
    prompts: Prompts, schedule: Schedule, drawn: Ints, engine: EngineModel
) -> Stretches:
    def request_of(row: int) -> Request:
        return Request(
            row,
            "",
            "/v1/chat/completions",
            b"{}",
            prompts[row],
            int(prompts.max_tokens[row]),
            int(prompts.sequences[row]),
        )

    scanner = open_scanner(
        schedule,
        prompt_tokens=prompts.lengths,
        sequences=prompts.sequences,
        capacity=engine.capacity,
    )
    tokens = np.repeat(prompts.lengths + drawn, prompts.sequences)
    held = blocks_of_use(engine.capacity, tokens) * engine.capacity.block_tokens
    simulated = SimEngine(
        replace(engine.capacity, kv_tokens=held),
        step_s=engine.step_s,
        output_tokens=lambda request: int(drawn[request.row]),
    )
    reports = [_moved(report) for report in executor.run(scanner, request_of, simulated)]
    seconds, *counts = np.array(reports, np.float64).reshape(-1, 6).T
    return Stretches(np.cumsum(seconds), *(column.astype(np.int64) for column in counts))


def _moved(report: StepReport) -> tuple[float, int, int, int, int, int]:
    return (
        report.seconds,
        report.steps,
        report.prefill_tokens + report.decode_tokens,
        report.kv_tokens,
        report.running,
        len(report.completions),
    )
