"""What the commands do, without a terminal: sample, plan, simulate and execute an open job.

Resume is not a mode: a run is the rows without a result, in schedule order, and the warm-up of a
plan is a run of the sampled rows that ends after a bound.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from blend.cli.job_model import require_rows
from blend.cli.job_plan import digests_of
from blend.core.engines import Capacity, Engine, EngineDiedError, StepReport
from blend.core.errors import BlendError
from blend.core.planning.classes import Mode
from blend.core.planning.engine_model import EngineModel, engine_model
from blend.core.planning.foresight import foreseen_timeline
from blend.core.planning.hardware import Hardware, ModelShape
from blend.core.planning.lengths import Observations, choose_sample, estimate
from blend.core.planning.optimum import bound_s, work_of
from blend.core.planning.plan import BY_CLASS, Plan, make_plan
from blend.core.planning.tree import Tree, build_tree
from blend.core.prompts import Prompts
from blend.core.running import executor
from blend.core.running.scan import open_scanner
from blend.core.schedule import POLICIES, Policy, PolicyChoice, Schedule
from blend.store.job import Job, Outcome, PlanRecord, Purpose
from blend.store.recorder import Recorder
from blend.store.timeline import Timeline

if TYPE_CHECKING:
    from blend.core.planning.outlook import Outlook

SIMULATE_S = 120.0
"""The time after which a comparison draws no more, and a plan simulates nothing more."""

PLAN_SHARE = 0.05
"""The part of the predicted run that planning may take."""

CHOOSE_S, COMPILE_S = 5.0, 60.0
"""What ``auto`` may always take to choose; what may go by where no kernel is compiled yet."""

DRAWS = 5

OnReport = Callable[[StepReport], None]


def _never() -> bool:
    return False


def _ignore(_report: StepReport) -> None:
    pass


def _ignore_run(_runs: int) -> None:
    pass


@dataclass(frozen=True, slots=True)
class RunContext:
    """What a run is for, what it runs on, and who watches it.

    Once ``stopping`` is true what runs is finished and nothing more begun; once ``cut`` is true
    what runs is dropped.
    """

    purpose: Purpose
    engine_name: str
    settings: Mapping[str, object]
    stopping: Callable[[], bool] = _never
    cut: Callable[[], bool] = _never
    on_report: OnReport = _ignore


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """How to plan: the order, and how much of the job to run first to learn output lengths.

    ``mode``: whether the engine overlaps compute with memory traffic. ``sample_rate`` of 0 runs
    nothing; the sample is cut off after ``sample_s`` engine seconds. After ``plan_s`` seconds of
    planning nothing more is simulated: a small part of the predicted run where that is None.
    """

    policy: PolicyChoice
    hardware: Hardware
    model: ModelShape
    mode: Mode = "sequential"
    seed: int = 0
    sample_rate: float = 0.01
    sample_s: float = 30.0
    plan_s: float | None = None


def sample_schedule(job: Job, prompts: Prompts, tree: Tree, options: PlanOptions) -> Schedule:
    """Return the rows to run ahead of planning, in depth-first order."""
    by_class = options.policy in (*BY_CLASS, "auto")
    rows = choose_sample(
        tree,
        prompts,
        probability=options.sample_rate,
        minimum=30 if by_class else 8,
        every_cohort=by_class,
        seed=options.seed,
    )
    chosen = np.zeros(len(prompts), np.bool_)
    chosen[rows] = True
    return _make_plan(prompts, tree, options, policy="dfs").schedule.only(chosen & job.pending())


def observations_of(job: Job, prompts: Prompts, dropped: Mapping[int, int]) -> Observations:
    """Return what the job's results, and the rows dropped after some tokens, tell of lengths."""
    tokens = np.full(len(prompts), np.nan)
    rows, output_tokens = job.output_tokens()
    tokens[rows] = output_tokens / prompts.sequences[rows]
    finished = ~np.isnan(tokens)
    for row, age in dropped.items():
        tokens[row] = age / prompts.sequences[row]
    return Observations(tokens, finished)


def known_lengths(job: Job, prompts: Prompts) -> Observations:
    """Return what the results tell of lengths, and the ages at which the plan's sample was cut."""
    seen, plan = observations_of(job, prompts, {}), job.plan()
    if plan is not None:
        new = np.isnan(seen.tokens[plan.sample_rows]) & ~plan.sample_finished
        seen.tokens[plan.sample_rows[new]] = plan.sample_tokens[new]
    return seen


