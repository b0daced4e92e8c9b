"""The rows of a schedule that have no result are run, within limits."""

from blend.cli.console import err
from blend.cli.limits import NO_LIMITS, RunLimits
from blend.cli.session import Session, await_engine, run_watched
from blend.cli.ways import paced_as_asked
from blend.cli.wording import counted, duration
from blend.cli.workload import costs_in_plan
from blend.core.planning.choice import first_rows, most_in_time
from blend.core.running.carried import Carried
from blend.core.schedule import Schedule


def execute(
    session: Session,
    schedule: Schedule,
    limits: RunLimits = NO_LIMITS,
    carried: Carried | None = None,
) -> None:
    """Run the rows of *schedule* that have no result, within *limits*, and say how it went.

    Those that are *carried* run already.
    """
    left = schedule.only(session.job.pending())
    if limits.most_rows and len(left) and await_engine(session):
        left = _cheapest_first(session, left)
    if limits.rows is not None:
        left = first_rows(left, limits.rows)
    ran = run_watched(session, paced_as_asked(left, session.options), "execute", carried=carried)
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
