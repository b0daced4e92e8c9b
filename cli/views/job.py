"""The job at a glance: where it comes from, what it costs, how far it is."""

from collections.abc import Iterable, Mapping
from typing import Any

from blend.cli.advice import plan_advice
from blend.cli.console import inert, out
from blend.cli.job_run import expected_run, expected_words, foreseen, judgement
from blend.cli.judged_run import judgement_lines
from blend.cli.status import (
    next_step,
    rows_line,
    state,
    status_document,
    tokens_line,
)
from blend.cli.views.outlook import policies_table
from blend.cli.ways import way_in_words, way_of
from blend.cli.wording import counted, duration, percent, significant
from blend.store.job import Counts, Job, PlanRecord


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
            # `show JOB timeline` has that.
            "predictions": {k: v for k, v in plan.predictions.items() if k != "timeline"},
            "sampled": len(plan.sample_rows),
        }
        if plan
        else None,
    }


def draw(job: Job) -> None:
    """Print the job on one screen."""
    counts = job.counts()
    out.print(f"[bold]{inert(str(job.path))}[/]: {state(job, counts)}")
    _lines("model", [inert(str(job.meta("model")))])
    for source in job.sources():
        done = "" if source.complete else " (not whole)"
        _lines("from", [f"{inert(source.path)}, {counted(source.line)} lines{done}"])
    _lines("requests", [rows_line(counts)])
    _lines("prompts", [f"{counted(counts.total_prompt_tokens)} tokens"])
    plan = job.plan()
    if plan:
        _draw_plan(plan)
    if counts.prompt_tokens:
        _lines("results", [tokens_line(counts)])
    _draw_runs(job)
    for paragraph in plan_advice(plan) if plan else ():
        _lines("prompts:", paragraph.split("\n"))
    if judged := judgement(job):
        _lines("judged", judgement_lines(job, judged))
    out.print(inert(next_step(job, counts)))
    if more := _more(plan, counts):
        out.print(f"views: {', '.join(more)}")


def _more(plan: PlanRecord | None, counts: Counts) -> list[str]:
    """Return the views that have something to show."""
    views = ["schedule", "tree", "timeline", "request CUSTOM_ID"] if plan else []
    views += ["rejected"] if counts.rejected else []
    return views + (["failures"] if counts.failed else [])


def _lines(label: str, lines: Iterable[str]) -> None:
    for line in lines:
        out.print(f"{label:<10}{line}")
        label = ""


def _draw_plan(plan: PlanRecord) -> None:
    expected = plan.predictions
    sampled = (
        f", {counted(len(plan.sample_rows))} requests sampled" if len(plan.sample_rows) else ""
    )
    _lines("plan", [f"{plan.settings.get('candidate') or plan.policy}{sampled}"])
    if way := way_of(plan):
        _lines("engine", [way_in_words(way)])
    _lines(
        "sharing",
        [
            f"{percent(expected['sharing'])} of the prompt tokens, "
            f"of {percent(expected['best_sharing'])} possible"
        ],
    )
    _lines(
        "density",
        [
            f"{significant(expected['density'])} "
            f"(compute {duration(expected['comp_s'])}, memory {duration(expected['mem_s'])})"
        ],
    )
    _lines("answers", [f"{counted(expected['output_tokens'])} tokens expected"])
    _lines("expected", [_times(plan)])
    if expected.get("simulated"):
        _draw_simulated(expected["simulated"])


def _times(plan: PlanRecord) -> str:
    expected, timeline = plan.predictions, foreseen(plan)
    device = plan.settings["hardware"]["name"]
    if one := expected_run(plan):
        return f"{expected_words(one)} after the sample on {device}"
    least = [duration(expected["overlapped_s"]), duration(expected["sequential_s"])]
    bounds = " to ".join(dict.fromkeys(least))
    if timeline is None or not len(timeline.seconds):
        return f"{bounds} on {device}"
    foreseen_s = float(timeline.seconds[-1])
    return f"{duration(foreseen_s)} after the sample on {device}, {bounds} at best"


def _draw_simulated(found: Mapping[str, Any]) -> None:
    out.print(
        f"simulated {counted(found['requests'])} requests, {counted(found['draws'])} draws of "
        f"lengths; no order takes less than {duration(found['bound_s'])}"
    )
    out.print(policies_table(found["policies"], draws=found["draws"]))


def _draw_runs(job: Job) -> None:
    for run in job.runs():
        lasted = duration((run.finished or run.heartbeat) - run.started)
        line = f"{counted(run.results, 'results')} on {inert(run.engine)} in {lasted}"
        _lines(run.purpose, [f"{line}: {run.outcome or 'unfinished'}"])
