"""How fast can a job end whose long answers nobody knows, and how near to that does blend come?

python -m benchmarks.unknown_lengths [--requests 40000] [--seeds 21 22 23] [--results FILE]

Symbols: W seconds to read the weights, m_s seconds to read the cache in step s, a interference.
Long answers whose lengths are alike to everybody can be begun at once, or some at a time in any
order. Either way a step takes no less than max(W, m_s), and so

    sum of max(W, m_s) + a·min(W, m_s), and of what does not ride free on W: a·compute as far as it
    fits beside longer reads, all of it beyond

is what comes of it when the compute side is spread with full knowledge; its own reads are taken to
be spread evenly. What an order that knows all lengths could reach is `optimum.bound_s`.
"""

import argparse
import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.machine import simulated_on
from benchmarks.paper.cells import Cell, engine_of, measure, work_on
from benchmarks.paper.markdown import number, table
from benchmarks.traces import Floats, Ints
from benchmarks.workloads import TABLE_2, Workload, table_2
from blend.core.planning.engine_model import EngineModel
from blend.core.planning.optimum import Work, practical_optimum_s

LONG_TOKENS = 65_536
"""Limits above which a request is one of the memory side."""

AT_A_TIME = (8, 12, 16, 20, 24, 32, 48)
ORDERS = 8
HEADER = [
    "workload", "long answers", "longest", "lengths known", "begun at once",
    "best number at a time", "blend", "blend / begun at once",
]  # fmt: skip


def reads(prompt: Ints, answer: Ints, begun: Ints) -> Ints:
    """Return the tokens read in each step by answers that begin in these steps."""
    steps = int((begun + answer).max()) - 1
    alive, others = np.zeros(steps + 1, np.int64), np.zeros(steps + 1, np.int64)
    for at, sign in ((begun, 1), (begun + answer - 1, -1)):
        np.add.at(alive, at, sign)
        np.add.at(others, at, sign * (prompt - begun + 1))
    read: Ints = np.cumsum(others) + np.cumsum(alive) * np.arange(steps + 1)
    return read[:steps]


def begun_in_turns(answer: Ints, at_a_time: int, rng: np.random.Generator) -> Ints:
    """Return the steps in which answers begin at random, so many at a time."""
    free, begun = [0] * at_a_time, np.zeros(len(answer), np.int64)
    for one in rng.permutation(len(answer)):
        begun[one] = heapq.heappop(free)
        heapq.heappush(free, int(begun[one] + answer[one]))
    return begun


@dataclass(frozen=True, slots=True)
class Room:
    """What steps can compute beside their reads.

    They take ``least_s`` with as much compute as rides ``free_s`` on the weights; what fits
    ``beside_s`` longer reads costs ``part`` of itself, and all beyond the whole.
    """

    least_s: float
    free_s: float
    beside_s: float
    part: float

    def seconds(self, compute_s: float) -> float:
        """Return what the steps take with so much to compute, spread at its best."""
        more = max(compute_s - self.free_s, 0.0)
        beside = min(more, self.beside_s)
        return self.least_s + self.part * beside + more - beside

    def compute_s(self, seconds: float) -> float:
        """Return how much the steps can compute within so many seconds, not under ``least_s``."""
        more = seconds - self.least_s
        beside = min(more / self.part, self.beside_s) if self.part > 0.0 else self.beside_s
        return self.free_s + beside + max(more - self.part * beside, 0.0)


def room_of(read: Floats | Ints, other_s: float, engine: EngineModel) -> Room:
    """Return the room in steps that read so many tokens, and other rows for *other_s*, evenly."""
    weights, part = engine.weights_s, engine.interference.constant
    memory = read * engine.read_s + other_s / max(len(read), 1)
    longer: Floats = np.maximum(memory, weights)
    return Room(
        float(longer.sum() + part * np.minimum(memory, weights).sum()),
        weights * len(read),
        float((longer - weights).sum()),
        part,
    )


