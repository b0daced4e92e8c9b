"""`blend export`: results and errors as OpenAI batch files, in input order, at any moment."""

from contextlib import suppress
from typing import Annotated

import typer

from blend.cli.console import err, inert
from blend.cli.exporting import Exported, errors_path, export, refuse_outputs
from blend.cli.options import JobArgument
from blend.cli.wording import counted
from blend.core.errors import BlendError
from blend.core.utf8 import as_utf8
from blend.store.job import Job

OutputOption = Annotated[
    str, typer.Option("--output", "-o", metavar="OUT", help="Result file, or - for stdout.")
]
ErrorsOption = Annotated[
    str | None,
    typer.Option(
        "--errors",
        metavar="ERR",
        help="File of failed and rejected requests; OUT with .errors before its suffix if absent.",
    ),
]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")]


def print_exported(exported: Exported, output: str, errors: str, *, pending: int) -> None:
    """Say what an export wrote, and what is not in it yet."""
    err.print(f"{counted(exported.results)} results: {inert(output)}")
    if exported.earlier:
        err.print(f"{counted(exported.earlier)} of them are answers from before a retry")
    missed = exported.failures + exported.rejections
    if missed:
        err.print(
            f"{counted(exported.failures)} failed and {counted(exported.rejections)} rejected: "
            f"{inert(errors)}"
        )
    if pending:
        err.print(f"{counted(pending)} requests have no result yet and are in neither file")


def export_command(
    job_path: JobArgument,
    output: OutputOption,
    errors: ErrorsOption = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Write the results so far as OpenAI batch files, in input order."""
    errors = errors or errors_path(output)
    with Job.open(job_path) as job:
        inputs = [source.path for source in job.sources()]
        refuse_outputs((output, errors), inputs, job_path=job_path, overwrite=overwrite)
        exported = export(job, output, errors)
        counts = job.counts()
        if output != "-" and not counts.unfinished:
            # A job that cannot be written, on a full or read-only disk, is exported all the same.
            with suppress(BlendError):
                job.set_meta(outputs=[as_utf8(output), as_utf8(errors)])
        neither = counts.total - exported.results - exported.failures
        print_exported(exported, output, errors, pending=neither)
