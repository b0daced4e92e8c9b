"""What is left of a job is planned and executed with one engine start."""

from contextlib import AbstractContextManager

from blend.cli.engine_options import EngineOptions
from blend.cli.executing import execute
from blend.cli.interrupt import Interrupt
from blend.cli.job_plan import fitting_schedule, planned
from blend.cli.limits import NO_LIMITS, RunLimits
from blend.cli.progress import Watch, unwatched
from blend.cli.sampled_plan import PlanChoices, plan_options, sample_and_plan
from blend.cli.session import opened_session
from blend.cli.warm_up import warm_up_and_plan
from blend.cli.ways import ready_to_gate, with_way
from blend.store.job import Job


def run_job(
    job: Job,
    options: EngineOptions,
    choices: PlanChoices,
    limits: RunLimits = NO_LIMITS,
    *,
    watch: Watch = unwatched,
    interrupt: AbstractContextManager[Interrupt] | None = None,
) -> None:
    """Plan a job that has no fitting plan, and run its rows that have no result."""
    settings = plan_options(job, options, choices, started=True)
    job.hand_on_results()
    if not job.pending().any():
        return
    as_planned = planned(job)
    # An engine that starts before the plan is given what lets the plan choose.
    start = (
        with_way(options, job.plan())
        if as_planned
        else ready_to_gate(
            options, settings.policy, hardware=settings.hardware, model=settings.model
        )
    )
    with opened_session(job, start, limits, watch, interrupt) as session:
        carried = None
        if not as_planned:
            if settings.sample_rate and limits == NO_LIMITS:
                carried = warm_up_and_plan(session, settings)
            else:
                sample_and_plan(job, session, settings)
        if planned(job) and (carried or not session.interrupt.asked):
            execute(session, fitting_schedule(job), limits, carried)
