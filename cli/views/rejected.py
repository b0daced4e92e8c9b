"""The lines that were rejected: how many for which reason, and where each stands."""

from collections.abc import Sequence
from itertools import islice

from rich.table import Table

from blend.cli.console import inert, out, print_csv, table
from blend.cli.wording import counted, end_of, shortened
from blend.store.job import Job, RejectedGroup

DRAWN = 100
CSV_HEADERS = ("source", "line", "column", "reason", "message", "custom_id")


def document(job: Job) -> dict[str, object]:
    """Return every rejected line as JSON values, and their number by reason."""
    return {
        "reasons": {group.reason: group.lines for group in job.rejections_by_reason()},
        "rejected": [dict(zip(CSV_HEADERS, record, strict=True)) for record in _records(job)],
    }


def write_csv(job: Job) -> None:
    """Write a record for every rejected line."""
    print_csv(CSV_HEADERS, _records(job))


def _records(job: Job) -> list[tuple[object, ...]]:
    return [
        (source, one.line, one.column, one.reason, one.message, one.custom_id)
        for source, one in job.rejected()
    ]


def reasons_table(groups: Sequence[RejectedGroup]) -> Table:
    """Return a line for each reason of rejections."""
    return table(
        ("lines", "why they were rejected", "first at"),
        (
            (
                counted(group.lines),
                inert(group.reason),
                inert(end_of(f"{group.path}:{group.line}:{group.column}", max(out.width - 40, 40))),
            )
            for group in groups
        ),
        numbers={0},
    )


def draw(job: Job) -> None:
    """Print the reasons with their counts, and the first rejected lines."""
    groups = job.rejections_by_reason()
    if not groups:
        out.print("no line was rejected")
        return
    out.print(reasons_table(groups))
    out.print("")
    for source, one in islice(job.rejected(), DRAWN):
        where = inert(f"{source}:{one.line}:{one.column}")
        out.print(f"{where}: {inert(one.reason)}: {inert(shortened(one.message, 200))}")
    more = sum(group.lines for group in groups) - DRAWN
    if more > 0:
        out.print(f"\n… and {counted(more)} more: `--csv` and `--json` list all")
