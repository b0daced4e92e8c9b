"""`blend execute`: run what the plan has scheduled and has no result yet."""

from typing import Annotated

import numpy as np
import typer

from blend.cli.api import RunContext, digests_of, pending_schedule, run_rows
from blend.cli.console import counted, duration, err, inert, percent
from blend.cli.engine import await_engine, log_path, opened_engine
from blend.cli.interrupt import Interrupt, drain_on_interrupt
from blend.cli.job_model import model_of
from blend.cli.options import EngineOptions, JobArgument, SeedOption, takes_engine
from blend.cli.progress import RunProgress
from blend.core.engines import Engine, EngineDiedError, StepReport
from blend.core.errors import MISMATCH, RESUMABLE, SOME_FAILED, BlendError
from blend.core.schedule import Schedule
from blend.store.job import Job

ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Go on with a job that was executed before.")
]


def schedule_to_run(job: Job) -> Schedule:
    """Return the schedule; BlendError when there is none or it does not fit the job any more."""
    model_of(job)
    schedule, plan = job.schedule(), job.plan()
    if schedule is None or plan is None:
        raise BlendError("the job has no plan yet", hint=f"`blend plan {job.path}`")
    made_of, now = plan.digests, digests_of(job)
    for what in now:
        if made_of.get(what) != now[what]:
            raise BlendError(
                f"the plan is of another {what}: {made_of.get(what)}, now {now[what]}",
                hint=f"`blend plan {job.path}` again",
                exit_code=MISMATCH,
            )
    return schedule


def run_schedule(
    job: Job, engine: Engine, schedule: Schedule, *, options: EngineOptions, interrupt: Interrupt
) -> None:
    """Run the pending part of *schedule* with a display of its progress."""
    pending = pending_schedule(job, schedule)
    if not len(pending) or not await_engine(engine, options.name, interrupt):
        return
    capacity = engine.capacity
    work = np.zeros(len(job))
    work[pending.order] = pending.uncached_tokens + 8.0 * pending.expected_tokens
    progress = RunProgress("execute", len(pending), float(work.sum()), capacity.kv_tokens)
    with progress:

        def show(report: StepReport) -> None:
            rows = [completion.row for completion in report.completions]
            progress.update(report, work=float(work[rows].sum()))

        run_rows(
            job,
            pending,
            engine,
            RunContext(
                "execute",
                options.name,
                dict(options.arguments),
                stopping=lambda: interrupt.asked,
                on_report=show,
            ),
        )
    err.print(f"executed in {duration(progress.elapsed_s)}: {progress.line(running=False)}")


def exit_code_of(job: Job) -> int:
    """Say what is left to do and return the exit code for it."""
    counts = job.counts()
    if counts.pending or counts.running:
        left = counted(counts.pending + counts.running, "requests left")
        err.print(f"{left}; go on with `blend execute {inert(str(job.path))} --resume`")
        return RESUMABLE
    err.print(
        f"all {counted(counts.total)} requests have results"
        + (f", {counted(counts.failed)} of them failed" if counts.failed else "")
        + (
            f"; {percent(counts.cached_tokens / counts.prompt_tokens)} of the prompt tokens came "
            "from the cache"
            if counts.cached_tokens
            else ""
        )
    )
    return SOME_FAILED if counts.failed else 0


def died(error: EngineDiedError, job: Job) -> BlendError:
    """Return what a person is told when the engine has died."""
    return BlendError(
        str(error),
        hint=f"nothing that arrived is lost: `blend execute {job.path} --resume`; "
        f"the engine's output is in `{log_path(job.path)}`",
        exit_code=RESUMABLE,
    )


@takes_engine
def execute_command(
    job_path: JobArgument,
    *,
    options: EngineOptions,
    resume: ResumeOption = False,
    seed: SeedOption = 0,
) -> None:
    """Run every request that has no result yet, in the order of the plan."""
    with Job.open(job_path) as job, job.lock("execute"):
        schedule = schedule_to_run(job)
        if job.executed() and not resume and job.pending().any():
            raise BlendError(
                "the job was executed before and is not finished",
                hint=f"`blend execute {job_path} --resume` goes on with it",
            )
        if job.pending().any():
            with (
                drain_on_interrupt() as interrupt,
                opened_engine(job, options, seed=seed) as opened,
            ):
                try:
                    run_schedule(job, opened, schedule, options=options, interrupt=interrupt)
                except EngineDiedError as error:
                    raise died(error, job) from error
        raise typer.Exit(exit_code_of(job))
