"""How do replicas scale whose long answers nobody knows, and how near to that does blend come?

python -m benchmarks.replicas [--requests 400000] [--seeds 21 22 23] [--jobs 2] [--results FILE]

A long answer that has begun stays in its replica, so what each replica reads is a matter of luck.
Three things bound what dealing can do about it, each beside the time of blend on one engine:

    lengths known     the longest answer alone, or a fair part of the work
    answers may move  all replicas read alike in every step, as if what runs moved at no cost
    one queue         so many long answers at a time in each replica, the others in one queue

The last two take the answers in a random order, so many at a time as turns out to be best, and
spread the compute side over the steps and the replicas with full knowledge.
"""

import argparse
import heapq
import sys
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from benchmarks.machine import simulated_on
from benchmarks.paper.cells import Cell, engine_of, measure, work_on
from benchmarks.paper.markdown import spread, table
from benchmarks.traces import Floats, Ints
from benchmarks.unknown_lengths import Room, begun_in_turns, long_answers, reads, room_of
from benchmarks.workloads import TABLE_2, table_2
from blend.core.planning.engine_model import EngineModel
from blend.core.planning.optimum import Work

REPLICAS = (2, 4, 8)
AT_A_TIME = (8, 12, 16, 24, 32, 48)
ORDERS = 8
HEADER = ["times as fast as one", "replicas", "lengths known", "answers may move", "one queue",
          "blend"]  # fmt: skip


@dataclass(slots=True)
class _Replica:
    """The long answers of one replica: until which step each runs, and what it holds beside it."""

    engine: EngineModel
    step: int = 0
    seconds: float = 0.0
    until: list[int] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    read: list[Ints] = field(default_factory=list)

    def begin(self, prompt: int, answer: int) -> None:
        self.until.append(self.step + answer - 1)
        self.held.append(prompt + 1 - self.step)

    def stretch(self) -> Ints:
        """Return the tokens of each step until one of the answers ends."""
        tokens: Ints = sum(self.held) + len(self.held) * np.arange(self.step, min(self.until))
        return tokens

    def end_s(self) -> float:
        """Return when that is; a step computes as long as it reads, as most do."""
        longer = np.maximum(self.stretch() * self.engine.read_s, self.engine.weights_s)
        return self.seconds + (1.0 + self.engine.interference.constant) * float(longer.sum())

    def run(self) -> None:
        """Run until then."""
        self.seconds, stretch = self.end_s(), self.stretch()
        self.read.append(stretch)
        self.step += len(stretch)
        both = zip(self.until, self.held, strict=True)
        going = [(until, held) for until, held in both if until > self.step]
        self.until, self.held = [until for until, _ in going], [held for _, held in going]


def queued(
    prompt: Ints, answer: Ints, order: Ints, *, replicas: int, at_a_time: int, engine: EngineModel
) -> list[Ints]:
    """Return the tokens read in each step of each replica, when all take from one queue."""
    waiting = deque(zip(prompt[order].tolist(), answer[order].tolist(), strict=True))
    every = [_Replica(engine) for _ in range(replicas)]
    for _ in range(at_a_time):
        for one in every:
            if waiting:
                one.begin(*waiting.popleft())
    ends = [(one.end_s(), number) for number, one in enumerate(every) if one.until]
    heapq.heapify(ends)
    while ends:
        number = heapq.heappop(ends)[1]
        one = every[number]
        one.run()
        while waiting and len(one.until) < at_a_time:
            one.begin(*waiting.popleft())
        if one.until:
            heapq.heappush(ends, (one.end_s(), number))
    return [np.concatenate([np.zeros(0, np.int64), *one.read]) for one in every]


def last_end_s(rooms: Sequence[Room], compute_s: float) -> float:
    """Return when the last replica ends that has this room, the compute spread at its best."""
    early = max(room.least_s for room in rooms)
    late = early + compute_s
    for _ in range(50):
        middle = (early + late) / 2
        if sum(room.compute_s(middle) for room in rooms) >= compute_s:
            late = middle
        else:
            early = middle
    return late


def _rooms(read: Sequence[Floats | Ints], work: Work, engine: EngineModel) -> list[Room]:
    steps = sum(len(one) for one in read)
    other_s = work.mem_s - sum(float(one.sum()) for one in read) * engine.read_s
    return [room_of(one, other_s * len(one) / max(steps, 1), engine) for one in read]


