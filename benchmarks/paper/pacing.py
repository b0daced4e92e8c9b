"""What the ways to set the pace are worth on stock vLLM, whose operators run one after another.

Not in the paper. There a step reads all weights, and about W·C/F prompt tokens ride free on it; the
question is how much of that each way uses, from the options vLLM has to a budget for each step.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.paper.cells import PACED_BY, Cell, PacedBy
from benchmarks.paper.markdown import number, spread, table
from benchmarks.paper.section import Results, Scale, Section, trace_cell

TRACES = ("trace 1", "trace 2", "trace 4")
GPUS = ("h200", "a100-80g")
OVERHEADS_MS = (0.0, 1.5)
SIZES, QUICK_SIZES = (10_000, 100_000), (4_000,)
LARGE_SCALE = 100_000


def _cell(
    name: str, gpu: str, n: int, overhead_ms: float, paced_by: PacedBy, scale: Scale, seed: int
) -> Cell:
    return replace(
        trace_cell(name, "blend", scale, seed=seed),
        n=n,
        gpu=gpu,
        overhead_ms=overhead_ms,
        paced_by=paced_by,
    )


def _sizes(scale: Scale) -> tuple[int, ...]:
    return SIZES if scale.traces >= LARGE_SCALE else QUICK_SIZES


def _cells(scale: Scale) -> Sequence[Cell]:
    return [
        _cell(name, gpu, n, overhead_ms, paced_by, scale, seed)
        for n in _sizes(scale)
        for gpu in GPUS
        for name in TRACES
        for overhead_ms in OVERHEADS_MS
        for paced_by in PACED_BY
        for seed in scale.seeds
    ]


def _text(scale: Scale, results: Results, _plots: Path) -> str:
    text = (
        "## The ways to set the pace on stock vLLM\n\nNot in the paper. Share of the bound "
        "max(c, S·W) + m + S·overhead, mean [least-greatest] of the seeds; c: compute, m: cache "
        "reads, W: reading the weights, S: the longest answer or the steps that the cache needs "
        "for all reads. `step budget`: vLLM keeps the pace of each step; `gate`: the scanner "
        "paces by what it submits, prompts in pieces of a quarter of what rides free, `W "
        "unknown`: as on a machine that was not measured; `small steps`: memory-bound classes "
        "first, every step cut to what rides free.\n\n"
    )
    for n in _sizes(scale):
        text += _conditions(n, scale) + table(_HEADER, _rows(n, scale, results)) + "\n"
    return text


_HEADER = ["share of the bound", "step costs", *PACED_BY, "gate over file order",
           "bound over file order"]  # fmt: skip


def _conditions(n: int, scale: Scale) -> str:
    seeds = ", ".join(map(str, scale.seeds))
    return (
        f"*{n:,} requests a workload, stand-in lengths, seeds {seeds}; Llama-3-8B on one GPU, "
        "simulated: steps of at most 8,192 tokens and 1,024 sequences, no prefill attention. A "
        "step takes max(c, W) + m + overhead. Lengths known from 1 % of the requests, at least 30 "
        "of a class.*\n\n"
    )


def _rows(n: int, scale: Scale, results: Results) -> list[list[str]]:
    rows = []
    for gpu in GPUS:
        for name in TRACES:
            for overhead_ms in OVERHEADS_MS:
                row = [f"{gpu}, {name}", f"{overhead_ms} ms"]
                seconds: dict[PacedBy, list[float]] = {}
                most: list[float] = []
                for paced_by in PACED_BY:
                    found = [
                        results[cell]
                        for seed in scale.seeds
                        if (cell := _cell(name, gpu, n, overhead_ms, paced_by, scale, seed))
                        in results
                    ]
                    row.append(spread([one.bound_s / one.seconds for one in found]))
                    seconds[paced_by] = [one.seconds for one in found]
                    if paced_by == "file order":
                        most = [one.seconds / one.bound_s for one in found]
                ahead = [
                    slow / fast
                    for slow, fast in zip(seconds["file order"], seconds["gate"], strict=False)
                ]
                rows.append([*row, *(number(_mean(gains)) for gains in (ahead, most))])
    return rows


def _mean(gains: Sequence[float]) -> float | None:
    return sum(gains) / len(gains) if gains else None


SECTIONS = (Section("pacing", _cells, _text),)
