"""Table 3: data parallel. How many times as fast are several replicas, and what sharing is lost?

One system and one seed: all of it takes one core some four minutes at 400,000 requests.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.paper import published
from benchmarks.paper.cells import Cell
from benchmarks.paper.markdown import number, table
from benchmarks.paper.section import Results, Scale, Section, conditions, trace_cell
from benchmarks.workloads import TABLE_2

REPLICAS = (1, 2, 4, 8)


def _cells_of(name: str, scale: Scale) -> list[Cell]:
    return [replace(trace_cell(name, "blend", scale), replicas=count) for count in REPLICAS]


def _cells(scale: Scale) -> Sequence[Cell]:
    return [cell for name in TABLE_2 for cell in _cells_of(name, scale)]


def _text(scale: Scale, results: Results, _plots: Path) -> str:
    speeds, scaling, reached = [], [], []
    for name in TABLE_2:
        found = [results.get(cell) for cell in _cells_of(name, scale)]
        theirs = published.TABLE_3[name]
        speeds.append(
            [name, *(number(x, 0) for x in theirs)]
            + [number(one.tokens_s if one else None, 0) for one in found]
        )
        alone, several = found[0], found[1:]
        times = [alone.seconds / one.seconds if alone and one else None for one in several]
        bounds = [alone.seconds / one.bound_s if alone and one else None for one in several]
        lost = [
            100 * (1 - one.sharing / alone.sharing) if alone and one else None for one in several
        ]
        scaling.append(
            [name, *(number(x / theirs[0]) for x in theirs[1:])]
            + [number(x) for x in times]
            + [number(x) for x in bounds]
            + [number(x, 2) for x in lost]
        )
        reached.append(
            [name, *(number(one.bound_s / one.seconds if one else None) for one in found)]
        )
    by_count = [f"blend {count}" for count in REPLICAS]
    header = ["over one", "paper 2", "4", "blend 2", "4", "8", "bound 2", "4", "8",
              "lost %, 2", "4", "8"]  # fmt: skip
    return (
        "## Table 3: data parallel\n\nBy number of replicas, over one engine with the same policy; "
        "of the systems `blend` alone ran, with one seed. `bound`: what no cut can exceed, for the "
        "longest answer is not cut; `lost`: of the prompt tokens that one replica finds in its "
        "cache.\n\n"
        + conditions(scale.traces, scale.seeds[:1])
        + table(["tokens/s", "paper 1", "2", "4", *by_count], speeds)
        + "\n"
        + conditions(scale.traces, scale.seeds[:1])
        + table(header, scaling)
        + "\nOf the time taken, what so many engines need at least: the longest answer, or a fair "
        "part of compute and cache reads.\n\n"
        + conditions(scale.traces, scale.seeds[:1])
        + table(["bound, of the time", *by_count], reached)
    )


SECTIONS = (Section("table-3", _cells, _text),)
