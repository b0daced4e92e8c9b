"""What the guard is worth: six ways of running a job simulated at plan time, the fastest kept."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.paper.cells import OVERLAPPED, Cell, System
from benchmarks.paper.markdown import number, table
from benchmarks.paper.section import Results, Scale, Section, conditions, trace_cell
from benchmarks.workloads import TABLE_2
from blend.cli.planning import DRAWS


def _cell(name: str, system: System, scale: Scale) -> Cell:
    return replace(trace_cell(name, system, scale), n=scale.grid)


def _cells(scale: Scale) -> Sequence[Cell]:
    return [_cell(n, s, scale) for n in TABLE_2 for s in (*OVERLAPPED, "auto")]


def _text(scale: Scale, results: Results, _plots: Path) -> str:
    rows = []
    for name in TABLE_2:
        auto = results.get(_cell(name, "auto", scale))
        others = [results.get(_cell(name, system, scale)) for system in OVERLAPPED]
        best = min((one.seconds for one in others if one), default=None)
        share = best / auto.seconds if auto and best else None
        rows.append(
            [
                name,
                *(number(one.seconds if one else None, 0) for one in others),
                number(auto.seconds if auto else None, 0),
                auto.chosen if auto else number(None),
                number(share, 3),
                number(auto.plan_s if auto else None, 1),
            ]
        )
    header = ["seconds", *OVERLAPPED, "auto", "chosen", "best / auto", "plan, s"]
    return (
        "## The guard\n\nNot in the paper. `auto` simulates six ways of running the job on lengths "
        f"drawn {DRAWS} times, as `blend plan` does, and keeps the fastest that is surely faster "
        "than the plain orders. The last column: seconds of one core.\n\n"
        + conditions(scale.grid, scale.seeds[:1])
        + table(header, rows)
    )


SECTIONS = (Section("guard", _cells, _text),)
