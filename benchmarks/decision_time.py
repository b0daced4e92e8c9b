"""How long does the blending scanner think about one step, with thousands of rows running?

python -m benchmarks.decision_time [--running 2000] [--steps 4000] [--seed 5] [--write]

Timed is all that the scanner does in a step, as a run calls it: what it admits, and what it makes
of the report. The engine is a stand-in that computes what it is paced to and decodes all it holds;
it takes no part in the time. The requests are those of the paper's traces with more long answers,
so that a cache of the size that this takes is filled by as many of them. Time is that of the
processor, so that other work on the machine does not count.
"""

import argparse
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.machine import conditions
from benchmarks.paper.markdown import table
from benchmarks.traces import PAPER_HARDWARE, PAPER_MODEL, Ints
from benchmarks.workloads import Workload, mixture
from blend.core.completion import Completion
from blend.core.engines import Capacity, StepReport
from blend.core.planning.blending import blended_schedule
from blend.core.planning.classes import Mode, find_classes
from blend.core.planning.lengths import Observations, choose_sample
from blend.core.planning.tree import Floats
from blend.core.running.scan import Scanner, open_scanner
from blend.core.schedule import Schedule

REPORT = Path(__file__).parents[1] / "docs" / "results" / "plan-scale.md"
HEADING = "## The time of a decision"

MODES: tuple[Mode, ...] = ("overlapped", "sequential")
TOKENS_A_ROW = 60_000
STEP_TOKENS = 8_192


class StandIn:
    """An engine without a cache or a clock: rows are prefilled in order, then decode together."""

    def __init__(self, prompt: Ints, output: Ints, uncached: Ints):
        self._prompt, self._output, self._uncached = prompt, output, uncached
        self._waiting: deque[list[int]] = deque()
        self._rows = np.empty(0, np.int64)
        self._made = np.empty(0, np.int64)

    @property
    def running(self) -> int:
        """Return how many rows decode."""
        return len(self._rows)

    def submit(self, row: int) -> None:
        """Take a row in."""
        self._waiting.append([row, int(self._uncached[row])])

    def step(self, pace: int) -> StepReport:
        """Compute *pace* prompt tokens, and a token of every row that decodes."""
        started, prefill = [], 0
        while self._waiting and prefill < pace:
            part = min(self._waiting[0][1], pace - prefill)
            prefill += part
            self._waiting[0][1] -= part
            if not self._waiting[0][1]:
                started.append(self._waiting.popleft()[0])
        decode = len(self._rows)
        self._made += 1
        self._rows = np.append(self._rows, started).astype(np.int64)
        self._made = np.append(self._made, np.ones(len(started), np.int64))
        ended = self._made >= self._output[self._rows]
        done = tuple(
            Completion(row, 200, b"", completion_tokens=int(self._output[row]))
            for row in self._rows[ended].tolist()
        )
        self._rows, self._made = self._rows[~ended], self._made[~ended]
        held = int(self._prompt[self._rows].sum() + self._made.sum())
        return StepReport(
            completions=done,
            running=len(self._rows),
            waiting=len(self._waiting),
            kv_tokens=held,
            steps=1,
            prefill_tokens=prefill,
            decode_tokens=decode,
            cached_tokens=0,
            preemptions=0,
            seconds=0.0,
        )


def decision_seconds(workload: Workload, *, mode: Mode, running: int, steps: int) -> Floats:
    """Return the seconds of each of *steps* decisions with nearly *running* rows inside."""
    schedule, scanner = _scanner(workload, mode=mode, running=running)
    uncached = np.empty(len(workload), np.int64)
    uncached[schedule.order] = np.maximum(schedule.uncached_tokens, 1)
    engine = StandIn(workload.prompt_tokens, workload.output_tokens, uncached)
    seconds: list[float] = []
    while len(seconds) < steps:
        began = time.thread_time()
        rows = scanner.admit()
        thought = time.thread_time() - began
        for row in rows:
            engine.submit(row)
        paced = mode == "overlapped" and scanner.pace is not None
        most = min(scanner.pace or STEP_TOKENS, STEP_TOKENS) if paced else STEP_TOKENS
        report = engine.step(max(most, 1))
        began = time.thread_time()
        scanner.observe(report)
        thought += time.thread_time() - began
        if engine.running > 0.8 * running:
            seconds.append(thought)
        if scanner.done and not engine.running:
            break
    return np.array(seconds)


def _scanner(workload: Workload, *, mode: Mode, running: int) -> tuple[Schedule, Scanner]:
    tree = workload.tree()
    rows = choose_sample(tree, workload.sizes(), minimum=30, every_cohort=True, seed=1)
    tokens = np.full(len(tree), np.nan)
    tokens[rows] = workload.output_tokens[rows]
    classes = find_classes(
        tree, workload.max_tokens, Observations(tokens, finished=~np.isnan(tokens))
    )
    schedule = blended_schedule(
        tree, classes, hardware=PAPER_HARDWARE, model=PAPER_MODEL, mode=mode
    )
    capacity = Capacity(
        kv_tokens=TOKENS_A_ROW * running,
        max_sequences=running,
        step_tokens=STEP_TOKENS,
        context_tokens=131_072,
        block_tokens=16,
        # A paced step of a sequential engine would not let thousands in: there it is the gate.
        pacing="step budget" if mode == "overlapped" else "none",
    )
    return schedule, open_scanner(
        schedule,
        prompt_tokens=workload.prompt_tokens,
        sequences=np.ones(len(tree), np.int64),
        capacity=capacity,
    )


def main(arguments: Sequence[str]) -> None:
    """Print mean, median, 99th percentile and the longest, or write them beside the plan's time."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decision_time")
    parser.add_argument("--running", type=int, default=2_000)
    parser.add_argument("--steps", type=int, default=4_000)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--write", action="store_true", help=f"to {REPORT.name}")
    options = parser.parse_args(arguments)
    workload = mixture(0.06, 0.05, n=200_000, seed=options.seed)
    rows = []
    for mode in MODES:
        decision_seconds(workload, mode=mode, running=options.running, steps=64)  # compiles
        found = 1000 * decision_seconds(
            workload, mode=mode, running=options.running, steps=options.steps
        )
        figures = (found.mean(), np.median(found), np.quantile(found, 0.99), found.max())
        rows.append([mode, f"{len(found):,}", *(f"{one:.3f}" for one in figures)])
    told = table(["engine", "steps", "mean, ms", "median", "p99", "most"], rows)
    print(told, end="")
    if options.write:
        before = REPORT.read_text("utf-8").partition(f"\n{HEADING}\n")[0].rstrip("\n")
        REPORT.write_text(f"{before}\n\n{_section(told, options.running)}", "utf-8")


def _section(told: str, running: int) -> str:
    described = conditions()
    return (
        f"{HEADING}\n\nWritten by `make bench-plan`, too: what the scanner of `blend` thinks about "
        "one step, all of it: what it admits, and what it makes of the report. Every 32 steps it "
        "looks over all rows inside, every 512 it estimates lengths anew. The paper's takes "
        "0.08 ms on the average, 0.23 ms at p99.\n\n"
        f"*Milliseconds of the processor, about {running:,} requests running; "
        f"{described['cores']} cores, a load of {described['load']:.0f}: what else runs takes its "
        f"part of their caches.*\n\n{told}\nThe slowest steps are those that look over the rows "
        "inside.\n"
    )


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
