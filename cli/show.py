"""`blend show`: the job, its schedule, its prefix tree, or one request, for a person to judge."""

from collections.abc import Callable
from typing import Annotated, Literal

import typer

from blend.cli.console import print_json
from blend.cli.options import JobArgument, JsonOption
from blend.core.command_line import command_line
from blend.core.errors import BlendError
from blend.store.job import Job

What = Literal["job", "schedule", "tree", "request"]


def show_command(
    job_path: JobArgument,
    what: Annotated[What, typer.Argument(help="What to look at.")] = "job",
    custom_id: Annotated[
        str | None, typer.Argument(metavar="[CUSTOM_ID]", help="The request to look at.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Look at the job, its schedule, its prefix tree, or one request by its custom_id."""
    if what == "request" and custom_id is None:
        named = command_line("blend", "show", job_path, "request", "CUSTOM_ID")
        raise BlendError("no request is named", hint=f"`{named}`")
    with Job.open(job_path) as job:
        document, draw = _view(job, what, custom_id or "")
        if as_json:
            print_json(document())
        else:
            draw()


def _view(job: Job, what: What, custom_id: str) -> tuple[Callable[[], object], Callable[[], None]]:
    """Return how to document and how to draw what is asked for."""
    from blend.cli.views import job as job_view
    from blend.cli.views import request as request_view
    from blend.cli.views import schedule as schedule_view
    from blend.cli.views import tree as tree_view

    if what == "job":
        return lambda: job_view.document(job), lambda: job_view.draw(job)
    if what == "schedule":
        return lambda: schedule_view.document(job), lambda: schedule_view.draw(job)
    if what == "tree":
        return lambda: tree_view.document(job), lambda: tree_view.draw(job)
    return (
        lambda: request_view.document(job, custom_id),
        lambda: request_view.draw(job, custom_id),
    )
