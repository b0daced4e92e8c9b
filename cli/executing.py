"""The rows of a schedule that have no result are run, within limits."""

import logging
from contextlib import AbstractContextManager

from blend.cli.engine_options import EngineOptions
from blend.cli.interrupt import Interrupt
from blend.cli.job_plan import fitting_schedule
from blend.cli.limits import NO_LIMITS, RunLimits
from blend.cli.next_steps import next_command
from blend.cli.progress import Watch, unwatched
from blend.cli.progress_words import result_line
from blend.cli.session import Session, await_engine, opened_session, run_execution
from blend.cli.ways import paced_as_asked, way_in_words, way_of, with_way
from blend.cli.wording import counted, duration
from blend.cli.workload import costs_in_plan
from blend.core.errors import BlendError
from blend.core.planning.choice import first_rows, most_in_time
from blend.core.running.carried import Carried
from blend.core.schedule import Schedule
from blend.store.job import Job

logger = logging.getLogger(__name__)


def execute_job(
    job: Job,
    options: EngineOptions,
    limits: RunLimits = NO_LIMITS,
    *,
    resume: bool = True,
    watch: Watch = unwatched,
    interrupt: AbstractContextManager[Interrupt] | None = None,
) -> None:
    """Run every row of a job that has no result yet, in the order of its plan.

    Raises BlendError where the plan does not fit, and, unless it may *resume*, for a job that was
    executed before and is not finished.
    """
    schedule = fitting_schedule(job)
    job.hand_on_results()
    if not job.pending().any():
        return
    if job.executed() and not resume:
        raise BlendError(
            "the job was executed before and is not finished",
            hint=f"`{next_command(job, job.counts())}` goes on with it",
        )
    start = with_way(options, job.plan())
    with opened_session(job, start, limits, watch, interrupt) as session:
        if way := way_of(job.plan()):
            logger.info(f"as planned: {way_in_words(way)}")
        execute(session, schedule, limits)


def execute(
    session: Session,
    schedule: Schedule,
    limits: RunLimits = NO_LIMITS,
    carried: Carried | None = None,
) -> None:
    """Run the rows of *schedule*, the job's plan, that have no result, and say how it went.

    It ends within *limits*. Those that are *carried* run already.
    """
    left = schedule.only(session.job.pending())
    if limits.most_rows and len(left) and await_engine(session):
        left = _cheapest_first(session, left)
    if limits.rows is not None:
        left = first_rows(left, limits.rows)
    paced = paced_as_asked(left, session.options)
    ran = run_execution(session, paced, plan=schedule, carried=carried)
    if ran is not None:
        progress = ran.progress
        took = duration(progress.elapsed_s)
        if session.options.name == "sim":
            took += f", in virtual time {duration(progress.engine_s)}"
        logger.info(f"executed in {took}: {result_line(progress)}")
        if dropped := ran.left.dropped:
            logger.info(f"time is up: {counted(len(dropped))} unfinished rows were given back")
    elif len(left) and session.limit is not None and session.limit.over:
        logger.info("time was up before anything could run")


def _cheapest_first(session: Session, schedule: Schedule) -> Schedule:
    """Return the rows in the order that finishes the most of them in the time that is left."""
    job, limit = session.job, session.limit
    if limit is None:
        return schedule
    costs = costs_in_plan(job, schedule, session.engine.capacity)
    return most_in_time(schedule, costs, limit.left_s * session.options.replicas)