def compare_policies(
    job: Job,
    engine: EngineModel,
    *,
    policies: Sequence[Policy] = POLICIES,
    draws: int = 5,
    seed: int = 0,
    on_run: Callable[[int], None] = _ignore_run,
) -> "Outlook":
    """Simulate the whole job from its start under each policy; nothing in the job changes.

    After two minutes no further draw is made. ``on_run`` is told before each simulated run how many
    a draw has. Raises BlendError for a job without rows, and where
    the engine's cache cannot hold a prompt.
    """
    from blend.core.planning.compare import compare  # numba is slow to import

    require_rows(job)
    prompts = job.prompts()
    _require_room(prompts, engine)
    observed = known_lengths(job, prompts)
    each, row = prompts.by_sequence()
    started_s = time.monotonic()
    return compare(
        each,
        build_tree(each),
        engine,
        policies=policies,
        observations=Observations(observed.tokens[row], observed.finished[row]),
        draws=draws,
        seed=seed,
        wanted=lambda: time.monotonic() - started_s < SIMULATE_S,
        on_run=on_run,
    )


def _require_room(prompts: Prompts, engine: EngineModel) -> None:
    held, hardware, model = engine.capacity.kv_tokens, engine.hardware, engine.model
    longest = int(prompts.lengths.max())
    # A block is not shared by what a prompt and its answer end with.
    if held >= longest + engine.capacity.block_tokens:
        return
    raise BlendError(
        f"{hardware.name} cannot run {model.name}: the KV cache beside its weights "
        f"({model.weight_bytes / 1e9:,.1f} GB) holds {held:,} tokens, "
        f"the longest prompt has {longest:,}",
        hint="more devices with `--tensor-parallel-size`, or another with `--hardware`",
    )


def plan_job(
    job: Job,
    prompts: Prompts,
    tree: Tree,
    options: PlanOptions,
    observations: Observations,
    *,
    capacity: Capacity | None = None,
    spent_s: float = 0.0,
) -> Plan:
    """Make the plan of a whole job from what was observed, and save it.

    ``capacity`` is that of the engine that will run it, where it is known; ``spent_s`` seconds of
    planning have gone by before.
    """
    engine = engine_model(options.hardware, options.model, mode=options.mode)
    if capacity is not None:
        engine = replace(engine, capacity=capacity)
    clock = _PlanClock(_plan_s(prompts, tree, options, observations, engine), spent_s=spent_s)
    if options.policy == "auto":
        plan = _guarded_plan(prompts, tree, options, observations, engine, clock)
    else:
        plan = _make_plan(prompts, tree, options, policy=options.policy, observations=observations)
        plan = _with_outlook(plan, prompts, tree, observations, engine, clock)
    sampled = np.flatnonzero(~np.isnan(observations.tokens))
    unanswered = np.isnan(observations.tokens) | ~observations.finished
    timeline = foreseen_timeline(
        prompts,
        tree,
        plan.schedule.only(unanswered),
        plan.lengths,
        engine,
        kernels=lambda: plan.outlook is not None or (clock.left() and _compiled_in(clock)),
        seed=options.seed,
    )
    record = PlanRecord(
        policy=plan.schedule.policy,
        settings=_plain(plan.settings) | {"split": _plain(plan.split)},
        digests=digests_of(job),
        predictions=_plain(plan.prediction)
        | {"simulated": _simulated(plan), "timeline": _plain(timeline)},
        outline=[_plain(node) for node in plan.outline],
        sample_rows=sampled,
        sample_tokens=observations.tokens[sampled],
        sample_finished=observations.finished[sampled],
        length_source=plan.lengths.source,
        subtree=plan.subtree,
    )
    job.save_plan(record, plan.schedule)
    return plan


def _make_plan(
    prompts: Prompts,
    tree: Tree,
    options: PlanOptions,
    *,
    policy: Policy,
    observations: Observations | None = None,
) -> Plan:
    return make_plan(
        prompts,
        policy=policy,
        hardware=options.hardware,
        model=options.model,
        observations=observations,
        tree=tree,
        seed=options.seed,
        mode=options.mode,
    )


def _guarded_plan(
    prompts: Prompts,
    tree: Tree,
    options: PlanOptions,
    observations: Observations,
    engine: EngineModel,
    clock: "_PlanClock",
) -> Plan:
    from blend.core.planning.guard import guarded_plan  # numba is slow to import

    clock.limit_s = max(clock.limit_s, CHOOSE_S)
    return guarded_plan(
        prompts,
        tree,
        engine,
        observations=observations,
        seed=options.seed,
        draws=DRAWS,
        wanted=clock.left,
    )


