"""Plan an open job: choose its sample, make the plan of what was observed, simulate it.

Running its rows is in `running`; the warm-up of a plan is a run of the sampled rows that ends after
a bound, or goes on beside the plan that is made of it.
"""

import logging
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from blend.cli.made_plan import MadePlan, Planned, made_plan
from blend.cli.plan_clock import PlanClock, part_of_run_s, simulator_compiled
from blend.cli.wording import duration
from blend.core.engines import Capacity
from blend.core.planning.choice import compute_bound_rows
from blend.core.planning.classes import Mode
from blend.core.planning.engine_model import EngineModel, StepCosts, engine_model
from blend.core.planning.foresight import foreseen_timeline
from blend.core.planning.hardware import Hardware, ModelShape
from blend.core.planning.lengths import Observations, choose_sample
from blend.core.planning.plan import BY_CLASS, Plan, plan_on
from blend.core.planning.profile import with_costs
from blend.core.planning.prompt_lint import lint_prompts
from blend.core.planning.tree import Tree
from blend.core.planning.wanted import WantedAnswers
from blend.core.planning.ways import ANY, Reach, paced_ways, told_of
from blend.core.prompts import Prompts
from blend.core.schedule import Policy, PolicyChoice, Schedule
from blend.store.job import Job

logger = logging.getLogger(__name__)

LONG_S = 10.0
"""Planning that lasts so long is announced."""

CHOOSE_S = 5.0
"""What ``auto`` may always take to choose."""

SAMPLE_S = 30.0
"""Seconds of the engine after which a sample is cut off, or no longer waited for."""

DRAWS = 5
"""How often a plan draws lengths, as far as its time allows."""

CLASS_MINIMUM, MINIMUM = 30, 8
"""What is sampled of a cohort at least, for policies with classes and for the others."""

BLENDING: tuple[PolicyChoice, ...] = ("blend", "auto")
"""Policies whose rows blend, or may."""

BESIDE_SHARE = 0.1
"""Of the tokens to compute, what may run beside a sample: the rest is left for the plan."""


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """How to plan: the order, and how much of the job to run first to learn output lengths.

    ``mode``: whether the engine overlaps compute with memory traffic. ``sample_rate`` of 0 runs
    nothing; the sample is cut off after ``sample_s`` engine seconds. After ``plan_s`` seconds of
    planning nothing more is simulated: a small part of the predicted run where that is None.
    ``fan_out``: of identical requests whose answers chance does not decide, one runs and the others
    get its answer.
    ``reach``: the ways of running the engine that can be chosen; ``costs``: what its steps cost, to
    be set where ``measured`` lets that go before the device's datasheet.
    """

    policy: PolicyChoice
    hardware: Hardware
    model: ModelShape
    mode: Mode = "sequential"
    seed: int = 0
    sample_rate: float = 0.01
    sample_s: float = SAMPLE_S
    plan_s: float | None = None
    fan_out: bool = True
    reach: Reach = ANY
    measured: bool = False
    costs: StepCosts | None = None

    def engine(self, capacity: Capacity | None = None) -> EngineModel:
        """Return the engine to plan for, of *capacity* where that is known."""
        engine = engine_model(self.hardware, self.model, mode=self.mode)
        if capacity is not None:
            engine = engine.holding(capacity)
        return engine if self.costs is None else with_costs(engine, self.costs)


@dataclass(frozen=True, slots=True)
class WarmUp:
    """What runs ahead of a plan: the rows ``sampled``, and the ``schedule`` that begins with them.

    ``wanted``: the answers to see before the plan is made.
    """

    sampled: npt.NDArray[np.int64]
    schedule: Schedule
    wanted: WantedAnswers

    @property
    def sample(self) -> Schedule:
        """The schedule of the sampled rows alone."""
        return self.schedule.at(np.isin(self.schedule.order, self.sampled))


def warm_up_of(job: Job, prompts: Prompts, tree: Tree, options: PlanOptions) -> WarmUp:
    """Return what of an open job runs before its plan is made.

    A plan that blends learns while it runs, and need not wait for more than a few answers of every
    cohort; any other wants the whole sample.
    """
    by_class = options.policy in (*BY_CLASS, "auto")
    sample = choose_sample(
        tree,
        prompts,
        probability=options.sample_rate,
        minimum=CLASS_MINIMUM if by_class else MINIMUM,
        every_cohort=by_class,
        seed=options.seed,
    )
    sampled = np.zeros(len(prompts), np.bool_)
    sampled[sample] = True
    open_rows, rows = job.pending(), prompts.job_rows
    pending = open_rows[rows]
    ahead = run_ahead(
        options.engine(),
        prompts,
        tree,
        sampled,
        policy=options.policy,
        reach=options.reach,
        seed=options.seed,
    )
    if ahead.blending is not None:
        ready_to_simulate(options.engine())
    enough = CLASS_MINIMUM if options.policy in BLENDING else max(len(sample), 1)
    wanted = WantedAnswers(tree, prompts, sampled, minimum=enough)
    for row in rows[sampled & ~pending].tolist():
        wanted.see(row)
    return WarmUp(
        rows[sampled & pending], ahead.only(pending).renumbered(rows, total=len(open_rows)), wanted
    )


