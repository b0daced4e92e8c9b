"""The job at a glance: where it comes from, what it costs, how far it is."""

from collections.abc import Mapping
from typing import Any

from blend.cli.console import counted, duration, inert, out, percent, significant
from blend.cli.status import (
    next_step,
    rows_line,
    state,
    status_document,
    tokens_line,
)
from blend.cli.views.outlook import policies_table
from blend.store.job import Job, PlanRecord


def document(job: Job) -> dict[str, object]:
    """Return the job's status, model, sources and plan as JSON values."""
    plan = job.plan()
    return status_document(job) | {
        "model": job.meta("model"),
        "context_tokens": job.meta("context_tokens"),
        "sources": [
            {"path": s.path, "size_bytes": s.size, "lines": s.line, "complete": s.complete}
            for s in job.sources()
        ],
        "plan": {
            "policy": plan.policy,
            "settings": plan.settings,
            "predictions": plan.predictions,
            "sampled": len(plan.sample_rows),
        }
        if plan
        else None,
    }


def draw(job: Job) -> None:
    """Print the job in a dozen lines."""
    counts = job.counts()
    out.print(f"[bold]{inert(str(job.path))}[/]: {state(job, counts)}")
    out.print(f"model     {inert(str(job.meta('model')))}")
    for source in job.sources():
        done = "" if source.complete else " (not whole)"
        out.print(f"from      {inert(source.path)}, {counted(source.line)} lines{done}")
    out.print(f"requests  {rows_line(counts)}")
    out.print(f"prompts   {counted(counts.total_prompt_tokens)} tokens")
    plan = job.plan()
    if plan:
        _draw_plan(plan)
    if counts.prompt_tokens:
        out.print(f"results   {tokens_line(counts)}")
    _draw_runs(job)
    out.print(inert(next_step(job, counts)))


def _draw_plan(plan: PlanRecord) -> None:
    expected = plan.predictions
    sampled = (
        f", {counted(len(plan.sample_rows))} requests sampled" if len(plan.sample_rows) else ""
    )
    out.print(f"plan      {plan.policy}{sampled}")
    out.print(
        f"sharing   {percent(expected['sharing'])} of the prompt tokens, "
        f"of {percent(expected['best_sharing'])} possible"
    )
    out.print(
        f"density   {significant(expected['density'])} "
        f"(compute {duration(expected['comp_s'])}, memory {duration(expected['mem_s'])})"
    )
    out.print(f"answers   {counted(expected['output_tokens'])} tokens expected")
    out.print(
        f"expected  {duration(expected['overlapped_s'])} to "
        f"{duration(expected['sequential_s'])} on {plan.settings['hardware']['name']}"
    )
    if expected.get("simulated"):
        _draw_simulated(expected["simulated"])


def _draw_simulated(found: Mapping[str, Any]) -> None:
    out.print(
        f"simulated {counted(found['requests'])} requests, {counted(found['draws'])} draws of "
        f"lengths; no order takes less than {duration(found['bound_s'])}"
    )
    out.print(policies_table(found["policies"], draws=found["draws"]))


def _draw_runs(job: Job) -> None:
    for run in job.runs():
        lasted = duration((run.finished or run.heartbeat) - run.started)
        out.print(
            f"{run.purpose:<9} {counted(run.results)} results on {inert(run.engine)} in {lasted}: "
            f"{run.outcome or 'unfinished'}"
        )
