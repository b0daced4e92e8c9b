"""`blend run`: ingest, plan, execute and export with one engine start; run again, it resumes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from blend.cli.api import PlanOptions, digests_of
from blend.cli.console import err
from blend.cli.engine import asked_model, opened_engine
from blend.cli.execute import died, exit_code_of, run_schedule, schedule_to_run
from blend.cli.export import (
    ErrorsOption,
    OutputOption,
    OverwriteOption,
    errors_path,
    export,
    print_exported,
    refuse_outputs,
)
from blend.cli.ingest import IngestOptions, ingest, print_ingested
from blend.cli.inputs import expand_inputs
from blend.cli.interrupt import drain_on_interrupt
from blend.cli.options import EngineOptions, SeedOption, takes_engine
from blend.cli.plan import (
    HardwareOption,
    NoSampleOption,
    PolicyOption,
    SampleRateOption,
    SampleSecondsOption,
    make_plan,
    plan_options,
)
from blend.core.engines import EngineDiedError
from blend.core.errors import RESUMABLE, SOME_FAILED, BlendError
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
    typer.Option(metavar="JOB", help="The job file; OUT with the suffix .blend if absent."),
]


def job_path_for(job: Path | None, output: str) -> Path:
    """Return where the job lies: where the user says, or beside the output."""
    if job is not None:
        return job
    if output == "-":
        raise BlendError("results on stdout leave no place for the job", hint="add `--job JOB`")
    return Path(output).with_suffix(".blend")


def check_outputs(
    job_path: Path, outputs: Sequence[str], inputs: Sequence[str], *, overwrite: bool
) -> None:
    """Raise BlendError for outputs that may not be written; those of an earlier run may."""
    ours = False
    if job_path.exists():
        with Job.open(job_path) as job:
            ours = job.meta("outputs") == list(outputs)
    refuse_outputs(outputs, inputs, overwrite=overwrite or ours)


def _plan_and_execute(job: Job, options: EngineOptions, settings: PlanOptions, *, seed: int) -> int:
    """Do what is left to do with one engine, and return the exit code for how far that came."""
    if not job.pending().any():
        return exit_code_of(job)
    with drain_on_interrupt() as interrupt, opened_engine(job, options, seed=seed) as engine:
        try:
            if not planned(job):
                sampling = engine if settings.sample_rate else None
                make_plan(job, sampling, settings, options=options, interrupt=interrupt)
            if not interrupt.asked:
                schedule = schedule_to_run(job)
                run_schedule(job, engine, schedule, options=options, interrupt=interrupt)
        except EngineDiedError as error:
            raise died(error, job) from error
    return exit_code_of(job)


def planned(job: Job) -> bool:
    """Return whether the job's plan is of the rows and the model it has now."""
    plan = job.plan()
    return plan is not None and plan.digests == digests_of(job)


@takes_engine
def run_command(
    *,
    inputs: InputOption,
    output: OutputOption,
    model: ModelOption,
    options: EngineOptions,
    job_path: JobOption = None,
    errors: ErrorsOption = None,
    overwrite: OverwriteOption = False,
    policy: PolicyOption = "paper",
    no_sample: NoSampleOption = False,
    sample_rate: SampleRateOption = 0.01,
    sample_seconds: SampleSecondsOption = 30.0,
    hardware: HardwareOption = None,
    seed: SeedOption = 0,
) -> None:
    """Ingest, plan, execute and export in one; the same command again resumes."""
    path = job_path_for(job_path, output)
    outputs = (output, errors or errors_path(output))
    check_outputs(path, outputs, expand_inputs(inputs), overwrite=overwrite)
    counts = ingest(path, inputs, IngestOptions(asked_model(options, model)))
    print_ingested(counts, err)
    with Job.open(path) as job, job.lock("run"):
        job.set_meta(outputs=list(outputs))
        settings = plan_options(
            job,
            options,
            policy=policy,
            hardware=hardware,
            sample_rate=0.0 if no_sample else sample_rate,
            sample_seconds=sample_seconds,
            seed=seed,
        )
        code = _plan_and_execute(job, options, settings, seed=seed)
        if code == RESUMABLE:
            raise typer.Exit(code)
        print_exported(export(job, *outputs), *outputs, pending=0)
        rejected = counts.rejected or counts.rejected_before
        raise typer.Exit(code or (SOME_FAILED if rejected else 0))
