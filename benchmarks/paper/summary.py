"""The main figures of the paper beside ours, in one table."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.paper import published
from benchmarks.paper.cells import Cell, System
from benchmarks.paper.grids import COMPARED, GRIDS, grid_speed_ups
from benchmarks.paper.markdown import number, spread, table
from benchmarks.paper.section import (
    Results,
    Scale,
    Section,
    conditions,
    speed_ups,
    trace_cell,
    trace_cells,
)
from benchmarks.workloads import TABLE_2

OURS: tuple[System, ...] = ("memory-first", "paper", "blend")


def _no_cells(_scale: Scale) -> Sequence[Cell]:
    return ()


def _text(scale: Scale, results: Results, _plots: Path) -> str:
    first = ("trace 1", "trace 2")
    fig_11 = published.FIG_11
    rows = [
        ["over NanoFlow-DFS", published.GAIN_8B]
        + [_gain(system, "nanoflow-dfs", scale, results) for system in OURS],
        ["over vLLM-DFS", f"up to {published.GAIN_OVER_VLLM_DFS}"]
        + [_gain(system, "vllm-dfs", scale, results) for system in OURS],
        ["over a random order, traces 1 and 2", str(published.GAIN_OVER_RANDOM)]
        + [_gain(system, "nanoflow-balance", scale, results, names=first) for system in OURS],
        ["share of the optimum; theirs is another one", number(published.OPTIMUM_8B, 3)]
        + [_optimum(system, scale, results) for system in OURS],
        ["sharing kept of DFS", f"at least {published.SHARING_KEPT}"]
        + [_kept(system, scale, results) for system in OURS],
        [f"Fig. 11, over NanoFlow-DFS, {scale.grid:,} requests", spread(fig_11.ravel().tolist())]
        + [_on_grid(system, scale, results) for system in OURS],
        ["1 % sample over all lengths known", "comparable"]
        + [_sampled(system, scale, results) for system in OURS],
    ]
    return (
        "## Main figures\n\nMean [least-greatest] of the four traces, Llama-3-8B; the last row and "
        "Fig. 11 with the first seed alone.\n\n"
        + conditions(scale.traces, scale.seeds)
        + table(["", "paper", "memory-first here", "paper's policy here", "blend"], rows)
    )


def _cells(system: System, scale: Scale, names: Sequence[str] = tuple(TABLE_2)) -> list[Cell]:
    return [cell for name in names for cell in trace_cells(name, system, scale)]


def _gain(
    system: System,
    over: System,
    scale: Scale,
    results: Results,
    *,
    names: Sequence[str] = tuple(TABLE_2),
) -> str:
    return spread(speed_ups(results, _cells(system, scale, names), over))


def _optimum(system: System, scale: Scale, results: Results) -> str:
    cells = _cells(system, scale)
    return spread([results[cell].optimum_share for cell in cells if cell in results])


def _kept(system: System, scale: Scale, results: Results) -> str:
    pairs = [(cell, replace(cell, system="nanoflow-dfs")) for cell in _cells(system, scale)]
    return spread(
        [
            results[cell].sharing / results[base].sharing
            for cell, base in pairs
            if cell in results and base in results
        ]
    )


def _on_grid(system: System, scale: Scale, results: Results) -> str:
    # Other sections run some of the cells with other systems: those few are not the grid.
    found = grid_speed_ups(GRIDS[0], scale, results, system) if system in COMPARED else []
    return spread(found)


def _sampled(system: System, scale: Scale, results: Results) -> str:
    cells = [trace_cell(name, system, scale) for name in TABLE_2]
    pairs = [(cell, replace(cell, sample=1.0)) for cell in cells]
    return spread(
        [
            results[every].seconds / results[little].seconds
            for little, every in pairs
            if little in results and every in results
        ]
    )


SECTIONS = (Section("summary", _no_cells, _text),)
