"""The rows that failed: by cause, and each with its place in the input."""

from collections.abc import Sequence
from itertools import islice

from rich.table import Table

from blend.cli.console import inert, out, print_csv, table
from blend.cli.wording import counted, shortened
from blend.store.job import Failure, FailureGroup, Job

DRAWN = 100


def document(job: Job) -> dict[str, object]:
    """Return the failed rows as JSON values, and their causes."""
    return {
        "causes": [group._asdict() for group in job.failures()],
        "failed": [one._asdict() for one in job.failed()],
    }


def write_csv(job: Job) -> None:
    """Write a record for every failed row."""
    print_csv(Failure._fields, job.failed())


def causes_table(causes: Sequence[FailureGroup]) -> Table:
    """Return a line for each cause of failures."""
    return table(
        ("rows", "status", "for example", "why they failed"),
        (
            (
                counted(one.rows),
                str(one.status_code),
                inert(shortened(one.custom_id, 24)),
                inert(shortened(one.message, 200)),
            )
            for one in causes
        ),
        numbers={0, 1},
    )


def draw(job: Job) -> None:
    """Print the causes with their counts, and the first failed rows."""
    causes = job.failures()
    if not causes:
        out.print("no request has failed")
        return
    out.print(causes_table(causes))
    out.print("")
    for one in islice(job.failed(), DRAWN):
        where = inert(f"{one.path}:{one.line}")
        out.print(
            f"{inert(shortened(one.custom_id, 60))} ({where}): status {one.status_code}, "
            f"{counted(one.attempts, 'attempts')}: {inert(shortened(one.message, 200))}"
        )
    more = sum(one.rows for one in causes) - DRAWN
    if more > 0:
        out.print(f"\n… and {counted(more)} more: `--csv` and `--json` list all")
