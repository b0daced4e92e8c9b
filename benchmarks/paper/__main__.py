"""Run the paper's evaluation on the simulator and write the report; run again, it goes on.

python -m benchmarks.paper [--quick] [--only fig-11 ...] [--jobs 2] [--results docs/results]
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from benchmarks.paper import grids, ledger, stand_ins, sweeps, throughput
from benchmarks.paper.cells import Cell, Outcome, available, measure
from benchmarks.paper.remarks import REMARKS
from benchmarks.paper.section import FULL, QUICK, Results, Scale, Section

SECTIONS: tuple[Section, ...] = (
    *stand_ins.SECTIONS,
    *throughput.SECTIONS,
    *grids.SECTIONS,
    *sweeps.SECTIONS,
)
CELLS = ledger.ROOT / "build" / "paper"
PUBLISHED = ledger.ROOT / "docs" / "results"


def main(arguments: Sequence[str]) -> None:
    """Measure what is missing, then write the report."""
    options = _parser().parse_args(arguments)
    scale = QUICK if options.quick else FULL
    sections = [s for s in SECTIONS if not options.only or s.name in options.only]
    results = run(sections, scale, folder=CELLS, jobs=options.jobs)
    target = options.results or (CELLS / "quick" if options.quick else PUBLISHED)
    target.mkdir(parents=True, exist_ok=True)
    report = target / "paper.md"
    report.write_text(write(sections, scale, results, plots=target / "paper"), encoding="utf-8")
    print(f"report: {report}")


def run(sections: Sequence[Section], scale: Scale, *, folder: Path, jobs: int) -> Results:
    """Return the outcomes of all cells that can be run, those on disk not measured again."""
    wanted = dict.fromkeys(cell for section in sections for cell in section.cells(scale))
    cells = [cell for cell in wanted if available(cell)]
    code = ledger.code_digest()
    results = ledger.load(folder, cells, code=code)
    missing = [cell for cell in cells if cell not in results]
    # The long ones first, so that no worker starts one when the others are done.
    missing.sort(key=lambda cell: -cell.n)
    for count, (cell, outcome) in enumerate(_measured(missing, jobs=jobs), 1):
        ledger.save(folder, cell, outcome, code=code)
        results[cell] = outcome
        print(f"{count}/{len(missing)} {_line(cell, outcome)}", file=sys.stderr, flush=True)
    return results


def write(sections: Sequence[Section], scale: Scale, results: Results, *, plots: Path) -> str:
    """Return the report; plots go to *plots*."""
    seeds = ", ".join(map(str, scale.seeds))
    head = (
        "# The paper's evaluation, simulated\n\n"
        "Written by `make paper`. Every figure is from the step simulator on an A100-80G, with "
        "stand-ins for the paper's traces, and not from a GPU: compare the relations, not the "
        f"tokens a second. Workloads of {scale.traces:,} requests, grids of {scale.grid:,}; seeds "
        f"{seeds}. `n/a`: this version cannot run it.\n\n"
    )
    return head + "\n".join(_part(section, scale, results, plots) for section in sections)


def _part(section: Section, scale: Scale, results: Results, plots: Path) -> str:
    text = section.text(scale, results, plots)
    remark = REMARKS.get(section.name)
    return f"{text}\n{remark}\n" if remark else text


def _measured(cells: Sequence[Cell], *, jobs: int) -> Iterator[tuple[Cell, Outcome]]:
    if jobs < 2:
        yield from ((cell, measure(cell)) for cell in cells)
        return
    with ProcessPoolExecutor(jobs) as pool:
        running = {pool.submit(measure, cell): cell for cell in cells}
        for done in as_completed(running):
            yield running[done], done.result()


def _line(cell: Cell, outcome: Outcome) -> str:
    return (
        f"{cell.system} {cell.compute} density {cell.density} sharing {cell.sharing} "
        f"{cell.n:,} requests {cell.model}: {outcome.tokens_s:,.0f} tokens/s "
        f"in {outcome.wall_s:.1f} s"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small workloads, few cells")
    parser.add_argument("--only", nargs="*", choices=[s.name for s in SECTIONS], default=[])
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--results", type=Path, help="folder of the report")
    return parser


if __name__ == "__main__":
    main(sys.argv[1:])
