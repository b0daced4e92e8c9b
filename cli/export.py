"""`blend export`: results and errors as OpenAI batch files, in input order, at any moment."""

from typing import Annotated

import typer

from blend.cli.api import Batch
from blend.cli.console import err, inert
from blend.cli.exporting import Exported, errors_path
from blend.cli.options import JobArgument
from blend.cli.wording import counted
from blend.core.answer_files import FileFormat

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
FormatOption = Annotated[
    FileFormat | None,
    typer.Option(
        "--format", help="Form of both files; by the suffix of each, or jsonl, if absent."
    ),
]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")]


def print_exported(exported: Exported, output: str, errors: str, *, pending: int) -> None:
    """Say what an export wrote, and what is not in it yet."""
    err.print(f"{counted(exported.results, 'results')}: {inert(output)}")
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
    file_format: FormatOption = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Write the results so far, in input order: as OpenAI batch files, or as tables."""
    batch = Batch(job_path)
    exported = batch.export(output, errors, file_format=file_format, overwrite=overwrite)
    neither = batch.counts().total - exported.results - exported.failures
    errors = errors or errors_path(output, file_format)
    print_exported(exported, output, errors, pending=neither)
