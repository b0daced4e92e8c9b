"""Run the paper's evaluation on the simulator and write the report; run again, it goes on.

python -m benchmarks.paper [--quick] [--only fig-11 ...] [--seeds 21] [--jobs 2]
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

from benchmarks.paper import (
    grids,
    guarded,
    ledger,
    pacing,
    replicas,
    shares,
    stand_ins,
    summary,
    sweeps,
    throughput,
)
from benchmarks.paper.cells import Cell, Outcome, available, measure
from benchmarks.paper.remarks import REMARKS, SYSTEMS_IN_WORDS
from benchmarks.paper.section import FULL, QUICK, Results, Scale, Section

SECTIONS: tuple[Section, ...] = (
    *summary.SECTIONS,
    *stand_ins.SECTIONS,
    *throughput.SECTIONS,
    *shares.SECTIONS,
    *replicas.SECTIONS,
    *guarded.SECTIONS,
    *pacing.SECTIONS,
    *grids.SECTIONS,
    *sweeps.SECTIONS,
)
CELLS = ledger.ROOT / "build" / "paper"
PUBLISHED = ledger.ROOT / "docs" / "results"


def main(arguments: Sequence[str]) -> None:
    """Measure what is missing, then write the report."""
    options = _parser().parse_args(arguments)
    scale = QUICK if options.quick else FULL
    if options.seeds:
        scale = replace(scale, seeds=tuple(options.seeds))
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
    # The long ones first, so that no worker starts one when the others are done; those of one
    # workload together, so that it is made once.
    missing.sort(key=lambda cell: (-cell.n, cell.compute, cell.density, cell.sharing, cell.seed))
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
        f"tokens a second. Workloads of {scale.traces:,} requests, grids of {scale.grid:,}; seed "
        f"{seeds}. `n/a`: not run.\n\n"
        "All systems run on the same simulated device; they differ in their order and in whether "
        "compute and memory overlap:\n\n"
        + "".join(f"- `{name}`: {what}\n" for name, what in SYSTEMS_IN_WORDS.items())
        + "\nThe last four are told lengths of a sample that the product's own rule chooses, and "
        "not which trace a request is of; but every trace has its own `max_tokens`, which tells "
        "much. The sample costs no time here and its requests run with the others, but where a "
        "warm-up is named; what it would take alone stands under Sampling. Traces follow each "
        "other in the order of the tree: the compute side, MMLU, OpenVid.\n\n"
    )
    ran = [s for s in sections if not s.cells(scale) or any(c in results for c in s.cells(scale))]
    left_out = [section.name for section in SECTIONS if section not in ran]
    if left_out:
        head += f"Not run, and so not here: {', '.join(left_out)}.\n\n"
    return head + "\n".join(_part(section, scale, results, plots) for section in ran)


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
    parser.add_argument("--seeds", nargs="*", type=int, help="instead of those of the scale")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--results", type=Path, help="folder of the report")
    return parser


if __name__ == "__main__":
    main(sys.argv[1:])
