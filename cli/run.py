"""`blend run`: ingest, plan, execute and export with one engine start; run again, it resumes."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from blend.cli.completion import jobs
from blend.cli.console import err, inert
from blend.cli.display import ProgressStyle, display_options, shown
from blend.cli.engine import asked_model, refuse_unusable
from blend.cli.engine_options import EngineOptions
from blend.cli.execute import exit_code_of
from blend.cli.export import ErrorsOption, OutputOption, OverwriteOption, print_exported
from blend.cli.exporting import errors_path, export, output_file, refuse_outputs
from blend.cli.ingest_counts import print_ingested
from blend.cli.ingesting import IngestOptions, ingest
from blend.cli.inputs import expand_inputs
from blend.cli.interrupt import drain_on_interrupt
from blend.cli.limits import RunLimits
from blend.cli.options import engine_options, takes
from blend.cli.plan import plan_choices
from blend.cli.reading import reading_progress
from blend.cli.run_limits import run_limits
from blend.cli.sampled_plan import PlanChoices
from blend.cli.whole_run import run_job
from blend.core.command_line import command_line
from blend.core.errors import RESUMABLE, SOME_FAILED, BlendError
from blend.core.utf8 import as_utf8
from blend.store.job import Job

InputOption = Annotated[
    list[str],
    typer.Option("--input", "-i", metavar="IN", help="Request file, glob, or -; may be repeated."),
]
ModelOption = Annotated[
    str, typer.Option("--model", "-m", metavar="M", help="Model folder or hub name.")
]
JobOption = Annotated[
    Path | None,
    typer.Option(
        "--job",
        "-j",
        autocompletion=jobs,
        metavar="JOB",
        help="The job file; OUT with the suffix .blend if absent.",
    ),
]


def job_path_for(job: Path | None, output: str) -> Path:
    """Return where the job lies: where the user says, or beside the output.

    BlendError where neither is a place.
    """
    if job is not None:
        return job
    if output == "-":
        raise BlendError("results on stdout leave no place for the job", hint="add `--job JOB`")
    return output_file(output).with_suffix(".blend")


def check_outputs(
    job_path: Path, outputs: Sequence[str], inputs: Sequence[str], *, overwrite: bool
) -> None:
    """Raise BlendError for outputs that may not be written; those of an earlier run may."""
    ours = False
    if job_path.exists():
        with Job.open(job_path) as job:
            ours = job.meta("outputs") == list(map(as_utf8, outputs))
    refuse_outputs(outputs, inputs, job_path=job_path, overwrite=overwrite or ours)


def _print_next(path: Path, *, missed: bool) -> None:
    if missed:
        err.print(f"why: `{inert(command_line('blend', 'status', path))}`")
    err.print(f"next: `{inert(command_line('blend', 'report', path))}`")


@takes(choices=plan_choices, limits=run_limits, options=engine_options, progress=display_options)
def run_command(
    *,
    inputs: InputOption,
    output: OutputOption,
    model: ModelOption,
    choices: PlanChoices,
    limits: RunLimits,
    options: EngineOptions,
    progress: ProgressStyle,
    job_path: JobOption = None,
    errors: ErrorsOption = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Ingest, plan, execute and export in one; the same command again resumes."""
    path = job_path_for(job_path, output)
    outputs = (output, errors or errors_path(output))
    check_outputs(path, outputs, expand_inputs(inputs), overwrite=overwrite)
    if not path.exists():
        # Before much is read in vain; what is done needs no engine.
        refuse_unusable(options)
    reading = partial(reading_progress, style=progress)
    counts = ingest(path, inputs, IngestOptions(asked_model(options, model), reading=reading))
    print_ingested(counts, err)
    with Job.open(path) as job, job.lock("run"):
        job.set_meta(outputs=list(map(as_utf8, outputs)))
        run_job(
            job,
            options,
            choices,
            limits,
            watch=shown(progress),
            interrupt=drain_on_interrupt(),
        )
        code = exit_code_of(job)
        if code == RESUMABLE:
            raise typer.Exit(code)
        exported = export(job, *outputs)
        print_exported(exported, *outputs, pending=0)
        _print_next(path, missed=bool(exported.failures + exported.rejections))
        rejected = counts.rejected or counts.rejected_before
        raise typer.Exit(code or (SOME_FAILED if rejected else 0))
