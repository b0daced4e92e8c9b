"""`blend execute`: run what the plan has scheduled and has no result yet."""

from typing import Annotated

import typer

from blend.cli.console import counted, duration, err, inert, percent
from blend.cli.job_plan import fitting_schedule
from blend.cli.options import EngineOptions, JobArgument, engine_options, takes
from blend.cli.session import Session, opened_session, run_watched
from blend.cli.status import causes, copied_line, next_command
from blend.core.errors import RESUMABLE, SOME_FAILED, BlendError
from blend.core.schedule import Schedule
from blend.store.job import Job

ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Go on with a job that was executed before.")
]


def execute(session: Session, schedule: Schedule) -> None:
    """Run the rows of *schedule* that have no result, and say how it went."""
    ran = run_watched(session, schedule.only(session.job.pending()), "execute")
    if ran is not None:
        progress = ran.progress
        err.print(f"executed in {duration(progress.elapsed_s)}: {progress.line(running=False)}")


def exit_code_of(job: Job) -> int:
    """Say what is left to do and return the exit code for it."""
    counts = job.counts()
    if counts.unfinished:
        left = counted(counts.unfinished, "requests left")
        err.print(f"{left}; go on with `{inert(next_command(job, counts))}`")
        return RESUMABLE
    said = f"all {counted(counts.total)} requests have results"
    if counts.failed:
        said += f", {counted(counts.failed)} of them failed"
    if counts.copied:
        said += f"; {copied_line(counts)}"
    if counts.cached_tokens:
        share = percent(counts.cached_tokens / counts.prompt_tokens)
        said += f"; {share} of the prompt tokens came from the cache"
    err.print(said)
    if counts.failed == counts.total:
        for cause in causes(job):
            err.print(inert(cause))
    return SOME_FAILED if counts.failed else 0


@takes(options=engine_options)
def execute_command(
    job_path: JobArgument, *, options: EngineOptions, resume: ResumeOption = False
) -> None:
    """Run every request that has no result yet, in the order of the plan."""
    with Job.open(job_path) as job, job.lock("execute"):
        schedule = fitting_schedule(job)
        if job.pending().any():
            if job.executed() and not resume:
                raise BlendError(
                    "the job was executed before and is not finished",
                    hint=f"`{next_command(job, job.counts())}` goes on with it",
                )
            with opened_session(job, options) as session:
                execute(session, schedule)
        raise typer.Exit(exit_code_of(job))
