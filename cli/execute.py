"""`blend execute`: run what the plan has scheduled and has no result yet."""

from typing import Annotated

import typer

from blend.cli.console import counted, duration, err, inert, percent
from blend.cli.display import ProgressStyle, display_options
from blend.cli.job_plan import fitting_schedule
from blend.cli.options import EngineOptions, JobArgument, engine_options, takes
from blend.cli.run_limits import NO_LIMITS, RunLimits, run_limits
from blend.cli.session import Session, await_engine, opened_session, run_watched
from blend.cli.status import causes, copied_line, next_command
from blend.cli.ways import paced_as_asked, way_in_words, way_of, with_way
from blend.cli.workload import costs_in_plan
from blend.core.errors import RESUMABLE, SOME_FAILED, BlendError
from blend.core.planning.choice import first_rows, most_in_time
from blend.core.schedule import Schedule
from blend.store.job import Job

ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Go on with a job that was executed before.")
]


def execute(session: Session, schedule: Schedule, limits: RunLimits = NO_LIMITS) -> None:
    """Run the rows of *schedule* that have no result, within *limits*, and say how it went."""
    left = schedule.only(session.job.pending())
    if limits.most_rows and len(left) and await_engine(session):
        left = _cheapest_first(session, left)
    if limits.rows is not None:
        left = first_rows(left, limits.rows)
    ran = run_watched(session, paced_as_asked(left, session.options), "execute")
    if ran is not None:
        progress = ran.progress
        err.print(f"executed in {duration(progress.elapsed_s)}: {progress.line(running=False)}")
        if dropped := ran.left.dropped:
            err.print(f"time is up: {counted(len(dropped))} unfinished rows were given back")
    elif len(left) and session.limit is not None and session.limit.over:
        err.print("time was up before anything could run")


def _cheapest_first(session: Session, schedule: Schedule) -> Schedule:
    """Return the rows in the order that finishes the most of them in the time that is left."""
    job, limit = session.job, session.limit
    if limit is None:
        return schedule
    costs = costs_in_plan(job, schedule, session.engine.capacity)
    return most_in_time(schedule, costs, limit.left_s)


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
