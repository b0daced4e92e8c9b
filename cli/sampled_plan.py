"""A job gets its plan: the sample is run, the plan made, and what to expect is said."""

import logging
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np

from blend.cli.advice import plan_advice
from blend.cli.engine import SIM_HARDWARE
from blend.cli.engine_options import EngineOptions
from blend.cli.interrupt import Interrupt
from blend.cli.job_model import require_rows, shape_of
from blend.cli.job_plan import plan_of
from blend.cli.job_run import expected_run, expected_words
from blend.cli.machine import CALIBRATED, this_hardware
from blend.cli.made_plan import MadePlan, Planned
from blend.cli.observing import find_followers, observations_of
from blend.cli.planning import PlanOptions, make_plan, warm_up_of
from blend.cli.profiles import best_profile, measured_line, parallel_of
from blend.cli.progress import Watch, unwatched
from blend.cli.session import Session, opened_session, run_sample
from blend.cli.ways import assumed_capacity, reach_of, way_in_words
from blend.cli.wording import counted, duration, percent, significant
from blend.core.engines import Capacity
from blend.core.planning.engine_model import StepCosts
from blend.core.planning.hardware import ALONE, several
from blend.core.planning.identical import Followers
from blend.core.planning.lengths import KNOWN
from blend.core.planning.plan import Plan
from blend.core.planning.tree import Tree, build_tree
from blend.core.planning.ways import AS_IT_COMES
from blend.core.prompts import Prompts
from blend.core.schedule import PolicyChoice
from blend.store.job import Job

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlanChoices:
    """What a person says about planning.

    ``sample_rate`` of the rows are run first, for ``sample_s`` seconds of the engine at most; 0
    runs none. ``hardware`` is the name of a device, this machine where it is None. Planning takes
    ``plan_s`` seconds, a small part of the predicted run where that is None. ``fan_out``: of
    identical requests whose answers chance does not decide one runs for all.
    """

    policy: PolicyChoice = "auto"
    sample_rate: float = 0.01
    sample_s: float = 30.0
    hardware: str | None = None
    plan_s: float | None = None
    fan_out: bool = True


def plan_options(
    job: Job, options: EngineOptions, choices: PlanChoices, *, started: bool = False
) -> PlanOptions:
    """Return what a plan is made with, for the job's model on the device that will run it.

    ``started``: the plan is for an engine that runs by then.
    """
    device = this_hardware(choices.hardware or (SIM_HARDWARE if options.name == "sim" else None))
    # What is known of a CPU is of the whole machine, which its ranks share.
    parallel = parallel_of(options) if device.name != "cpu" else ALONE
    return PlanOptions(
        choices.policy,
        several(device, parallel),
        shape_of(job, options.arguments, on_cpu=device.name == "cpu"),
        seed=options.seed,
        sample_rate=choices.sample_rate,
        sample_s=choices.sample_s,
        plan_s=choices.plan_s,
        fan_out=choices.fan_out,
        reach=reach_of(options, None, started=started),
        measured=choices.hardware is None,
    )


def plan_job_on(
    job: Job,
    options: EngineOptions,
    choices: PlanChoices,
    *,
    watch: Watch = unwatched,
    interrupt: AbstractContextManager[Interrupt] | None = None,
) -> Plan | None:
    """Run the sample on an engine of its own, if there is to be one, and plan the job."""
    settings = plan_options(job, options, choices)
    if not settings.sample_rate:
        return sample_and_plan(job, None, settings, options)
    with opened_session(job, options, watch=watch, interrupt=interrupt) as session:
        return sample_and_plan(job, session, settings, options)


def sample_and_plan(
    job: Job,
    session: Session | None,
    settings: PlanOptions,
    options: EngineOptions | None = None,
) -> Plan | None:
    """Sample, plan, save and say what to expect; None when interrupted before there was a plan.

    Without a *session* there is no sample, and *options* say which engine is planned for: vLLM
    where there are none either.
    """
    inputs = plan_inputs(job, settings)
    dropped = _sample(session, inputs, settings) if session and settings.sample_rate else {}
    if session and session.interrupt.asked:
        return None
    capacity = session.engine.capacity if session else None
    options = session.options if session else options or EngineOptions("vllm", {}, settings.seed)
    settings = as_measured(job, settings, options, capacity)
    if capacity is None and options.name == "vllm" and settings.measured:
        context = int(job.meta("context_tokens") or 0)
        capacity = assumed_capacity(settings.engine(), options, context=context)
    made = make_plan(
        inputs.prompts,
        inputs.tree,
        settings,
        observations_of(job, inputs.prompts, dropped),
        Planned.of(job),
        capacity=capacity,
        spent_s=inputs.spent_s,
    )
    return save_and_say(job, made, inputs.followers, engine=options.name)


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """What a job's plan is made of beside what is observed; it took ``spent_s`` seconds to read.

    ``prompts`` and ``tree`` are of the rows that are no ``followers``.
    """

    followers: Followers
    prompts: Prompts
    tree: Tree
    spent_s: float


