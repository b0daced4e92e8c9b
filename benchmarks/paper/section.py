"""What a part of the report is: the cells it needs, and the text it makes of their outcomes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.paper.cells import MAX_SEQUENCES, STEP_TOKENS, Cell, Outcome, System
from benchmarks.workloads import TABLE_2
from blend.core.planning.engine_model import INTERFERENCE

Results = Mapping[Cell, Outcome]


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is run: requests a workload, seeds, and every how many rows and columns of grids."""

    traces: int
    grid: int
    seeds: tuple[int, ...]
    every_row: int = 1
    every_column: int = 1


FULL = Scale(traces=400_000, grid=40_000, seeds=(21, 22, 23))
QUICK = Scale(traces=20_000, grid=8_000, seeds=(21,), every_row=6, every_column=4)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the report; ``text`` is given the folder that its plots go to."""

    name: str
    cells: Callable[[Scale], Sequence[Cell]]
    text: Callable[[Scale, Results, Path], str]


def conditions(
    n: int,
    seeds: Sequence[int],
    *,
    device: str = "Llama-3-8B, one A100-80G",
    sample: str = "1 %",
    step_tokens: str = f"{STEP_TOKENS:,}",
) -> str:
    """Return the line that stands above every table of simulated runs."""
    plural = "s" if len(seeds) > 1 else ""
    return (
        f"*{n:,} requests a workload, stand-in lengths, seed{plural} {', '.join(map(str, seeds))}; "
        f"{device}, simulated: steps of at most {step_tokens} tokens and {MAX_SEQUENCES:,} "
        "sequences, no overhead, no prefill attention. A step takes max(c, W) + m on vLLM and "
        f"max + {INTERFERENCE}·min of max(c, W) and m where operators overlap (c: compute, m: "
        f"cache reads, W: reading the weights). Lengths known from {sample} of the requests.*\n\n"
    )


def trace_cell(name: str, system: System, scale: Scale, *, seed: int | None = None) -> Cell:
    """Return the cell of a trace of Table 2, with the first seed unless another is given."""
    density, sharing = TABLE_2[name]
    return Cell(
        system=system,
        density=density,
        sharing=sharing,
        n=scale.traces,
        seed=scale.seeds[0] if seed is None else seed,
    )


def trace_cells(name: str, system: System, scale: Scale) -> list[Cell]:
    """Return the cells of a trace of Table 2 for every seed."""
    return [trace_cell(name, system, scale, seed=seed) for seed in scale.seeds]


def speed_ups(results: Results, cells: Sequence[Cell], over: System) -> list[float]:
    """Return how many times as fast each of *cells* is as the system *over*, where both ran."""
    pairs = [(cell, replace(cell, system=over, warm_up=False)) for cell in cells]
    return [
        results[base].seconds / results[cell].seconds
        for cell, base in pairs
        if cell in results and base in results
    ]
