"""`blend show`: the job, its schedule, its prefix tree, or one request, for a person to judge."""

from importlib import import_module
from types import ModuleType
from typing import Annotated, Any, Literal

import typer

from blend.cli.completion import custom_ids
from blend.cli.console import paged, print_json
from blend.cli.options import JobArgument, JsonOption
from blend.core.command_line import command_line
from blend.core.errors import BlendError
from blend.store.job import Job

What = Literal["job", "schedule", "tree", "request", "timeline", "rejected", "failures"]


def show_command(
    job_path: JobArgument,
    what: Annotated[What, typer.Argument(help="What to look at.")] = "job",
    custom_id: Annotated[
        str | None,
        typer.Argument(
            metavar="[CUSTOM_ID]", help="The request to look at.", autocompletion=custom_ids
        ),
    ] = None,
    node: Annotated[
        int | None, typer.Option(min=0, help="Of the tree, show this node and what is below it.")
    ] = None,
    depth: Annotated[
        int | None, typer.Option(min=0, help="Of the tree, show so many levels below it.")
    ] = None,
    as_json: JsonOption = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print a table as CSV to stdout instead.")
    ] = False,
) -> None:
    """Look at the job, its schedule, its prefix tree, or one request by its custom_id."""
    asked = _asked(what, job_path=str(job_path), custom_id=custom_id, node=node, depth=depth)
    view = _view(what)
    if as_csv and (as_json or not hasattr(view, "write_csv")):
        raise BlendError(
            "`--csv` and `--json` exclude each other" if as_json else f"no table: {what}",
            hint="`--csv` is for schedule, tree, timeline, rejected and failures",
        )
    with Job.open(job_path) as job:
        if as_json:
            print_json(view.document(job, **asked))
        elif as_csv:
            view.write_csv(job, **asked)
        else:
            with paged():
                view.draw(job, **asked)


def _view(what: What) -> ModuleType:
    """Import and return the one view that is asked for."""
    return import_module(f"blend.cli.views.{what}")


def _asked(
    what: What, *, job_path: str, custom_id: str | None, node: int | None, depth: int | None
) -> dict[str, Any]:
    """Return what a view is told; BlendError for what it would not understand."""
    if what == "request":
        if custom_id is None:
            named = command_line("blend", "show", job_path, "request", "CUSTOM_ID")
            raise BlendError("no request is named", hint=f"`{named}`")
        return {"custom_id": custom_id}
    if custom_id is not None:
        named = command_line("blend", "show", job_path, "request", custom_id)
        raise BlendError(f"{what} takes no name: {custom_id}", hint=f"`{named}`")
    if what == "tree":
        return {"node": node or 0, "depth": depth}
    if node is not None or depth is not None:
        raise BlendError("`--node` and `--depth` are for the tree", hint="`blend show JOB tree`")
    return {}