def _with_outlook(
    plan: Plan,
    prompts: Prompts,
    tree: Tree,
    observations: Observations,
    engine: EngineModel,
    clock: "_PlanClock",
) -> Plan:
    """Return the plan with what simulated runs of it come to, where there is time for them."""
    answered = observations.finished & ~np.isnan(observations.tokens)
    if clock.limit_s < CHOOSE_S or not clock.left() or answered.all():
        return plan
    if not _compiled_in(clock):
        return plan
    from blend.core.planning.guard import outlook_of

    outlook = outlook_of(
        plan,
        prompts,
        tree,
        engine,
        observations=observations,
        draws=DRAWS,
        wanted=clock.left,
    )
    return replace(plan, outlook=outlook)


def _compiled_in(clock: "_PlanClock") -> bool:
    """Tell whether the kernels are compiled already, or the time allows for it."""
    from blend.core.kernels.compiled import kept  # numba is slow to import

    return clock.limit_s >= COMPILE_S or kept("loop.run_in_order")


def _plan_s(
    prompts: Prompts,
    tree: Tree,
    options: PlanOptions,
    observations: Observations,
    engine: EngineModel,
) -> float:
    """Return the seconds that planning may take: as asked, or a small part of the fastest run."""
    if options.plan_s is not None:
        return options.plan_s
    work = work_of(
        tree,
        np.rint(estimate(tree, prompts, observations).expected).astype(np.int64),
        hardware=engine.hardware,
        model=engine.model,
        sequences=prompts.sequences.astype(np.int64),
        rows=~(observations.finished & ~np.isnan(observations.tokens)),
    )
    return min(PLAN_SHARE * bound_s(work, engine), SIMULATE_S)


class _PlanClock:
    """Says whether another simulated run, as long as the last, still ends in time."""

    def __init__(self, limit_s: float, *, spent_s: float):
        self.limit_s = limit_s
        self._started_s = time.monotonic() - spent_s
        self._asked_s: float | None = None

    def left(self) -> bool:
        """Tell whether there is time for another run."""
        now_s = time.monotonic()
        last_s = 0.0 if self._asked_s is None else now_s - self._asked_s
        self._asked_s = now_s
        return now_s + last_s - self._started_s < self.limit_s


def _simulated(plan: Plan) -> dict[str, object] | None:
    """Return what simulated runs of a plan came to, as JSON values; docs/simulate.md explains."""
    found = plan.outlook
    if found is None or not found.candidates[0].seconds:
        return None
    return {
        "draws": found.draws,
        "requests": found.rows,
        "prompt_tokens": found.prompt_tokens,
        "output_tokens": found.output_tokens,
        "best_sharing": found.best_sharing,
        "cut_answers": found.cut_answers,
        "kv_tokens": found.engine.capacity.kv_tokens,
        "mode": found.engine.mode,
        "bound_s": found.bound_s,
        "practical_optimum_s": found.optimum_s,
        "policies": found.described(),
    }


def _plain(record: object) -> Any:
    """Return a record as JSON values."""
    return orjson.loads(orjson.dumps(record, option=orjson.OPT_SERIALIZE_NUMPY))


def run_rows(
    job: Job, schedule: Schedule, engine: Engine, context: RunContext
) -> Mapping[int, int]:
    """Run the rows of *schedule*, which must have no result, and save what comes back.

    Returns the output tokens that each dropped row had when the run was cut. Every result that
    arrived is in the job when this returns or raises. Raises EngineDiedError.
    """
    job.release()
    sizes = job.sizes()
    scanner = open_scanner(
        schedule,
        prompt_tokens=sizes.prompt_tokens,
        sequences=sizes.sequences,
        capacity=engine.capacity,
    )
    with (
        _opened_run(job, context) as run,
        Timeline(job, run) as timeline,
        Recorder(job, run, clock=time.monotonic) as recorder,
    ):

        def take(report: StepReport) -> None:
            recorder.add(report.completions)
            timeline.add(report)
            context.on_report(report)

        reports = executor.run(
            scanner,
            job.request,
            engine,
            on_admit=lambda rows: job.start_rows(run, rows),
            stopping=context.stopping,
        )
        for report in reports:
            take(report)
            if context.cut():
                aborted = engine.abort()
                take(aborted.report)
                return aborted.tokens
    return {}


@contextmanager
def _opened_run(job: Job, context: RunContext) -> Iterator[int]:
    run = job.begin_run(
        purpose=context.purpose, engine=context.engine_name, settings=dict(context.settings)
    )
    outcome: Outcome = "failed"
    try:
        yield run
        outcome = "cut off" if context.cut() else "stopped" if context.stopping() else "finished"
    except EngineDiedError:
        outcome = "engine died"
        raise
    except KeyboardInterrupt:
        outcome = "interrupted"
        raise
    finally:
        job.release()
        job.end_run(run, outcome)
