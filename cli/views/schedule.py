"""The schedule from its compute-bound to its memory-bound end."""

import itertools
import string
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from blend.cli.console import inert, out, print_csv, table
from blend.cli.job_plan import plan_of, schedule_of
from blend.cli.job_run import foreseen
from blend.cli.views import strip
from blend.cli.wording import counted, percent, shortened, significant
from blend.core.schedule import LEFT, Schedule
from blend.store.job import Job, PlanRecord

SECTIONS = 12
Ints = npt.NDArray[np.int64]
LETTERS = string.ascii_lowercase

CSV_HEADERS = (
    "position",
    "custom_id",
    "row",
    "side",
    "density",
    "prompt_tokens",
    "uncached_tokens",
    "expected_tokens",
)


@dataclass(frozen=True, slots=True)
class Section:
    """A run of positions: its share of the rows, what it asks for, and a row as the example."""

    first_position: int
    rows: int
    side: str
    density: float
    uncached_tokens: int
    prompt_tokens: int
    expected_tokens: float
    custom_id: str


def sections(job: Job, schedule: Schedule, prompt_tokens: Ints) -> list[Section]:
    """Cut the schedule into at most `SECTIONS` runs of equal rows, never across its sides.

    ``prompt_tokens`` are those of the rows in their order.
    """
    return [
        _section(job, schedule, prompt_tokens, lo=lo, hi=hi)
        for side_lo, side_hi in _side_ranges(schedule)
        for lo, hi in _cuts(side_lo, side_hi, -(-len(schedule) // SECTIONS))
    ]


def _side_ranges(schedule: Schedule) -> list[tuple[int, int]]:
    changes = np.flatnonzero(np.diff(schedule.side)) + 1
    bounds = [0, *changes.tolist(), len(schedule)]
    # A schedule that changes sides often has no two ends to show: it is one range.
    return list(itertools.pairwise(bounds)) if len(bounds) <= 3 else [(0, bounds[-1])]


def _cuts(lo: int, hi: int, size: int) -> Iterator[tuple[int, int]]:
    for start in range(lo, hi, max(size, 1)):
        yield start, min(start + size, hi)


def _section(job: Job, schedule: Schedule, prompt_tokens: Ints, *, lo: int, hi: int) -> Section:
    return Section(
        first_position=lo,
        rows=hi - lo,
        side="left" if schedule.side[lo] == LEFT else "right",
        density=float(np.median(schedule.density[lo:hi])),
        uncached_tokens=int(schedule.uncached_tokens[lo:hi].sum()),
        prompt_tokens=int(prompt_tokens[lo:hi].sum()),
        expected_tokens=float(schedule.expected_tokens[lo:hi].sum()),
        custom_id=job.custom_ids([int(schedule.order[lo])])[0],
    )


def document(job: Job) -> dict[str, object]:
    """Return the schedule's sections and its whole order as JSON values."""
    schedule = schedule_of(job)
    prompt_tokens = job.sizes().prompt_tokens[schedule.order]
    return {
        "policy": schedule.policy,
        "rows": len(schedule),
        "root_density": schedule.root_density,
        "nodes": nodes(schedule),
        "left_rows": int((schedule.side == LEFT).sum()),
        "sections": [asdict(section) for section in sections(job, schedule, prompt_tokens)],
        "order": schedule.order,
        "density": schedule.density,
    }


def write_csv(job: Job) -> None:
    """Write a record for every position."""
    schedule = schedule_of(job)
    columns = (
        range(len(schedule)),
        job.custom_ids(schedule.order.tolist()),
        schedule.order.tolist(),
        np.where(schedule.side == LEFT, "left", "right").tolist(),
        schedule.density.tolist(),
        job.sizes().prompt_tokens[schedule.order].tolist(),
        schedule.uncached_tokens.tolist(),
        schedule.expected_tokens.tolist(),
    )
    print_csv(CSV_HEADERS, zip(*columns, strict=True))


def nodes(schedule: Schedule) -> int:
    """Return the runs of one density, which the scanner takes one after another."""
    return int(np.count_nonzero(np.diff(schedule.density)) + 1) if len(schedule) else 0


def draw(job: Job) -> None:
    """Print the strips of density, sharing and subtrees, and the sections."""
    plan, schedule = plan_of(job), schedule_of(job)
    if not len(schedule):
        out.print("the schedule is empty")
        return
    left = percent(float((schedule.side == LEFT).mean()))
    out.print(
        f"policy {schedule.policy}, {counted(len(schedule), 'rows')}, "
        f"{left} on the compute-bound side, density {significant(schedule.root_density)}"
    )
    out.print(_batches(plan, schedule) + "\n")
    prompt_tokens = job.sizes().prompt_tokens[schedule.order]
    _draw_strips(job, plan, schedule, prompt_tokens)
    out.print("")
    out.print(
        table(
            ("from", "rows", "side", "density", "prompt", "cached", "answer", "begins with"),
            (_cells(section) for section in sections(job, schedule, prompt_tokens)),
            numbers={0, 1, 3, 4, 5, 6},
        )
    )
    out.print("\nprompt and answer: tokens a request; cached: share of its prompt")


def _batches(plan: PlanRecord, schedule: Schedule) -> str:
    """Say in how many pieces the scanner takes the rows, and how many are in flight."""
    said = f"taken in {counted(nodes(schedule), 'nodes')}"
    timeline = foreseen(plan)
    if timeline is None or not len(timeline.running):
        return said
    running = float(np.median(timeline.running))
    return f"{said}, about {counted(running)} sequences running at a time"


def _draw_strips(job: Job, plan: PlanRecord, schedule: Schedule, prompt_tokens: Ints) -> None:
    """Print density, shared prompt, subtree and side along the schedule, left to right."""
    width = strip.strip_width()
    densities = strip.log_means(schedule.density, width)
    cached = 1.0 - schedule.uncached_tokens / np.maximum(prompt_tokens, 1)
    right = strip.means(schedule.side != LEFT, width)
    _line("density", strip.density_bars(densities, schedule.root_density))
    _line("cached", strip.bars(strip.means(cached, width), low=0.0, high=1.0))
    names, letters = _subtree_letters(job, plan, schedule, width)
    if letters:
        _line("prefix", letters)
    _line("side", "".join(">" if share >= 0.5 else "<" for share in right))
    _line("", f"compute-bound{'memory-bound':>{max(len(densities) - 13, 13)}}")
    for line in names:
        out.print(line)


def _line(label: str, text: str) -> None:
    out.print(f"{label:<{strip.LABEL_WIDTH}}{text}")


def _subtree_letters(
    job: Job, plan: PlanRecord, schedule: Schedule, width: int
) -> tuple[list[str], str]:
    """Return what the letters mean, and the subtree that most rows of each run belong to."""
    subtree, outline = job.subtrees(), plan.outline
    if subtree is None:
        return [], ""
    top = _top(outline)
    shown = sorted(set(top) - {0}, key=lambda node: -outline[node]["prompt_tokens"])
    lettered = dict(zip(shown, LETTERS, strict=False))
    along = np.array(top)[subtree[schedule.order]]
    runs = np.array_split(along, min(width, len(along)))
    most = [int(np.bincount(run).argmax()) for run in runs]
    drawn = [node for node in lettered if node in most]
    examples = job.custom_ids(outline[node]["example_row"] for node in drawn)
    names = [
        f"{'':<{strip.LABEL_WIDTH}}{lettered[node]}: {counted(outline[node]['rows'], 'rows')}, "
        f"a prefix of {counted(outline[node]['prefix_tokens'], 'tokens')}, "
        f"as {inert(shortened(custom_id, max(out.width - 60, 20)))}"
        for node, custom_id in zip(drawn, examples, strict=True)
    ]
    return names[:8], "".join(lettered.get(node, "·") for node in most)


def _top(outline: list[dict[str, Any]]) -> list[int]:
    """Return for every node of the outline the one of level 1 that it is in; 0 for the root."""
    top: list[int] = []
    for number, node in enumerate(outline):
        top.append(number if node["level"] <= 1 else top[node["parent"]])
    return top


def _cells(section: Section) -> tuple[str, ...]:
    return (
        counted(section.first_position),
        counted(section.rows),
        section.side,
        significant(section.density),
        counted(section.prompt_tokens / section.rows),
        percent(1 - section.uncached_tokens / max(section.prompt_tokens, 1)),
        counted(section.expected_tokens / section.rows),
        inert(shortened(section.custom_id, 60)),
    )
