"""Table 4 and Table 2: the stand-ins beside what is published of the traces, and their mixtures."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.paper.cells import Cell
from benchmarks.paper.markdown import number, table
from benchmarks.paper.published import TABLE_4
from benchmarks.paper.section import Results, Scale, Section
from benchmarks.traces import PAPER_HARDWARE, PAPER_MODEL, TRACES
from benchmarks.workloads import TABLE_2, one_trace, table_2
from blend.core.planning.cost import weights_s
from blend.core.planning.optimum import practical_optimum_s, work_of

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
        "assumed.\n\n"
        f"*{TRACE_ROWS:,} requests each, seed {scale.seeds[0]}, Llama-3-8B on an A100-80G.*\n\n"
        + table(header, rows)
    )


def _table_2(scale: Scale, _results: Results, _plots: Path) -> str:
    rows = [
        _mixed(name, density, sharing, n=n, seed=scale.seeds[0])
        for n in sorted({scale.traces, scale.grid}, reverse=True)
        for name, (density, sharing) in TABLE_2.items()
    ]
    header = ["workload", "density, paper", "ours", "sharing, paper", "ours", "BurstGPT", "MMLU",
              "OpenVid", "longest answer", "reading weights for it, of the optimum"]  # fmt: skip
    return (
        "## Table 2: the workloads\n\n"
        "Counts follow from the published means and the target; the paper does not give its own. "
        "A thousandth of the requests makes nearly all of the memory side. The last column is the "
        "time to read all weights once for each token of the longest answer, over the practical "
        "optimum of the whole job.\n\n"
        f"*Seed {scale.seeds[0]}, Llama-3-8B on an A100-80G.*\n\n" + table(header, rows)
    )


def _mixed(name: str, density: float, sharing: float, *, n: int, seed: int) -> list[str]:
    workload = table_2(name, n=n, seed=seed)
    longest = int(workload.output_tokens.max())
    work = work_of(
        workload.tree(),
        workload.output_tokens,
        hardware=PAPER_HARDWARE,
        model=PAPER_MODEL,
        attention=False,
    )
    reads_s = longest * weights_s(hardware=PAPER_HARDWARE, model=PAPER_MODEL)
    counts = np.bincount(workload.trace, minlength=3).tolist()
    return [
        f"{name}, {n:,} requests",
        number(density),
        number(workload.density),
        number(sharing),
        number(workload.sharing, 3),
        *(f"{count:,}" for count in counts),
        f"{longest:,}",
        number(reads_s / practical_optimum_s(work)),
    ]


SECTIONS = (Section("table-4", _no_cells, _table_4), Section("table-2", _no_cells, _table_2))