def least_s(read: Ints, work: Work, engine: EngineModel) -> float:
    """Return the seconds of steps that read so many tokens, all compute spread at its best."""
    other_s = work.mem_s - float(read.sum()) * engine.read_s
    return room_of(read, other_s, engine).seconds(work.comp_s)


def long_answers(workload: Workload) -> tuple[Ints, Ints]:
    """Return the tokens of the prompts and answers of the memory side."""
    long = workload.max_tokens > LONG_TOKENS
    return workload.prompt_tokens[long].astype(np.int64), workload.output_tokens[long].astype(
        np.int64
    )


def shares(workload: Workload, cell: Cell) -> list[str]:
    """Return the line of a workload: shares of the practical optimum."""
    engine = engine_of(cell)
    work = work_on(workload, workload.tree(), engine)
    optimum_s = practical_optimum_s(work)
    prompt, answer = long_answers(workload)
    at_once = least_s(reads(prompt, answer, np.zeros_like(answer)), work, engine)
    rng = np.random.default_rng(0)
    in_turns = [
        sum(
            [
                least_s(reads(prompt, answer, begun_in_turns(answer, some, rng)), work, engine)
                for _ in range(ORDERS)
            ]
        )
        / ORDERS
        for some in AT_A_TIME
        if some < len(answer)
    ]
    ran = measure(cell)
    figures = (ran.optimum_s / ran.bound_s, optimum_s / at_once, optimum_s / min(in_turns))
    return [
        f"{len(answer)}",
        f"{int(answer.max()):,}",
        *(number(one, 3) for one in figures),
        number(ran.optimum_share, 3),
        number(at_once / ran.seconds, 3),
    ]


def main(arguments: Sequence[str]) -> None:
    """Print the table, or write the document."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.unknown_lengths")
    parser.add_argument("--requests", type=int, default=40_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[21, 22, 23])
    parser.add_argument("--results", type=Path, metavar="FILE", help="where the document goes")
    options = parser.parse_args(arguments)
    rows: list[list[str]] = []
    for name, (density, sharing) in TABLE_2.items():
        for seed in options.seeds:
            cell = Cell(
                system="blend", density=density, sharing=sharing, n=options.requests, seed=seed
            )
            line = shares(table_2(name, n=options.requests, seed=seed), cell)
            rows.append([f"{name}, seed {seed}", *line])
            print(" | ".join(rows[-1]), flush=True)
    if options.results:
        options.results.write_text(_document(rows, options.requests), encoding="utf-8")


def _document(rows: Sequence[Sequence[str]], requests: int) -> str:
    blend, share = (np.array([float(row[at]) for row in rows]) for at in (6, 7))
    return (
        "# What can be had without knowing the lengths\n\nWritten by `python -m "
        f"benchmarks.unknown_lengths` {simulated_on()}. "
        "Shares of the practical optimum, which leaves the reads of "
        "the weights out, on an engine that overlaps. A small job has a few dozen long answers; "
        "when the last few of them run on alone, a step takes as long as reading the weights, "
        "whatever order they were begun in. `lengths known` is what no order of known lengths "
        "beats. `begun at once` and `best number at a time` are what comes of beginning the "
        f"long answers all together, or so many at a time in a random order (the mean of {ORDERS}, "
        "of the best number in hindsight), were the compute side spread over the steps with full "
        "knowledge.\n\n"
        f"*{requests:,} requests a workload, stand-in lengths; Llama-3-8B, one A100-80G, simulated "
        "as in [paper.md](paper.md). Blend knows the lengths of a sample of 1 %.*\n\n"
        + table(HEADER, rows)
        + f"\nBlend comes to {blend.mean():.3f} of the optimum on the average, {blend.min():.3f} "
        f"at worst, and to {share.mean():.3f} of what can be had by beginning all at once, "
        f"{share.min():.3f} at worst.\n"
    )


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
