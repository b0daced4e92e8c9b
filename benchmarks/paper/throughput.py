"""Figs. 7, 9, 10 and 12: throughput on the four traces, sharing, and time by resource."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.paper import published
from benchmarks.paper.cells import FIXED, OVERLAPPED, Cell, System
from benchmarks.paper.markdown import number, spread, table
from benchmarks.paper.plots import Floats, bars, can_plot, lines
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

LARGE_MODEL, LARGE_DEVICES = "llama-3-70b", 8

TALK = (
    "their sums over NVLink (300 GB/s each way) beside the rest where operators overlap, else added"
)
OTHER_MODELS = {"qwen-2.5-7b": 1, "llama-2-7b": 1, "qwen-2.5-72b": 8, "deepseek-67b": 8}
Cells = dict[tuple[str, System], list[Cell]]
COMPARED: tuple[System, ...] = ("nanoflow-dfs", "paper", "blend")


def _fig_7_cells(scale: Scale) -> list[Cell]:
    return [c for cells in _small(scale).values() for c in cells]


def _fig_7_70b_cells(scale: Scale) -> list[Cell]:
    return [c for cells in _large(scale).values() for c in cells]


def _small(scale: Scale) -> Cells:
    return {
        (name, system): trace_cells(name, system, scale) for name in TABLE_2 for system in FIXED
    }


def _large(scale: Scale) -> Cells:
    return {
        (name, system): [_on(trace_cell(name, system, scale), LARGE_MODEL, LARGE_DEVICES)]
        for name in TABLE_2
        for system in FIXED
    }


def _on(cell: Cell, model: str, devices: int) -> Cell:
    return replace(cell, model=model, devices=devices)


def _fig_7(scale: Scale, results: Results, plots: Path) -> str:
    cells = _small(scale)
    text = (
        "## Fig. 7: throughput\n\nInput and output tokens a second, mean over the seeds; `optimum` "
        "is max + 0.15·min of compute and memory at the sharing of a depth-first order. It is not "
        "the paper's, which is profiled: shares of the two cannot be compared. The bound "
        "counts the reads of the weights at each step as well, which a job of few long answers "
        "waits for.\n\n"
    )
    above = conditions(scale.traces, scale.seeds)
    text += above + _throughput(cells, results) + "\n"
    text += above + _gains(cells, results, published.GAIN_8B, published.OPTIMUM_8B) + "\n"
    text += above + _per_trace(cells, results) + "\n"
    if can_plot():
        series: dict[str, list[float]] = {
            system: [_mean_tokens_s(cells[name, system], results) or 0.0 for name in TABLE_2]
            for system in FIXED
        }
        bars(plots / "fig-7.svg", list(TABLE_2), series)
        text += "![Throughput of each system](paper/fig-7.svg)\n"
    return text


def _fig_7_70b(scale: Scale, results: Results, _plots: Path) -> str:
    cells = _large(scale)
    above = conditions(
        scale.traces, scale.seeds[:1], device=f"Llama-3-70B, eight A100-80G as one, {TALK}"
    )
    gains = _gains(cells, results, published.GAIN_70B, published.OPTIMUM_70B)
    return f"## Fig. 7: Llama-3-70B\n\n{above}{_throughput(cells, results)}\n{above}{gains}"


def _per_trace(cells: Cells, results: Results) -> str:
    others = [system for system in OVERLAPPED if system != "nanoflow-dfs"]
    rows = [
        [
            name,
            *(spread(speed_ups(results, cells[name, system], "nanoflow-dfs")) for system in others),
        ]
        for name in TABLE_2
    ]
    return table(["over NanoFlow-DFS, mean [least-greatest]", *others], rows)


def _mean_tokens_s(cells: Sequence[Cell], results: Results) -> float | None:
    found = [results[cell].tokens_s for cell in cells if cell in results]
    return float(np.mean(found)) if found else None


def _throughput(cells: Cells, results: Results) -> str:
    rows = []
    for name in TABLE_2:
        any_ran = [results[c] for system in FIXED for c in cells[name, system] if c in results]
        optimum = float(np.mean([o.tokens / o.optimum_s for o in any_ran])) if any_ran else None
        measured = [number(_mean_tokens_s(cells[name, system], results), 0) for system in FIXED]
        rows.append([name, *measured, number(optimum, 0)])
    return table(["tokens/s", *FIXED, "optimum"], rows)


def _gains(cells: Cells, results: Results, gain: str, share: float) -> str:
    def all_of(system: System, names: Sequence[str] = tuple(TABLE_2)) -> list[Cell]:
        return [cell for name in names for cell in cells[name, system]]

    def row(what: str, paper: str, over: System, names: Sequence[str]) -> list[str]:
        ours = [spread(speed_ups(results, all_of(system, names), over))
                for system in ("paper", "blend")]  # fmt: skip
        return [what, paper, *ours]

    every, first = tuple(TABLE_2), ("trace 1", "trace 2")
    shares = [
        spread([results[c].optimum_share for c in all_of(system) if c in results])
        for system in ("paper", "blend")
    ]
    bounds = [
        spread([results[c].bound_s / results[c].seconds for c in all_of(system) if c in results])
        for system in ("paper", "blend")
    ]
    rows = [
        row("over NanoFlow-DFS", gain, "nanoflow-dfs", every),
        row("over vLLM-DFS", f"up to {published.GAIN_OVER_VLLM_DFS}", "vllm-dfs", every),
        row("over random order, traces 1 and 2", str(published.GAIN_OVER_RANDOM),
            "nanoflow-balance", first),
        ["share of the optimum", number(share, 3), *shares],
        ["share of the bound", number(None), *bounds],
    ]  # fmt: skip
    header = ["mean [least-greatest]", "paper's figure", "paper's policy here", "blend"]
    return table(header, rows)


def _fig_9_cells(scale: Scale) -> list[Cell]:
    return [trace_cell(name, system, scale) for name in TABLE_2 for system in FIXED]


def _fig_9(scale: Scale, results: Results, _plots: Path) -> str:
    rows = []
    for name in TABLE_2:
        base = results.get(trace_cell(name, "nanoflow-dfs", scale))
        found = [results.get(trace_cell(name, system, scale)) for system in FIXED]
        kept = [o.sharing / base.sharing if o and base and base.sharing else None for o in found]
        shared = (base.best_sharing, base.sharing) if base else (None, None)
        rows.append([name, *(number(share, 3) for share in (*shared, *kept))])
    header = ["of prompt tokens", "shared", "found by DFS", *(f"{s}, of DFS" for s in FIXED)]
    return (
        "## Fig. 9: sharing kept\n\nPrompt tokens found in the cache. It has blocks of 16 tokens, "
        "which a system prompt of five never fills. Paper: at least "
        f"{published.SHARING_KEPT:.2f} of DFS for BlendServe, under "
        f"{published.SHARING_KEPT_RANDOM:.2f} for a random order.\n\n"
        + conditions(scale.traces, scale.seeds[:1])
        + table(header, rows)
    )


def _fig_10_cells(scale: Scale) -> list[Cell]:
    return [trace_cell("trace 1", system, scale) for system in COMPARED]


def _fig_10(scale: Scale, results: Results, plots: Path) -> str:
    rows: list[list[str]] = []
    series: dict[str, tuple[Floats, Floats, Floats]] = {}
    for cell in _fig_10_cells(scale):
        if cell not in results:
            rows.append([cell.system, number(None), number(None), number(None)])
            continue
        outcome = results[cell]
        at = np.array(outcome.line_s)
        seconds = np.maximum(np.diff(at, prepend=0.0), 1e-9)
        compute = np.array(outcome.line_compute_s) / seconds
        memory = np.array(outcome.line_memory_s) / seconds
        series[cell.system] = (at, compute, memory)
        both = float((seconds * (np.minimum(compute, memory) > 0.25)).sum() / seconds.sum())
        rows.append([cell.system, number(float((compute * seconds).sum()), 0),
                     number(float((memory * seconds).sum()), 0), number(both)])  # fmt: skip
    text = (
        "## Fig. 10: compute and memory over the run\n\nTrace 1, Llama-3-8B. The last column is "
        "the part of the time in which both take at least a quarter of it.\n\n"
    )
    text += conditions(scale.traces, scale.seeds[:1])
    text += table(["system", "compute, s", "memory, s", "both at work"], rows)
    if can_plot() and series:
        lines(plots / "fig-10.svg", series)
        text += "\n![Compute and memory over the run](paper/fig-10.svg)\n"
    return text


def _fig_12_cells(scale: Scale) -> list[Cell]:
    return [
        _on(trace_cell(name, system, scale), model, devices)
        for model, devices in OTHER_MODELS.items()
        for name in TABLE_2
        for system in COMPARED
    ]


def _fig_12(scale: Scale, results: Results, _plots: Path) -> str:
    rows = []
    for model, devices in OTHER_MODELS.items():
        gains, shares, refused = [], [], 0
        for system in ("paper", "blend"):
            cells = [_on(trace_cell(name, system, scale), model, devices) for name in TABLE_2]
            ran = [results[cell] for cell in cells if cell in results]
            gains.append(spread(speed_ups(results, cells, "nanoflow-dfs")))
            shares.append(spread([one.optimum_share for one in ran]))
            refused = max([refused, *(one.refused for one in ran)])
        rows.append([f"{model}, {devices} x A100", *gains, *shares, number(refused, 0)])
    return (
        "## Fig. 12: four other models\n\nOver NanoFlow-DFS, the four traces, and share of the "
        f"optimum. Paper: {published.GAIN_OTHER_MODELS}; "
        f"{published.OPTIMUM_OTHER_MODELS} of its own optimum.\n\n"
        + conditions(scale.traces, scale.seeds[:1], device=f"several A100-80G as one, {TALK}")
        + table(
            [
                "model",
                "paper's policy here",
                "blend",
                "paper's policy, of the optimum",
                "blend, of the optimum",
                "requests that never fit, most",
            ],
            rows,
        )
    )


SECTIONS = (
    Section("fig-7", _fig_7_cells, _fig_7),
    Section("fig-7-70b", _fig_7_70b_cells, _fig_7_70b),
    Section("fig-9", _fig_9_cells, _fig_9),
    Section("fig-10", _fig_10_cells, _fig_10),
    Section("fig-12", _fig_12_cells, _fig_12),
)
