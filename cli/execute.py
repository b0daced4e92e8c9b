"""`blend execute`: run what the plan has scheduled and has no result yet."""

from typing import Annotated

import typer

from blend.cli.console import err, inert
from blend.cli.display import ProgressStyle, display_options
from blend.cli.engine_options import EngineOptions
from blend.cli.executing import execute
from blend.cli.job_plan import fitting_schedule
from blend.cli.limits import RunLimits
from blend.cli.next_steps import causes, next_command
from blend.cli.options import JobArgument, engine_options, takes
from blend.cli.run_limits import run_limits
from blend.cli.session import opened_session
from blend.cli.status import copied_line
from blend.cli.ways import way_in_words, way_of, with_way
from blend.cli.wording import counted, percent
from blend.core.errors import RESUMABLE, SOME_FAILED, BlendError
from blend.store.job import Job

ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Go on with a job that was executed before.")
]


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


@takes(limits=run_limits, options=engine_options, progress=display_options)
def execute_command(
    job_path: JobArgument,
    *,
    limits: RunLimits,
    options: EngineOptions,
    progress: ProgressStyle,
    resume: ResumeOption = False,
) -> None:
    """Run every request that has no result yet, in the order of the plan."""
    with Job.open(job_path) as job, job.lock("execute"):
        schedule = fitting_schedule(job)
        job.hand_on_results()
        if job.pending().any():
            if job.executed() and not resume:
                raise BlendError(
                    "the job was executed before and is not finished",
                    hint=f"`{next_command(job, job.counts())}` goes on with it",
                )
            start = with_way(options, job.plan())
            with opened_session(job, start, limits, progress) as session:
                if way := way_of(job.plan()):
                    err.print(f"as planned: {way_in_words(way)}")
                execute(session, schedule, limits)
        raise typer.Exit(exit_code_of(job))
