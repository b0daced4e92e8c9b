"""How near the policy `blend` comes to the optimum, by what it is told of the lengths."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from benchmarks.paper.cells import Cell, engine_of, work_on
from benchmarks.paper.markdown import number, spread, table
from benchmarks.paper.section import Results, Scale, Section, conditions, trace_cells
from benchmarks.workloads import TABLE_2, table_2
from blend.cli.planning import SAMPLE_S
from blend.core.planning.optimum import practical_optimum_s
from blend.core.planning.tree import tree_of

TOLD = ("sample told", "warm-up", "all known")

# Shares of the prototype with a sample and with all lengths known: seeds 21, 22 and 23.
PROTOTYPE: Mapping[tuple[int, str], tuple[Sequence[float], Sequence[float]]] = {
    (400_000, "trace 1"): ((0.936, 0.970, 0.961), (0.963, 0.963, 0.963)),
    (400_000, "trace 2"): ((0.908, 0.912, 0.905), (0.937, 0.938, 0.936)),
    (400_000, "trace 3"): ((0.927, 0.950, 0.961), (0.959, 0.957, 0.957)),
    (400_000, "trace 4"): ((0.939, 0.915, 0.887), (0.938, 0.935, 0.938)),
    (40_000, "trace 1"): ((0.972, 0.911, 0.843), (0.956, 0.874, 0.844)),
    (40_000, "trace 2"): ((0.821, 0.848, 0.929), (0.825, 0.887, 0.946)),
    (40_000, "trace 3"): ((0.995, 0.964, 0.841), (0.951, 0.938, 0.853)),
    (40_000, "trace 4"): ((0.936, 0.877, 0.954), (0.936, 0.911, 0.955)),
}


def _sizes(scale: Scale) -> list[int]:
    return sorted({scale.traces, scale.grid}, reverse=True)


def _of(name: str, told: str, n: int, scale: Scale) -> list[Cell]:
    return [
        replace(cell, n=n, warm_up=told == "warm-up", known=told == "all known")
        for cell in trace_cells(name, "blend", scale)
    ]


def _cells(scale: Scale) -> Sequence[Cell]:
    return [
        cell
        for n in _sizes(scale)
        for name in TABLE_2
        for told in TOLD
        for cell in _of(name, told, n, scale)
    ]


def _rows(n: int, scale: Scale, results: Results) -> list[list[str]]:
    rows = []
    for what, names in [*((name, (name,)) for name in TABLE_2), ("all", tuple(TABLE_2))]:
        theirs = [PROTOTYPE.get((n, name), ((), ())) for name in names]
        sampled, known = ([x for one in theirs for x in one[way]] for way in (0, 1))
        ours = [
            [results[c].optimum_share for name in names for c in _of(name, told, n, scale)
             if c in results]
            for told in TOLD
        ]  # fmt: skip
        most = [_most(name, n, scale) for name in names]
        figures = map(spread, (sampled, ours[0], ours[1], known, ours[2]))
        rows.append([what, number(sum(most) / len(most), 3), *figures])
    return rows


@lru_cache
def _most(name: str, n: int, scale: Scale) -> float:
    """Return what sharing in whole blocks leaves of the optimum, with the first seed."""
    engine = engine_of(_of(name, "sample told", n, scale)[0])
    workload = table_2(name, n=n, seed=scale.seeds[0])

    tree = workload.tree()
    block = engine.capacity.block_tokens
    # The last token of a prompt is always computed.
    shared = np.minimum(tree.lcp, tree.lengths - 1) // block * block
    in_blocks = tree_of(tree.rows, lengths=tree.lengths, lcp=shared)
    optimum_s, least_s = (
        practical_optimum_s(
            work_on(workload, one, engine),
            interference=engine.interference,
        )
        for one in (tree, in_blocks)
    )
    return optimum_s / least_s


def _text(scale: Scale, results: Results, _plots: Path) -> str:
    text = (
        "## What is known of the lengths\n\nNot in the paper. Share of the practical optimum, mean "
        "[least-greatest] of the seeds. `sample told`: as in the rest of this report, the sample "
        "costs nothing and has told its lengths to the end. `warm-up as in run`: the sample is the "
        "beginning of the run itself, as with `blend run`, with the others behind it, by a plan of "
        f"guesses alone; after {SAMPLE_S:.0f} s the plan is made of what has ended and of how old "
        "the rest is, and finds that inside. `all known`: every request says how long its answer "
        "will be. `prototype`: a first study of the policy, in a simulator of its own and on the "
        "same workloads, measured once; it is told which trace every request is of, and its sample "
        "costs nothing either.\n\n"
    )
    header = ["share of the optimum", "most", "prototype, sample told", "blend, sample told",
              "blend, warm-up as in run", "prototype, all known", "blend, all known"]  # fmt: skip
    for n in _sizes(scale):
        above = conditions(n, scale.seeds, sample="1 % or all")
        text += above + table(header, _rows(n, scale, results)) + "\n"
    return text


SECTIONS = (Section("lengths", _cells, _text),)
