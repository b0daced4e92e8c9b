"""The schedule from its compute-bound to its memory-bound end."""

import itertools
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from blend.cli.console import counted, inert, out, percent, shortened, significant, table
from blend.cli.job_plan import schedule_of
from blend.core.schedule import LEFT, Schedule
from blend.store.job import Job

STRIP_WIDTH = 64
_LEVELS = "▁▂▃▄▅▆▇█"
SECTIONS = 12


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


def sections(job: Job, schedule: Schedule) -> list[Section]:
    """Cut the schedule into at most `SECTIONS` runs of equal rows, never across its sides."""
    prompt_tokens = job.sizes().prompt_tokens[schedule.order]
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


def _section(
    job: Job, schedule: Schedule, prompt_tokens: npt.NDArray[np.int64], *, lo: int, hi: int
) -> Section:
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


def strip(schedule: Schedule, width: int = STRIP_WIDTH) -> str:
    """Return the density along the schedule, one character a bin, high for compute-bound."""
    bins = np.array_split(np.log(np.clip(schedule.density, 1e-6, 1e6)), min(width, len(schedule)))
    means = np.array([part.mean() for part in bins])
    low, high = float(means.min()), float(means.max())
    scaled = (means - low) / (high - low) if high > low else np.zeros_like(means)
    return "".join(_LEVELS[round(level * (len(_LEVELS) - 1))] for level in scaled)


def document(job: Job) -> dict[str, object]:
    """Return the schedule's sections and its whole order as JSON values."""
    schedule = schedule_of(job)
    return {
        "policy": schedule.policy,
        "rows": len(schedule),
        "root_density": schedule.root_density,
        "sections": [asdict(section) for section in sections(job, schedule)],
        "order": schedule.order,
        "density": schedule.density,
    }


def draw(job: Job) -> None:
    """Print the density strip and the sections."""
    schedule = schedule_of(job)
    if not len(schedule):
        out.print("the schedule is empty")
        return
    left = percent(float((schedule.side == LEFT).mean()))
    out.print(
        f"policy {schedule.policy}, {counted(len(schedule), 'rows')}, "
        f"{left} on the compute-bound side, density {significant(schedule.root_density)}"
    )
    out.print("")
    bars = strip(schedule)
    out.print(bars)
    out.print(f"{'compute-bound':<{len(bars) - 12}}memory-bound" if len(bars) > 26 else "")
    out.print("")
    out.print(
        table(
            ("from", "rows", "side", "density", "prompt", "cached", "answer", "begins with"),
            (_cells(section) for section in sections(job, schedule)),
            numbers={0, 1, 3, 4, 5, 6},
        )
    )
    out.print("\nprompt and answer: tokens a request; cached: share of its prompt")


def _cells(section: Section) -> tuple[str, ...]:
    return (
        counted(section.first_position),
        counted(section.rows),
        section.side,
        significant(section.density),
        counted(section.prompt_tokens / section.rows),
        percent(1 - section.uncached_tokens / max(section.prompt_tokens, 1)),
        counted(section.expected_tokens / section.rows),
        inert(shortened(section.custom_id, 20)),
    )
