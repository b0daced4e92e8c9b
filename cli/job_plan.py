"""Which plan does a job have, and is it still of the rows and the model that the job has now?"""

from blend.cli.job_model import require_rows
from blend.core.command_line import command_line
from blend.core.errors import MISMATCH, BlendError
from blend.core.schedule import Schedule
from blend.store.job import Job, PlanRecord


def plan_of(job: Job) -> PlanRecord:
    """Return the job's plan; BlendError when it has none."""
    plan = job.plan()
    if plan is None:
        raise _no_plan(job)
    return plan


def schedule_of(job: Job) -> Schedule:
    """Return the job's schedule; BlendError when it has none."""
    schedule = job.schedule()
    if schedule is None:
        raise _no_plan(job)
    return schedule


def _no_plan(job: Job) -> BlendError:
    return BlendError(
        "the job has no plan yet", hint=f"`{command_line('blend', 'plan', job.path)}`"
    )


def digests_of(job: Job) -> dict[str, object]:
    """Return what a plan is of: the model with its tokenizer and template, and the rows."""
    return {"model": job.meta("fingerprint"), "number of requests": len(job)}


def planned(job: Job) -> bool:
    """Return whether the job has a plan that still fits."""
    plan = job.plan()
    return plan is not None and plan.digests == digests_of(job)


def fitting_schedule(job: Job) -> Schedule:
    """Return the job's schedule; BlendError when there is none or it does not fit any more."""
    require_rows(job)
    made_of, now = plan_of(job).digests, digests_of(job)
    for what in now:
        if made_of.get(what) != now[what]:
            raise BlendError(
                f"the plan does not fit: its {what} is {made_of.get(what)}, now {now[what]}",
                hint=f"`{command_line('blend', 'plan', job.path)}` again",
                exit_code=MISMATCH,
            )
    return schedule_of(job)
