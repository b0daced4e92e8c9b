"""`blend status`: how far a job is, and what went wrong in it."""

import os
import time
from dataclasses import asdict

from blend.cli.console import inert, out, print_json
from blend.cli.job_run import judgement
from blend.cli.judged_run import judgement_document, judgement_lines
from blend.cli.next_steps import helping, next_command
from blend.cli.options import JobArgument, JsonOption
from blend.cli.views.failures import causes_table
from blend.cli.views.rejected import reasons_table
from blend.cli.wording import counted, duration, percent
from blend.core.command_line import command_line
from blend.core.utf8 import as_utf8
from blend.store.job import Counts, Job


def status_command(job_path: JobArgument, as_json: JsonOption = False) -> None:
    """Say how far a job is: rows answered, failed and left, rejected lines, failures by cause."""
    with Job.open(job_path) as job:
        if as_json:
            print_json(status_document(job))
            return
        counts = job.counts()
        out.print(f"{inert(str(job_path))}: {state(job, counts)}")
        if counts.unfinished and (at_work := sign_of_life(job)):
            out.print(inert(at_work))
        out.print(rows_line(counts))
        if counts.prompt_tokens:
            out.print(tokens_line(counts))
        _print_failures(job)
        if judged := judgement(job):
            out.print("against the plan:")
            for line in judgement_lines(job, judged):
                out.print(f"  {line}")
        out.print(inert(next_step(job, counts)))


def status_document(job: Job) -> dict[str, object]:
    """Return the job as OpenAI's batch object, with its failures grouped by cause."""
    counts, failures = job.counts(), job.failures()
    return {
        "object": "batch",
        "id": as_utf8(job.path.name),
        "status": state(job, counts),
        "request_counts": {
            "total": counts.total,
            "completed": counts.answered,
            "failed": counts.failed,
        },
        "pending": counts.pending,
        "running": counts.running,
        "truncated": counts.truncated,
        "answered_before": counts.answered_before,
        "copied": counts.copied,
        "copied_from": counts.copied_from,
        "rejected": counts.rejected,
        "usage": {
            "prompt_tokens": counts.prompt_tokens,
            "completion_tokens": counts.output_tokens,
            "total_tokens": counts.prompt_tokens + counts.output_tokens,
            "prompt_tokens_details": {"cached_tokens": counts.cached_tokens},
        },
        "failures": [
            group._asdict() | {"command": command}
            for group, command in zip(failures, helping(job, failures), strict=True)
        ],
        "rejections": [group._asdict() for group in job.rejections_by_reason()],
        "runs": [asdict(run) for run in job.runs()],
        "judgement": judgement_document(judgement(job)),
    }


def state(job: Job, counts: Counts) -> str:
    """Return the status that OpenAI's batch object would have."""
    if not counts.total:
        return "failed" if counts.rejected else "validating"
    if not counts.unfinished:
        return "completed"
    return "in_progress" if job.plan() or job.executed() else "validating"


def sign_of_life(job: Job) -> str | None:
    """Return who works on the job and when it was last heard of; None when no run is open."""
    run = next((run for run in reversed(job.runs()) if run.outcome is None), None)
    if run is None:
        return None
    heard = duration(max(time.time() - run.heartbeat, 0))
    said = f"{run.purpose}, process {run.pid} on {run.host}: last sign of life {heard} ago"
    # Of a process on another machine it is not known.
    gone = run.host == os.uname().nodename and job.holder() is None
    return f"{said}; it is not at work any more" if gone else said


def next_step(job: Job, counts: Counts) -> str:
    """Return what to do next, or where the results are."""
    if job.holder() is not None:
        return f"at work; again: `{command_line('blend', 'status', job.path)}`"
    outputs = job.meta("outputs")
    if outputs and not counts.unfinished:
        report = command_line("blend", "report", job.path)
        return f"results in `{outputs[0]}`; what came of the plan: `{report}`"
    return f"next: `{next_command(job, counts)}`"


def rows_line(counts: Counts) -> str:
    """Return how many rows are where."""
    parts = [f"{counted(counts.answered)} of {counted(counts.total)} answered"]
    for number, what in (
        (counts.failed, "failed"),
        (counts.running, "running"),
        (counts.pending, "pending"),
        (counts.truncated, "cut at max_tokens"),
        (counts.answered_before, "with an answer from before a retry"),
    ):
        if number:
            parts.append(f"{counted(number)} {what}")
    if counts.rejected:
        parts.append(counted(counts.rejected, "lines rejected"))
    if counts.copied:
        parts.append(copied_line(counts))
    return ", ".join(parts)


def copied_line(counts: Counts) -> str:
    """Return how many rows got the answers of identical requests."""
    return (
        f"{counted(counts.copied, 'rows')} answered from "
        f"{counted(counts.copied_from, 'identical requests')}"
    )


def tokens_line(counts: Counts) -> str:
    """Return the tokens that the results took."""
    return (
        f"{counted(counts.prompt_tokens)} prompt tokens "
        f"({percent(counts.cached_tokens / counts.prompt_tokens)} from the cache), "
        f"{counted(counts.output_tokens)} output tokens"
    )


def _print_failures(job: Job) -> None:
    failures = job.failures()
    if failures:
        out.print(causes_table(failures))
        for group, command in zip(failures, helping(job, failures), strict=True):
            out.print(f"{counted(group.rows, 'failed')}: `{inert(command)}`")
    rejections = job.rejections_by_reason()
    if rejections:
        out.print(reasons_table(rejections))
