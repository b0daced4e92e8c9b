"""What does a job keep of a plan? Its schedule, and a record by the rows of the job.

A plan counts only the rows that it was made of: here they get their numbers in the job.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from blend.cli.job_plan import digests_of
from blend.core.planning.identical import Followers
from blend.core.planning.lengths import Observations
from blend.core.planning.plan import Plan
from blend.core.planning.prompt_lint import PromptLint
from blend.core.planning.timeline import TimelineBuckets
from blend.store.job import Job, PlanRecord


@dataclass(frozen=True, slots=True)
class Planned:
    """What a plan keeps of its job: what it was made of, and how large it was."""

    rows: int
    digests: Mapping[str, object]
    context_tokens: int | None

    @classmethod
    def of(cls, job: Job) -> "Planned":
        """Return what a plan of *job* keeps."""
        return cls(len(job), digests_of(job), job.meta("context_tokens"))


@dataclass(frozen=True, slots=True)
class MadePlan:
    """A plan by the rows of its job, and what the job keeps of it."""

    plan: Plan
    record: PlanRecord

    def save(self, job: Job, followers: Followers | None) -> Plan:
        """Make it the plan of *job*."""
        job.save_plan(self.record, self.plan.schedule, followers)
        return self.plan


def made_plan(
    plan: Plan,
    rows: npt.NDArray[np.int64],
    planned: Planned,
    *,
    observations: Observations,
    fan_out: bool,
    timeline: TimelineBuckets | None,
    lint: PromptLint,
) -> MadePlan:
    """Return *plan*, of *rows* (n,) of the job and made of *observations*, by the job's rows.

    ``fan_out``: whether its followers were left out.
    """
    sampled = np.flatnonzero(observations.sampled)
    length_source, subtree = np.zeros(planned.rows, np.int8), np.zeros(planned.rows, np.int32)
    length_source[rows], subtree[rows] = plan.lengths.source, plan.subtree
    record = PlanRecord(
        policy=plan.schedule.policy,
        settings=_plain(plan.settings) | {"split": _plain(plan.split), "fan_out": fan_out},
        digests=dict(planned.digests),
        predictions=_plain(plan.prediction)
        | {
            "simulated": _simulated(plan),
            "timeline": _plain(timeline),
            "lint": _plain(lint.renumbered(rows)),
        },
        outline=[
            _plain(node) | {"example_row": int(rows[node.example_row])} for node in plan.outline
        ],
        sample_rows=rows[sampled],
        sample_tokens=observations.tokens[sampled],
        sample_finished=observations.finished[sampled],
        length_source=length_source,
        subtree=subtree,
    )
    schedule = plan.schedule.renumbered(rows, total=planned.rows)
    return MadePlan(replace(plan, schedule=schedule), record)


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
