"""`blend execute`: run what the plan has scheduled and has no result yet."""

from typing import Annotated

import typer

from blend.cli.api import Batch
from blend.cli.console import err, inert
from blend.cli.display import ProgressStyle, display_options, shown
from blend.cli.engine_options import EngineOptions
from blend.cli.interrupt import drain_on_interrupt
from blend.cli.limits import RunLimits
from blend.cli.next_steps import causes, next_command
from blend.cli.options import JobArgument, engine_options, takes
from blend.cli.run_limits import run_limits
from blend.cli.status import copied_line
from blend.cli.wording import counted, percent
from blend.core.errors import RESUMABLE, SOME_FAILED
from blend.store.job import Counts, Job

ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Go on with a job that was executed before.")
]


def exit_code_of(job: Job) -> int:
    """Say what is left to do and return the exit code for it."""
    counts = job.counts()
    if counts.unfinished:
        left = counted(counts.unfinished, "requests left")
        err.print(f"{left}; go on with `{inert(next_command(job, counts))}`")
        return RESUMABLE
    said = _all_done(counts)
    if counts.copied:
        said += f"; {copied_line(counts)}"
    if counts.cached_tokens:
        share = percent(counts.cached_tokens / counts.prompt_tokens)
        said += f"; {share} of the prompt tokens came from the cache"
    err.print(said)
    if counts.failed == counts.total:
        for cause in causes(job):
            err.print(inert(cause))
    return SOME_FAILED if counts.failed else 0


def _all_done(counts: Counts) -> str:
    if counts.total == 1:
        return "the only request has failed" if counts.failed else "the only request has a result"
    failed = f", {counted(counts.failed)} of them failed" if counts.failed else ""
    return f"all {counted(counts.total)} requests have results{failed}"


@takes(limits=run_limits, options=engine_options, progress=display_options)
def execute_command(
    job_path: JobArgument,
    *,
    limits: RunLimits,
    options: EngineOptions,
    progress: ProgressStyle,
    resume: ResumeOption = False,
) -> None:
    """Run every request that has no result yet, in the order of the plan."""
    Batch(job_path).execute(
        options, limits, resume=resume, watch=shown(progress), interrupt=drain_on_interrupt()
    )
    with Job.open(job_path) as job:
        raise typer.Exit(exit_code_of(job))
