"""One engine at work on one job: opened, waited for, watched while it runs, stopped by a person.

What the warm-up of a plan and an execution have in common; they differ in when they end.
"""

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from blend.cli.engine import log_path, opened_engine
from blend.cli.engine_options import EngineOptions
from blend.cli.interrupt import Interrupt
from blend.cli.job_disk import warn_of_network_disk
from blend.cli.limits import RunLimits
from blend.cli.next_steps import causes, helping, next_command
from blend.cli.profiles import REPLICAS, keep_profile
from blend.cli.progress import RunProgress, Watch, unwatched
from blend.cli.run_context import RunContext, never, never_until
from blend.cli.running import POLL_S, Left, run_rows
from blend.cli.wording import counted, plain
from blend.cli.workload import Workload, planned_work, unplanned_work
from blend.core.engines import Capacity, Engine, EngineDiedError, StepReport
from blend.core.errors import RESUMABLE, BlendError
from blend.core.planning.identical import Followers, no_followers
from blend.core.running.breaker import Breaker
from blend.core.running.carried import Carried
from blend.core.running.seat import Seat
from blend.core.running.time_limit import TimeLimit
from blend.core.schedule import Schedule
from blend.store.job import Job, Purpose

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Session:
    """An engine, perhaps still starting, the job it works on, and a person who may ask to stop.

    ``limit``: the time that all its runs may take together. ``watch``: who sees how they go.
    """

    job: Job
    seat: Seat
    options: EngineOptions
    interrupt: Interrupt
    breaker: Breaker
    limit: TimeLimit | None = None
    watch: Watch = unwatched

    @property
    def engine(self) -> Engine:
        """The present engine; another takes its place when it dies."""
        return self.seat.engine


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run did, and what it leaves."""

    progress: RunProgress
    left: Left


@contextmanager
def opened_session(
    job: Job,
    options: EngineOptions,
    limits: RunLimits | None = None,
    watch: Watch = unwatched,
    interrupt: AbstractContextManager[Interrupt] | None = None,
) -> Iterator[Session]:
    """Start the job's engine, and stop it at the end.

    Once *interrupt* is asked to, what runs is finished and nothing more begun.
    The death of the engine becomes a BlendError with the command that resumes.
    """
    warn_of_network_disk(job.path)
    try:
        with interrupt or Interrupt() as asked, opened_engine(job, options) as seat:
            breaker = Breaker(options.tolerance.give_up_after)
            limit = limits.time_limit(virtual=options.name == "sim") if limits else None
            yield Session(job, seat, options, asked, breaker, limit, watch)
    except EngineDiedError as error:
        log = log_path(job.path)
        raise BlendError(
            str(error),
            hint=f"nothing that arrived is lost: `{next_command(job, job.counts())}`"
            + (f"; the engine's output is in `{log}`" if log.exists() else ""),
            exit_code=RESUMABLE,
        ) from error


def run_sample(
    session: Session,
    schedule: Schedule,
    *,
    bound_s: float = math.inf,
    until: Callable[[StepReport], bool] = never_until,
) -> Ran | None:
    """Run rows without a result ahead of a plan, and show how far it is.

    The first interrupt lets what runs finish; after *bound_s* engine seconds it is cut off. Once
    *until*, which is told every report, is true, what runs is handed on. None when nothing was
    begun: there are no rows, or a person asked to stop before the engine ran.
    """
    if not len(schedule) or not await_engine(session):
        return None
    workload = unplanned_work(session.job, schedule)
    # A sample brings the rows that run their results alone.
    progress = _progress_of(session, "sample", schedule, workload, no_followers())
    return _run_watched(
        session,
        schedule,
        "sample",
        progress,
        cut=lambda: progress.engine_s >= bound_s,
        until=until,
    )


def run_execution(
    session: Session, schedule: Schedule, *, plan: Schedule, carried: Carried | None = None
) -> Ran | None:
    """Run rows of the *plan* that have no result, and show how far it is.

    The first interrupt lets what runs finish. What is *carried* runs already. None when nothing was
    begun: there are no rows, or a person asked to stop before the engine ran.
    """
    if not len(schedule) or not (carried or await_engine(session)):
        return None
    _say_if_unpaced(session)
    job, options = session.job, session.options
    workload = planned_work(
        job,
        plan,
        schedule,
        session.engine.capacity,
        as_planned=options.name == "vllm",
        replicas=options.replicas,
    )
    progress = _progress_of(session, "execute", schedule, workload, job.followers())
    return _run_watched(session, schedule, "execute", progress, carried=carried)


def _progress_of(
    session: Session,
    purpose: Purpose,
    schedule: Schedule,
    workload: Workload,
    followers: Followers,
) -> RunProgress:
    followed = followers.counts(len(session.job))
    return RunProgress(
        purpose,
        len(schedule) + int(followed[schedule.order].sum()),
        workload,
        kv_capacity_tokens=session.engine.capacity.kv_tokens * session.options.replicas,
        followed=followed,
        replica_count=session.options.replicas,
    )


def _run_watched(
    session: Session,
    schedule: Schedule,
    purpose: Purpose,
    progress: RunProgress,
    *,
    cut: Callable[[], bool] = never,
    until: Callable[[StepReport], bool] = never_until,
    carried: Carried | None = None,
) -> Ran:
    """Run *schedule* and keep what its steps cost; BlendError when the first results all fail."""
    job, options, interrupt = session.job, session.options, session.interrupt
    with session.watch(progress, interrupt) as seen:

        def show(report: StepReport) -> None:
            progress.update(report)
            seen(report)

        context = RunContext(
            purpose,
            options.name,
            _settings(options, session.engine.capacity),
            stopping=lambda: interrupt.asked,
            cut=cut,
            until=until,
            on_report=show,
            say=lambda text: logger.info(plain(text)),
            max_rebuilds=options.tolerance.max_rebuilds,
            breaker=session.breaker,
            limit=session.limit,
        )
        left = run_rows(job, schedule, session.seat, context, carried=carried)
    if options.name == "vllm":
        keep_profile(job, options)
    if session.breaker.tripped and len(schedule.only(job.pending())):
        raise _given_up(job, session.breaker.failed)
    return Ran(progress, left)


def _settings(options: EngineOptions, capacity: Capacity) -> dict[str, object]:
    """Return what is stored of the engine with a run."""
    settings: dict[str, object] = {**options.arguments, "pacing": capacity.pacing}
    return settings | {REPLICAS: options.replicas} if options.replicas > 1 else settings


def _given_up(job: Job, failed: int) -> BlendError:
    """Return what to say when the first results are all failures."""
    said = f"gave up: the first {counted(failed)} results are all failures"
    return BlendError(
        "\n".join([said, *causes(job)]),
        hint=f"`{helping(job, job.failures()[:1])[0]}` helps, then "
        f"`{next_command(job, job.counts())}`; `--give-up-after 0` goes on regardless",
        exit_code=RESUMABLE,
    )


def await_engine(session: Session) -> bool:
    """Wait until the engine runs; False when a person would rather stop, or the time is over."""
    engine, interrupt = session.engine, session.interrupt
    if not engine.wait_ready(0):
        logger.info(f"waiting for the engine to start: {session.options.name}")
    while not engine.wait_ready(POLL_S):
        if interrupt.asked or _over(session):
            return False
    return not (interrupt.asked or _over(session))


def _over(session: Session) -> bool:
    return session.limit is not None and session.limit.over


def _say_if_unpaced(session: Session) -> None:
    """Tell a person who wants the engine to keep the pace that it does not."""
    if session.options.pacing != "step-budget" or session.engine.capacity.pacing == "step budget":
        return
    log = log_path(session.job.path)
    why = f", its log says why: `{plain(str(log))}`" if session.options.name == "vllm" else ""
    logger.info(
        f"the engine sets no budget for each step{why}; the pace is kept by a gate before it"
    )
