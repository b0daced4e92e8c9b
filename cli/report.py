"""`blend report`: what the job is, what its plan foresaw and how it went, as one HTML file."""

from typing import Annotated

import typer

from blend.cli.console import err, inert
from blend.cli.export import OverwriteOption
from blend.cli.exporting import output_file, refuse_outputs, replaced
from blend.cli.options import JobArgument
from blend.store.job import Job


def report_command(
    job_path: JobArgument,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="The HTML file, or - for stdout; JOB with the suffix .html if absent.",
        ),
    ] = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Write what the job is, what its plan foresaw and how it went as one HTML file."""
    from blend.cli.page.content import content_of
    from blend.cli.page.html import html_of

    with Job.open(job_path) as job:
        path = output or str(output_file(str(job_path)).with_suffix(".html"))
        sources = [source.path for source in job.sources()]
        refuse_outputs([path], sources, job_path=job_path, overwrite=overwrite)
        page = html_of(content_of(job))
    with replaced(path) as stream:
        stream.write(page.encode())
    if path != "-":
        err.print(f"report: {inert(path)}")
