"""Table 4 and Table 2: the stand-ins beside what is published of the traces, and their mixtures."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.paper.cells import Cell
from benchmarks.paper.markdown import number, table
from benchmarks.paper.published import TABLE_4
from benchmarks.paper.section import Results, Scale, Section
from benchmarks.traces import TRACES
from benchmarks.workloads import TABLE_2, one_trace, table_2

TRACE_ROWS = 14_000


def _no_cells(_scale: Scale) -> Sequence[Cell]:
    return ()


def _table_4(scale: Scale, _results: Results, _plots: Path) -> str:
    rows = []
    for name, (sharing, density) in TABLE_4.items():
        workload = one_trace(name, TRACE_ROWS, seed=scale.seeds[0])
        prompt, output = workload.prompt_tokens, workload.output_tokens
        deviation = float(np.log(output).std())
        rows.append(
            [
                name,
                number(sharing),
                number(workload.sharing),
                number(density),
                number(workload.density),
                number(float(prompt.mean()), 0),
                number(float(output.mean()), 0),
                number(float(np.median(output)), 0),
                number(deviation),
                TRACES[name].output_shape,
            ]
        )
    header = ["stand-in", "sharing, paper", "ours", "density, paper", "ours", "mean in",
              "mean out", "median out", "sd of ln out", "shape"]  # fmt: skip
    return (
        "## Table 4: the stand-in traces\n\n"
        "BurstGPT, OpenVid, ShareGPT, WildChat and Azure as the paper used them are not at hand "
        "with their lengths. Ours are drawn from plain shapes and bent until mean lengths and "
        "density are the published ones (`benchmarks/traces.py`); spread and correlation are "
        f"assumed. {TRACE_ROWS:,} requests each, Llama-3-8B on an A100-80G.\n\n"
        + table(header, rows)
    )


def _table_2(scale: Scale, _results: Results, _plots: Path) -> str:
    rows = []
    for name, (density, sharing) in TABLE_2.items():
        workload = table_2(name, n=scale.traces, seed=scale.seeds[0])
        counts = np.bincount(workload.trace, minlength=3).tolist()
        rows.append(
            [
                name,
                number(density),
                number(workload.density),
                number(sharing),
                number(workload.sharing, 3),
                *(f"{count:,}" for count in counts),
                f"{int(workload.output_tokens.max()):,}",
            ]
        )
    header = ["workload", "density, paper", "ours", "sharing, paper", "ours", "BurstGPT", "MMLU",
              "OpenVid", "longest answer"]  # fmt: skip
    return (
        "## Table 2: the workloads\n\n"
        "Counts follow from the published means and the target; the paper does not give its own. "
        "A thousandth of the requests makes nearly all of the memory side.\n\n"
        + table(header, rows)
    )


SECTIONS = (Section("table-4", _no_cells, _table_4), Section("table-2", _no_cells, _table_2))
