"""Figs. 11, 13, 14 and 15: the speed-up over NanoFlow-DFS on grids of density and sharing."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.paper import published
from benchmarks.paper.cells import Cell, System
from benchmarks.paper.markdown import MISSING, spread, table
from benchmarks.paper.plots import Floats, can_plot, grid
from benchmarks.paper.section import Results, Scale, Section, conditions, speed_ups
from benchmarks.traces import TraceName
from benchmarks.workloads import GRID_DENSITIES, GRID_SHARINGS

_NAMES: dict[System, str] = {"paper": "paper's policy", "blend": "blend"}
COMPARED: tuple[System, ...] = ("nanoflow-dfs", "paper", "blend")


@dataclass(frozen=True, slots=True)
class Grid:
    """One figure: axes, and the paper's speed-ups, (rows, columns).

    ``warmed``: whether `blend` also runs with a warm-up in each cell.
    """

    figure: int
    compute: TraceName
    densities: tuple[float, ...]
    sharings: tuple[float, ...]
    theirs: Floats
    remark: str = ""
    warmed: bool = False


GRIDS = (
    Grid(11, "burstgpt", GRID_DENSITIES, GRID_SHARINGS, published.FIG_11,
         warmed=True),
    Grid(13, "azure", GRID_DENSITIES[4:], GRID_SHARINGS, published.FIG_13,
         "The labels of the rows are as we read them."),
    Grid(14, "sharegpt", tuple(round(0.80 + 0.60 * row / 9, 2) for row in range(10)),
         GRID_SHARINGS, published.FIG_14,
         "The paper's ten rows run from 0.80 to 1.40; we spread ours evenly."),
    Grid(15, "wildchat", published.TENTHS_9, (0.2, 0.25, 0.3, 0.35, 0.4), published.FIG_15),
)  # fmt: skip


def _cells(which: Grid, scale: Scale) -> list[Cell]:
    return [
        _cell(which, scale, row, column, system)
        for row, column in _places(which, scale)
        for system in COMPARED
    ] + (_warmed(which, scale) if which.warmed else [])


def _warmed(which: Grid, scale: Scale) -> list[Cell]:
    return [
        replace(_cell(which, scale, *place, "blend"), warm_up=True)
        for place in _places(which, scale)
    ]


def _places(which: Grid, scale: Scale) -> list[tuple[int, int]]:
    return [
        (row, column)
        for row in range(0, len(which.densities), scale.every_row)
        for column in range(0, len(which.sharings), scale.every_column)
    ]


def _cell(which: Grid, scale: Scale, row: int, column: int, system: System) -> Cell:
    return Cell(
        system=system,
        density=which.densities[row],
        sharing=which.sharings[column],
        n=scale.grid,
        seed=scale.seeds[0],
        compute=which.compute,
    )


def _ours(which: Grid, scale: Scale, results: Results, system: System) -> Floats:
    found = np.full(which.theirs.shape, np.nan)
    for row, column in _places(which, scale):
        cell = _cell(which, scale, row, column, system)
        for value in speed_ups(results, [cell], "nanoflow-dfs"):
            found[row, column] = value
    return found


def grid_speed_ups(which: Grid, scale: Scale, results: Results, system: System) -> list[float]:
    """Return the speed-ups of *system* in the cells that ran."""
    return _known(_ours(which, scale, results, system))


def _text(which: Grid, scale: Scale, results: Results, plots: Path) -> str:
    ours = {system: _ours(which, scale, results, system) for system in COMPARED[1:]}
    places = _places(which, scale)
    theirs = [float(which.theirs[place]) for place in places]
    text = (
        f"## Fig. {which.figure}: over NanoFlow-DFS, {which.compute} as the compute side\n\n"
        f"{len(places)} cells of {scale.grid:,} requests. {which.remark}\n\n"
    )
    summary = [["paper's figure", spread(theirs)]]
    summary += [[f"{_NAMES[system]} here", spread(_known(cells))] for system, cells in ours.items()]
    if which.warmed:
        gains = speed_ups(results, _warmed(which, scale), "nanoflow-dfs")
        summary.append(["blend here, warm-up as in `blend run`", spread(gains)])
    bases = [_cell(which, scale, *place, COMPARED[0]) for place in places]
    ran = [results[cell] for cell in bases if cell in results]
    summary += [
        ["practical optimum here", spread([base.seconds / base.optimum_s for base in ran])],
        ["bound here, weight reads counted", spread([base.seconds / base.bound_s for base in ran])],
    ]
    above = conditions(scale.grid, scale.seeds[:1])
    text += above + table(["mean [least-greatest]", "speed-up"], summary) + "\n"
    for system in _NAMES:
        cells = [_cell(which, scale, *place, system) for place in places]
        alone = [results[c].sample_s / results[c].seconds for c in cells if c in results]
        text += f"Run alone to its end, the sample of `{system}` takes {spread(alone)} of its run. "
    text += "That is no part of the figures.\n\n"
    text += "Each cell: paper's figure / paper's policy here / blend.\n\n" + above
    text += table(
        ["density \\ sharing", *map(str, which.sharings)],
        [
            [
                str(density),
                *(_entry(which, ours, row, column) for column in range(len(GRID_SHARINGS))),
            ]
            for row, density in enumerate(which.densities)
        ],
    )
    if can_plot() and np.isfinite(ours["blend"]).any():
        path = plots / f"fig-{which.figure}.svg"
        grid(path, ours["blend"], which.theirs, rows=which.densities, columns=which.sharings)
        text += f"\n![Speed-ups, ours and the paper's](paper/{path.name})\n"
    return text


def _known(cells: Floats) -> list[float]:
    found: list[float] = cells[np.isfinite(cells)].tolist()
    return found


def _entry(which: Grid, ours: dict[System, Floats], row: int, column: int) -> str:
    here = (float(cells[row, column]) for cells in ours.values())
    shown = [f"{x:.2f}" if np.isfinite(x) else MISSING for x in here]
    return " / ".join([f"{which.theirs[row, column]:.2f}", *shown])


def _section(which: Grid) -> Section:
    return Section(f"fig-{which.figure}", partial(_cells, which), partial(_text, which))


SECTIONS: Sequence[Section] = tuple(_section(which) for which in GRIDS)