def bounds_s(cell: Cell) -> dict[int, tuple[float, float]]:
    """Return, by replicas, the seconds when answers may move, and with one queue."""
    workload, engine = table_2(_name(cell), n=cell.n, seed=cell.seed), engine_of(cell)
    work = work_on(workload, workload.tree(), engine)
    prompt, answer = long_answers(workload)
    rng = np.random.default_rng(0)
    found = {}
    for replicas in REPLICAS:
        moved, in_turn = [], []
        for at_a_time in AT_A_TIME:
            orders = [rng.permutation(len(answer)) for _ in range(ORDERS)]
            even = [
                reads(prompt, answer, begun_in_turns(answer, replicas * at_a_time, rng)) / replicas
                for _ in orders
            ]
            moved.append(
                np.mean(
                    [
                        last_end_s(_rooms([one] * replicas, work, engine), work.comp_s)
                        for one in even
                    ]
                )
            )
            own = [
                queued(prompt, answer, order, replicas=replicas, at_a_time=at_a_time, engine=engine)
                for order in orders
            ]
            in_turn.append(
                np.mean([last_end_s(_rooms(one, work, engine), work.comp_s) for one in own])
            )
        found[replicas] = float(min(moved)), float(min(in_turn))
    return found


def _name(cell: Cell) -> str:
    return next(name for name, pair in TABLE_2.items() if pair == (cell.density, cell.sharing))


def scaling(cell: Cell) -> dict[int, tuple[float, ...]]:
    """Return, by replicas, how many times as fast as one engine: three bounds, and blend."""
    one_s, bounds = measure(cell).seconds, bounds_s(cell)
    found = {}
    for replicas in REPLICAS:
        ran = measure(replace(cell, replicas=replicas))
        times = (ran.bound_s, *bounds[replicas], ran.seconds)
        found[replicas] = tuple(one_s / seconds for seconds in times)
    return found


def main(arguments: Sequence[str]) -> None:
    """Print the table, or write the document."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replicas")
    parser.add_argument("--requests", type=int, default=400_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[21, 22, 23])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--results", type=Path, metavar="FILE", help="where the document goes")
    options = parser.parse_args(arguments)
    cells = [
        Cell(system="blend", density=density, sharing=sharing, n=options.requests, seed=seed)
        for density, sharing in TABLE_2.values()
        for seed in options.seeds
    ]
    with ProcessPoolExecutor(options.jobs) as pool:
        measured = dict(zip(cells, pool.map(scaling, cells), strict=True))
    rows = []
    for name in TABLE_2:
        of_trace = [one for cell, one in measured.items() if _name(cell) == name]
        for replicas in REPLICAS:
            columns = zip(*(one[replicas] for one in of_trace), strict=True)
            rows.append([name, f"{replicas}", *(spread(some, 2) for some in columns)])
    text = table(HEADER, rows)
    sys.stdout.write(text)
    if options.results:
        document = _document(text, options.requests, options.seeds)
        options.results.write_text(document, encoding="utf-8")


def _document(rows: str, requests: int, seeds: Sequence[int]) -> str:
    return (
        "# What replicas can have without knowing the lengths\n\nWritten by `python -m "
        f"benchmarks.replicas` {simulated_on()}. "
        "How many times as fast as `blend` on one engine. `lengths known`: the time of the longest "
        "answer alone, or a fair part of the work, which nothing can beat. The next two know no "
        "lengths, but for the compute side, which is spread over steps and replicas with full "
        "knowledge; the long answers are begun in a random order, so many at a time as turns out "
        f"to be best (the mean of {ORDERS} orders). `answers may move`: all replicas read alike in "
        "every step, as if what runs moved to another at no cost; no engine does that. "
        "`one queue`: an answer stays where it has begun, and a replica in which one ends takes "
        "the next of all that wait. What a replica reads goes with the squares of its answers' "
        "lengths, so the one with the longest ends last.\n\n"
        f"*{requests:,} requests a workload, stand-in lengths, seeds "
        f"{', '.join(map(str, seeds))} (mean and range); Llama-3-8B, one A100-80G a replica, "
        "simulated as in [paper.md](paper.md). Blend knows the lengths of a sample of 1 %.*\n\n"
        + rows
    )


if __name__ == "__main__":
    main(sys.argv[1:])
