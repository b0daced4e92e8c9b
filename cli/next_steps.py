"""Which command takes a job further, and which one helps rows that failed?"""

from collections.abc import Sequence

from blend.cli.wording import counted
from blend.core.causes import may_pass_later, name_of
from blend.core.command_line import command_line
from blend.store.job import Counts, FailureGroup, Job

SHOWN_CAUSES = 3


def next_command(job: Job, counts: Counts) -> str:
    """Return the command that takes the job further."""
    if not counts.total or any(not source.complete for source in job.sources()):
        return command_line("blend", "ingest", "FILE", "--job", job.path)
    if not counts.unfinished:
        return command_line("blend", "export", job.path, "-o", "OUT")
    if job.plan() is None:
        return command_line("blend", "plan", job.path)
    resume = ("--resume",) if job.executed() else ()
    return command_line("blend", "execute", job.path, *resume, *_engine_so_far(job))


def _engine_so_far(job: Job) -> list[str]:
    """Return the options without which the results would be of two engines."""
    ran = next((run for run in reversed(job.runs()) if run.results), None)
    if ran is None or ran.engine == "vllm":
        return []
    address = ran.settings.get("base-url")
    return ["--engine", ran.engine, *(["--base-url", str(address)] if address else [])]


def helping(job: Job, failures: Sequence[FailureGroup]) -> list[str]:
    """Return for each group of failures the command that helps.

    To run them again, where the request may be fine; else to look at what is wrong with one.
    """
    groups = [(group.status_code, group.message) for group in failures]
    return [
        command_line("blend", "retry", job.path, "--reason", name_of(group, groups))
        if may_pass_later(group[0])
        else command_line("blend", "show", job.path, "request", *_argument(example.custom_id))
        for group, example in zip(groups, failures, strict=True)
    ]


def _argument(word: str) -> tuple[str, ...]:
    return ("--", word) if word.startswith("-") else (word,)


def causes(job: Job) -> list[str]:
    """Return the most frequent causes of failures, a line each, with an example."""
    return [
        f"{counted(group.rows)} x {group.status_code}: {group.message} (as {group.custom_id})"
        for group in job.failures()[:SHOWN_CAUSES]
    ]
