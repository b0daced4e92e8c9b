"""How much work are the rows of a run, and how long does the plan expect them to take?

Rows differ a thousandfold, so that how far a run is, is told by their predicted seconds.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from blend.cli.job_plan import plan_of
from blend.cli.job_run import expected_run, foreseen, planned_engine
from blend.core.engines import Capacity, StepReport
from blend.core.planning.choice import Costs, costs_of
from blend.core.planning.hardware import ModelShape, stored_hardware
from blend.core.planning.timeline import TimelineBuckets
from blend.core.schedule import Schedule
from blend.store.job import Job, PlanRecord

# Of a sample, before there is a plan: what an output token takes, in prompt tokens, which share
# their steps.
OUTPUT_TOKEN_WORK = 8.0


@dataclass(frozen=True, slots=True)
class Course:
    """The timeline of a plan, from the moment at which so many rows as now are answered."""

    timeline: TimelineBuckets
    answered_before: int

    def share(self, *, answered: int, work_s: float, sure: float) -> float:
        """Return the share of the time that has passed when the plan is where the run is.

        By the rows *answered*, as far as they are *sure* (0 to 1) to tell it, else by the seconds
        of computing and reading: those are there before anything is answered.
        """
        start_s = self.timeline.seconds_until(self.answered_before)
        by_answers_s = self.timeline.seconds_until(self.answered_before + answered)
        by_work_s = self.timeline.seconds_of(self.timeline.work_s(start_s) + work_s)
        at_s = sure * by_answers_s + (1.0 - sure) * by_work_s
        # The last bucket may end after the last answer.
        whole_s = self.timeline.seconds_until(int(self.timeline.answered[-1])) - start_s
        return min((at_s - start_s) / whole_s, 1.0) if whole_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Workload:
    """The work of the rows of a run, in any unit, and what the plan says of all of it.

    ``by_row``: (rows of the job,), 0 for those that do not run. ``planned_s``: expected for all of
    it, None where that is not known; ``low`` and ``high``: its 10 % and 90 % bounds as factors of
    it. ``input_token`` and ``output_token``: the work of a prompt token computed and of one made,
    on average. ``token_s`` and ``read_s``: of a token computed and one read, to tell the density of
    what ran; ``density`` is that of the whole job, None without a plan. ``course``: how the plan
    foresees the run, None where it foresaw another one. ``expected`` and ``limit``: the output
    tokens of each row, (rows of the job,), as expected and at most; None without a plan.
    ``least_step_s``: of a step that hardly computes or reads.
    """

    by_row: npt.NDArray[np.float64]
    planned_s: float | None = None
    low: float = 1.0
    high: float = 1.0
    input_token: float = 0.0
    output_token: float = 0.0
    density: float | None = None
    token_s: float = 0.0
    read_s: float = 0.0
    course: Course | None = None
    expected: npt.NDArray[np.float64] | None = None
    limit: npt.NDArray[np.float64] | None = None
    least_step_s: float = math.inf

    @property
    def total(self) -> float:
        """The work of all rows together."""
        return float(self.by_row.sum())

    @property
    def rows(self) -> int:
        """How many rows run."""
        return int(np.count_nonzero(self.by_row))

    def density_of(self, report: StepReport) -> tuple[float, float]:
        """Return the seconds of compute and of reading the cache that a report is worth."""
        computed = self.token_s * (report.prefill_tokens + report.decode_tokens)
        return computed, self.read_s * report.kv_tokens * report.steps


def unplanned_work(job: Job, schedule: Schedule) -> Workload:
    """Return the work of rows that run ahead of a plan, counted in tokens."""
    by_row = np.zeros(len(job))
    by_row[schedule.order] = schedule.uncached_tokens + OUTPUT_TOKEN_WORK * schedule.expected_tokens
    return Workload(by_row)


def planned_work(
    job: Job,
    whole: Schedule,
    schedule: Schedule,
    capacity: Capacity,
    *,
    as_planned: bool,
    replicas: int = 1,
) -> Workload:
    """Return the work of *schedule*, rows of *whole*, the job's plan, in predicted seconds.

    ``as_planned``: it runs on the device that the plan is for, in time that a person waits; not so
    a server on a machine of its own, and made-up answers in virtual time.
    """
    plan = plan_of(job)
    costs = costs_in_plan(job, whole, capacity)
    each = costs.shared_out_s
    sizes = job.sizes()
    outputs = whole.expected_tokens * sizes.sequences[whole.order]
    expected = np.zeros(len(job))
    expected[whole.order] = whole.expected_tokens
    by_row = np.zeros(len(job))
    by_row[whole.order] = each
    of_run = np.zeros(len(job))
    of_run[schedule.order] = by_row[schedule.order]
    seconds, low, high = _expected(plan)
    share = float(of_run.sum() / max(each.sum(), 1e-12))
    engine = planned_engine(plan)
    return Workload(
        of_run,
        share * seconds / replicas if as_planned and seconds is not None else None,
        low,
        high,
        _ratio(each.sum() - costs.decode_s.sum(), whole.uncached_tokens.sum()),
        _ratio(costs.decode_s.sum(), outputs.sum()),
        schedule.root_density or None,
        engine.token_s,
        engine.read_s,
        _course(plan, job, whole, schedule),
        expected,
        sizes.max_tokens.astype(np.float64),
        engine.step_s(0, 0, 0),
    )


def _course(plan: PlanRecord, job: Job, whole: Schedule, schedule: Schedule) -> Course | None:
    """Return how a plan foresees the run of *schedule*, where that is all that is left of it."""
    timeline, left = foreseen(plan), whole.only(job.pending())
    if timeline is None or not len(timeline.seconds):
        return None
    answered_before = int(timeline.answered[-1]) - len(left)
    if answered_before < 0 or not np.array_equal(schedule.order, left.order):
        return None
    return Course(timeline, answered_before)


def _ratio(work: float, tokens: float) -> float:
    return float(work / tokens) if tokens else 0.0


def costs_in_plan(job: Job, schedule: Schedule, capacity: Capacity) -> Costs:
    """Return what the rows of *schedule* cost on the device and the model of the job's plan."""
    sizes, settings = job.sizes(), plan_of(job).settings
    return costs_of(
        schedule,
        prompt_tokens=sizes.prompt_tokens,
        sequences=sizes.sequences,
        capacity=capacity,
        hardware=stored_hardware(settings["hardware"]),
        model=ModelShape(**settings["model"]),
    )


def _expected(plan: PlanRecord) -> tuple[float | None, float, float]:
    """Return the seconds that a plan expects of its schedule, and their bounds as factors."""
    if one := expected_run(plan):
        return one["seconds"], one["low_s"] / one["seconds"], one["high_s"] / one["seconds"]
    timeline = foreseen(plan)
    seconds = float(timeline.seconds[-1]) if timeline and len(timeline.seconds) else None
    return seconds, 1.0, 1.0
