"""The timeline of a job: what its plan foresees, and how its executions went."""

from dataclasses import asdict

import numpy as np

from blend.cli.console import inert, out, print_csv
from blend.cli.job_plan import plan_of
from blend.cli.job_run import foreseen, measured
from blend.cli.views import strip
from blend.cli.wording import abbreviated, counted, duration, percent, significant, time_unit
from blend.core.command_line import command_line
from blend.core.errors import BlendError
from blend.core.planning.timeline import TimelineBuckets, resampled
from blend.store.job import Job

LINES = 16
ENOUGH_S = 60
"""Time for a plan in which it foresees the run of most jobs."""

UNTIL_WIDTH = 6
_COLUMNS = "{:>8} {:>7} {:>5} {:>7} {:>5}"
_HEADERS = _COLUMNS.format("compute", "memory", "KV", "running", "done")
CSV_HEADERS = (
    "timeline",
    "seconds",
    "compute_s",
    "memory_s",
    "kv_tokens",
    "running",
    "answered",
)


def document(job: Job) -> dict[str, object]:
    """Return both timelines as JSON values, a list for each figure; null for one there is not."""
    plan = plan_of(job)
    predicted, actual = foreseen(plan), measured(job, plan)
    return {
        "hardware": plan.settings["hardware"]["name"],
        "predicted": asdict(predicted) if predicted else None,
        "actual": asdict(actual) if actual else None,
    }


def write_csv(job: Job) -> None:
    """Write a record for every bucket of both timelines."""
    print_csv(
        CSV_HEADERS,
        (
            (name, *bucket)
            for name, timeline in _timelines(job)
            for bucket in zip(
                *(getattr(timeline, column).tolist() for column in CSV_HEADERS[1:]), strict=True
            )
        ),
    )


def _timelines(job: Job) -> list[tuple[str, TimelineBuckets]]:
    plan = plan_of(job)
    both = (("predicted", foreseen(plan)), ("actual", measured(job, plan)))
    return [(name, timeline) for name, timeline in both if timeline is not None]


def draw(job: Job) -> None:
    """Print strips of compute and memory time, and both timelines side by side.

    BlendError where there is neither.
    """
    plan, timelines = plan_of(job), _timelines(job)
    if not timelines:
        raise BlendError(
            "the plan has no timeline and nothing was executed",
            hint=f"`{command_line('blend', 'plan', job.path)}`",
        )
    total_s = max(float(timeline.seconds[-1]) for _, timeline in timelines)
    if foreseen(plan) is None:
        command = command_line("blend", "plan", job.path, "--plan-time", str(ENOUGH_S))
        out.print(f"nothing predicted: the plan had no time for that, as `{inert(command)}` has\n")
    for name, timeline in timelines:
        _draw_strips(name, timeline, total_s)
    _draw_lines(timelines, total_s)
    hardware = plan.settings["hardware"]["name"]
    out.print(
        f"\ncompute, memory: time that {hardware} needs for computing tokens and for\n"
        "reading the cache, as a share of the time that passed\n"
        "KV: tokens in the cache; done: rows answered"
    )


def _draw_strips(name: str, timeline: TimelineBuckets, total_s: float) -> None:
    out.print(
        f"[bold]{name}[/]: {counted(timeline.answered[-1], 'rows')} in "
        f"{duration(timeline.seconds[-1])}, compute busy "
        f"{percent(timeline.compute_s.sum() / timeline.seconds[-1])}, "
        f"memory {percent(timeline.memory_s.sum() / timeline.seconds[-1])} of the time"
    )
    ends = np.linspace(0.0, total_s, strip.strip_width() + 1)[1:]
    drawn = resampled(timeline, ends[ends <= timeline.seconds[-1] * (1 + 1e-9)])
    bucket_s = ends[0]
    for label, share in (("compute", drawn.compute_s), ("memory", drawn.memory_s)):
        blocks = strip.bars(share / bucket_s, low=0.0, high=1.0)
        out.print(f"{label:<{strip.LABEL_WIDTH}}{blocks}")
    out.print(f"{'KV':<{strip.LABEL_WIDTH}}{strip.bars(drawn.kv_tokens, low=0.0)}\n")


def _draw_lines(timelines: list[tuple[str, TimelineBuckets]], total_s: float) -> None:
    """Print the timelines beside each other, a line for each part of the longer one."""
    unit, unit_s = time_unit(total_s)
    ends = np.linspace(0.0, total_s, LINES + 1)[1:]
    parts = [(timeline, resampled(timeline, ends)) for _, timeline in timelines]
    names = " ".join(f"{name:^{len(_HEADERS)}}" for name, _ in timelines)
    out.print(f"[bold]{'':{UNTIL_WIDTH}} {names}[/]")
    out.print(f"[bold]{unit:>{UNTIL_WIDTH}} {' '.join([_HEADERS] * len(timelines))}[/]")
    for at, end in enumerate(ends.tolist()):
        cells = " ".join(_cells(*part, at, total_s / LINES) for part in parts)
        out.print(f"{significant(end / unit_s):>{UNTIL_WIDTH}} {cells}")


def _cells(whole: TimelineBuckets, timeline: TimelineBuckets, at: int, bucket_s: float) -> str:
    if at and timeline.seconds[at - 1] >= whole.seconds[-1] * (1 - 1e-9):
        return _COLUMNS.format(*"-----")
    return _COLUMNS.format(
        f"{timeline.compute_s[at] / bucket_s:.0%}",
        f"{timeline.memory_s[at] / bucket_s:.0%}",
        abbreviated(float(timeline.kv_tokens[at])),
        counted(float(timeline.running[at])),
        abbreviated(float(timeline.answered[at])),
    )