def plan_inputs(job: Job, settings: PlanOptions) -> PlanInputs:
    """Read what the plan of a job is made of; BlendError for a job without rows."""
    require_rows(job)
    started_s = time.monotonic()
    followers = find_followers(job, fan_out=settings.fan_out)
    prompts = job.prompts(followers.others(len(job)))
    tree = build_tree(prompts)
    return PlanInputs(followers, prompts, tree, time.monotonic() - started_s)


def as_measured(
    job: Job, settings: PlanOptions, options: EngineOptions, capacity: Capacity | None
) -> PlanOptions:
    """Return the settings with what is known of the engine and its steps by now, and say that."""
    reach = reach_of(options, capacity, started=settings.reach.started)
    return replace(settings, reach=reach, costs=_costs(job, options, settings))


def save_and_say(job: Job, made: MadePlan, followers: Followers, *, engine: str) -> Plan:
    """Make a plan the job's, and say what to expect of it."""
    plan = made.save(job, followers)
    _tell_plan(made, simulated=engine == "sim")
    for paragraph in plan_advice(plan_of(job)):
        logger.info(f"prompts: {paragraph}")
    if len(followers):
        logger.info(
            f"{counted(len(followers), 'more requests')} are identical to "
            f"{counted(len(np.unique(followers.leaders)))} of these and get their answers"
        )
    return plan


def _sample(session: Session, inputs: PlanInputs, settings: PlanOptions) -> Mapping[int, int]:
    """Run the sample; return the output tokens that each row had which was cut off."""
    schedule = warm_up_of(session.job, inputs.prompts, inputs.tree, settings).sample
    ran = run_sample(session, schedule, bound_s=settings.sample_s)
    if ran is None:
        return {}
    dropped = ran.left.dropped
    cut = f", {counted(len(dropped))} cut off and given back" if dropped else ""
    logger.info(
        f"sampled {counted(len(schedule), 'requests')} in {duration(ran.progress.elapsed_s)}: "
        f"{counted(ran.progress.answered + ran.progress.failed)} have results{cut}"
    )
    return dropped


def _costs(job: Job, options: EngineOptions, settings: PlanOptions) -> StepCosts | None:
    """Return what steps cost as measured here, and say so; None where the datasheet has to do."""
    found = best_profile(job, options, settings.engine()) if settings.measured else None
    if found is None:
        if settings.measured and settings.hardware.source == CALIBRATED:
            logger.info(
                f"{settings.hardware.name} as calibrated; no step of the model was measured"
            )
        return None
    logger.info(measured_line(found))
    return found.costs


def _tell_plan(made: MadePlan, *, simulated: bool) -> None:
    plan = made.plan
    expected = plan.prediction
    logger.info(
        f"planned {counted(expected.rows, 'requests')} ({plan.schedule.policy}): "
        f"{counted(expected.prompt_tokens, 'prompt tokens')}, "
        f"{percent(expected.sharing)} shared of {percent(expected.best_sharing)} possible, "
        f"{counted(expected.output_tokens, 'output tokens')} expected, "
        f"density {significant(expected.density)}"
    )
    if known := int((plan.lengths.source == KNOWN).sum()):
        logger.info(f"{counted(known)} requests say how long their answers will be")
    if plan.split and plan.split.rows_moved:
        logger.info(f"split {counted(plan.split.rows_moved, 'outliers')} off their prefixes")
    _tell_candidates(plan)
    if plan.settings.way != AS_IT_COMES:
        logger.info(f"to execute: {way_in_words(plan.settings.way)}")
    device = f"{'a simulated ' if simulated else ''}{plan.settings.hardware.name}"
    if one := expected_run(made.record):
        logger.info(f"expected on {device}: {expected_words(one)}")
    else:
        logger.info(
            f"expected on {device}: {duration(expected.overlapped_s)} if compute "
            f"and memory overlap, {duration(expected.sequential_s)} if they do not"
        )


def _tell_candidates(plan: Plan) -> None:
    if plan.outlook:
        compared = ", ".join(f"{one.name} {duration(one.seconds)}" for one in plan.candidates)
        logger.info(f"simulated: {compared}; at best {duration(plan.outlook.bound_s)}")