def run_ahead(
    engine: EngineModel,
    prompts: Prompts,
    tree: Tree,
    sampled: npt.NDArray[np.bool_],
    *,
    policy: PolicyChoice,
    reach: Reach,
    seed: int,
) -> Schedule:
    """Return the rows *sampled*, (n,), and behind them what may run before there is a plan.

    Where rows blend that is all, as by the plan of one who has seen no answer: long answers grow
    from the beginning, and prompts keep the pace that lets them. Elsewhere the sample runs in
    depth-first order, and of the compute-bound rows a part.
    """
    blends = policy in BLENDING
    order: Policy = "blend" if blends else "dfs"
    plan = plan_on(engine, prompts, policy=order, observations=None, tree=tree, seed=seed)
    if blends:
        return _paced(plan, engine, reach).schedule.beginning_with(sampled)
    beside = compute_bound_rows(plan.schedule, ~sampled, share=BESIDE_SHARE)
    return plan.schedule.only(sampled | beside).beginning_with(sampled)


@dataclass(frozen=True, slots=True)
class _PlanContext:
    """What a plan is made of, the engine that it is made for, and the time to think about it."""

    prompts: Prompts
    tree: Tree
    observations: Observations
    options: PlanOptions
    engine: EngineModel
    clock: PlanClock


def make_plan(
    prompts: Prompts,
    tree: Tree,
    options: PlanOptions,
    observations: Observations,
    planned: Planned,
    *,
    capacity: Capacity | None = None,
    spent_s: float = 0.0,
) -> MadePlan:
    """Make the plan of a whole job from what was observed, without touching the job.

    ``capacity`` is that of the engine that will run it, where it is known; ``spent_s`` seconds of
    planning have gone by before.
    """
    engine = options.engine(capacity)
    limit_s = options.plan_s
    if limit_s is None:
        limit_s = part_of_run_s(prompts, tree, observations, engine)
    clock = PlanClock(limit_s, spent_s=spent_s)
    if limit_s - spent_s >= LONG_S:
        logger.info(f"planning, for up to {duration(limit_s - spent_s)}: runs are simulated")
    context = _PlanContext(prompts, tree, observations, options, engine, clock)
    plan = _plan(context)
    timeline = foreseen_timeline(
        prompts,
        tree,
        plan.schedule.only(~observations.answered),
        plan.lengths,
        plan.settings.way.engine(engine),
        kernels=lambda: plan.outlook is not None or clock.left_to_simulate(),
        seed=options.seed,
    )
    lint = lint_prompts(
        prompts,
        tree,
        context_tokens=planned.context_tokens,
        observations=observations,
        seed=options.seed,
    )
    return made_plan(
        plan,
        prompts.job_rows,
        planned,
        observations=observations,
        fan_out=options.fan_out,
        timeline=timeline,
        lint=lint,
    )


def _plan(context: _PlanContext) -> Plan:
    """Return the plan of the policy asked for, or of the one that simulated runs choose."""
    options, engine = context.options, context.engine
    if options.policy == "auto":
        return _guarded_plan(context)
    plan = plan_on(
        engine,
        context.prompts,
        policy=options.policy,
        observations=context.observations,
        tree=context.tree,
        seed=options.seed,
    )
    return _with_outlook(_paced(plan, engine, options.reach), context)


def _paced(plan: Plan, engine: EngineModel, reach: Reach) -> Plan:
    """Return the plan with the best way to keep the pace that its policy asks for, if any."""
    blending = plan.schedule.blending
    if blending is None:
        return plan
    ways = paced_ways(engine, reach)
    told = replace(told_of(blending, engine), paced=bool(ways))
    settings = replace(plan.settings, way=ways[0]) if ways else plan.settings
    return replace(plan, schedule=replace(plan.schedule, blending=told), settings=settings)


def _guarded_plan(context: _PlanContext) -> Plan:
    from blend.core.planning.guard import guarded_plan  # numba is slow to import

    clock = context.clock
    clock.limit_s = max(clock.limit_s, CHOOSE_S)
    with clock.stopped():
        ready_to_simulate(context.engine)
    return guarded_plan(
        context.prompts,
        context.tree,
        context.engine,
        observations=context.observations,
        reach=context.options.reach,
        seed=context.options.seed,
        draws=DRAWS,
        wanted=clock.left,
    )


def ready_to_simulate(engine: EngineModel) -> None:
    """Compile what simulates runs, which decides in real ones too; say so where that takes long."""
    from blend.core.planning.guard import warm_up  # numba is slow to import

    if not simulator_compiled():
        logger.info("compiling the simulator, which takes a minute or two, once")
    warm_up(engine)


def _with_outlook(plan: Plan, context: _PlanContext) -> Plan:
    """Return the plan with what simulated runs of it come to, where there is time for them."""
    clock, observations = context.clock, context.observations
    if clock.limit_s < CHOOSE_S or observations.answered.all() or not clock.left_to_simulate():
        return plan
    from blend.core.planning.guard import outlook_of

    outlook = outlook_of(
        plan,
        context.prompts,
        context.tree,
        context.engine,
        observations=observations,
        draws=DRAWS,
        wanted=clock.left,
    )
    return replace(plan, outlook=outlook)
