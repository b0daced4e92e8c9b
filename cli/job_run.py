"""How did the run of a job go, beside what its plan foresaw?"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from blend.cli.wording import duration_range
from blend.core.planning.engine_model import EngineModel, engine_model
from blend.core.planning.hardware import ModelShape, stored_hardware
from blend.core.planning.judgement import Against, AnsweredRows, Judgement, judge
from blend.core.planning.timeline import Stretches, TimelineBuckets, measured_timeline
from blend.store.job import Job, PlanRecord, Step


def planned_engine(plan: PlanRecord) -> EngineModel:
    """Return the engine that a plan was made for."""
    settings = plan.settings
    return engine_model(
        stored_hardware(settings["hardware"]),
        ModelShape(**settings["model"]),
        mode=settings.get("mode", "sequential"),
    )


def expected_run(plan: PlanRecord) -> Mapping[str, Any] | None:
    """Return what simulated runs of a plan came to, as `Outlook.described` has it; None for none.

    ``seconds``: the mean over drawn lengths; ``low_s``, ``high_s``: their 10 and 90 % quantiles.
    """
    name = plan.settings.get("candidate") or plan.policy
    simulated = plan.predictions.get("simulated") or {}
    found = (one for one in simulated.get("policies", ()) if one["name"] == name)
    return next((one for one in found if one["seconds"]), None)


def expected_words(run: Mapping[str, Any]) -> str:
    """Return the time of an expected run and its range, for a person."""
    return duration_range(run["seconds"], run["low_s"], run["high_s"])


def foreseen(plan: PlanRecord | None) -> TimelineBuckets | None:
    """Return the timeline that a plan foresees; None where it has none.

    It is of one draw of lengths around their means; where more runs were simulated, it is stretched
    to what they took on the average.
    """
    columns: Mapping[str, Any] | None = plan.predictions.get("timeline") if plan else None
    if plan is None or columns is None:
        return None
    timeline = TimelineBuckets(**{name: np.array(column) for name, column in columns.items()})
    expected = expected_run(plan)
    if expected is None or not len(timeline.seconds):
        return timeline
    stretch = expected["seconds"] / float(timeline.seconds[-1])
    return replace(timeline, seconds=stretch * timeline.seconds)


def measured(job: Job, plan: PlanRecord | None) -> TimelineBuckets | None:
    """Return the timeline of a plan's executions, one after another; None before the first."""
    return None if plan is None else _measured(job, plan, job.executions(plan.created))


def _measured(job: Job, plan: PlanRecord, runs: Sequence[int]) -> TimelineBuckets | None:
    steps: list[Step] = []
    for run in runs:
        before_s = steps[-1].seconds if steps else 0.0
        steps += [one._replace(seconds=before_s + one.seconds) for one in job.steps(run)]
    return measured_timeline(_stretches(steps), planned_engine(plan)) if steps else None


def _stretches(steps: list[Step]) -> Stretches:
    columns = np.array(steps, np.float64).T
    by_name = dict(zip(Step._fields, columns, strict=True))
    whole = {name: by_name[name].astype(np.int64) for name in ("steps", "kv_tokens", "running")}
    computed = by_name["prefill_tokens"] + by_name["decode_tokens"]
    return Stretches(
        by_name["seconds"],
        computed_tokens=computed.astype(np.int64),
        answered=by_name["answered"].astype(np.int64),
        **whole,
    )


def judgement(job: Job) -> Judgement | None:
    """Return how far the job's answers are from its plan; None without a plan or an execution.

    The rows that the plan knew, from its sample or before, are left out.
    """
    plan = job.plan()
    runs = job.executions(plan.created) if plan else []
    if plan is None or not runs:
        return None
    engine, parents = planned_engine(plan), [node["parent"] for node in plan.outline]
    return judge(
        _answered_rows(job, plan),
        parents,
        sharing=plan.predictions["sharing"],
        seconds=_seconds(job, plan, runs),
        hardware=engine.hardware,
        model=engine.model,
    )


def _seconds(job: Job, plan: PlanRecord, runs: Sequence[int]) -> Against | None:
    predicted, actual = foreseen(plan), _measured(job, plan, runs)
    if predicted is None or actual is None or not actual.answered[-1]:
        return None
    return Against(predicted.seconds_until(int(actual.answered[-1])), float(actual.seconds[-1]))


def _answered_rows(job: Job, plan: PlanRecord) -> AnsweredRows:
    found, expected, subtree = job.answered(), job.expected_tokens(), job.subtrees()
    judged = ~np.isnan(expected)
    judged[plan.sample_rows[plan.sample_finished]] = False
    keep = judged[found.rows]
    rows = found.rows[keep]
    sequences = job.sequences()[rows]
    return AnsweredRows(
        found.prompt_tokens[keep],
        found.cached_tokens[keep],
        expected[rows] * sequences,
        found.output_tokens[keep],
        sequences,
        np.zeros(len(rows), np.int32) if subtree is None else subtree[rows],
    )
