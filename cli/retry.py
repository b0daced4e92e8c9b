"""`blend retry`: take results back, so that their requests run again."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
import typer

from blend.cli.console import err, inert, print_json
from blend.cli.next_steps import next_command
from blend.cli.options import JobArgument, JsonOption
from blend.cli.wording import counted
from blend.core.causes import meant
from blend.core.command_line import command_line, shell_word
from blend.core.errors import BlendError
from blend.core.input.limits import higher_limits
from blend.store.job import Job

FailedOption = Annotated[
    bool, typer.Option("--failed", help="Every failed request; the default without --truncated.")
]
TruncatedOption = Annotated[
    bool, typer.Option("--truncated", help="Answers cut at max_tokens; needs --max-tokens.")
]
ReasonOption = Annotated[
    str | None,
    typer.Option(
        metavar="R",
        help="Failures of one status or cause, as `blend status` shows them; a part of it will do.",
    ),
]
MaxTokensOption = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Output tokens that --truncated requests get now."),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Say how many requests it would be; change nothing.")
]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The rows to run again, and the limit each gets; ``kept`` can get no higher limit."""

    asked: str
    rows: npt.NDArray[np.int64]
    max_tokens: npt.NDArray[np.int64] | None = None
    kept: int = 0


def failed(job: Job, reason: str | None) -> Chosen:
    """Choose the failed rows, or those of *reason*; BlendError when no failure has it."""
    groups = [(group.status_code, group.message) for group in job.failures()]
    if reason is None:
        return Chosen("failed", job.failed_rows(groups))
    named = meant(reason, groups)
    if not named:
        raise BlendError(
            f"no request failed for this reason: {reason}",
            hint=f"see `{command_line('blend', 'status', job.path)}`",
        )
    return Chosen(f"reason {reason}", job.failed_rows(named))


def truncated(job: Job, max_tokens: int) -> Chosen:
    """Choose the rows that were cut and can get more; BlendError when none of them can."""
    rows = job.truncated_rows()
    sizes = job.sizes()
    limits = higher_limits(
        max_tokens,
        prompt_tokens=sizes.prompt_tokens[rows],
        context_tokens=job.meta("context_tokens"),
    )
    higher = limits > sizes.max_tokens[rows]
    if len(rows) and not higher.any():
        most = int(sizes.max_tokens[rows].max())
        raise BlendError(
            f"the answers would be cut where they were: they had up to {most:,} tokens, "
            f"`--max-tokens` allows {int(limits.max()):,} in this context",
            hint="ask for more, or ingest into a new job with a larger `--max-model-len`",
        )
    asked = f"truncated, max_tokens {max_tokens}"
    return Chosen(asked, rows[higher], limits[higher], kept=int((~higher).sum()))


def choose(job: Job, reason: str | None, max_tokens: int | None) -> Chosen:
    """Choose what the options of the command ask for; ``max_tokens`` is for the truncated."""
    return failed(job, reason) if max_tokens is None else truncated(job, max_tokens)


def _refuse_contradiction(
    job: str, *, failed: bool, truncated: bool, reason: str | None, max_tokens: int | None
) -> None:
    if truncated and (failed or reason is not None):
        raise BlendError(
            "`--truncated` chooses answers, `--failed` and `--reason` failures",
            hint="run the command once for each",
        )
    if truncated and max_tokens is None:
        raise BlendError(
            "the answers would be cut at the same limit again",
            hint=f"say a higher one: `blend retry {job} --truncated --max-tokens N`",
        )
    if max_tokens is not None and not truncated:
        raise BlendError("`--max-tokens` is for answers that were cut", hint="add `--truncated`")


def _document(job: Job, chosen: Chosen, *, dry_run: bool) -> dict[str, object]:
    counts = job.counts()
    return {
        "matching": chosen.asked,
        "requests": len(chosen.rows),
        "kept": chosen.kept,
        "dry_run": dry_run,
        "pending": counts.unfinished,
        "next": next_command(job, counts),
    }


def _say(job: Job, chosen: Chosen, *, dry_run: bool) -> None:
    if chosen.kept:
        err.print(f"{counted(chosen.kept, 'cut answers')} stay: their limit cannot be higher")
    if not len(chosen.rows):
        cut = chosen.max_tokens is not None
        none = "no answer was cut at its limit" if cut else "no request has failed"
        err.print(f"nothing to run again: {none}")
        return
    said = "would run" if dry_run else "run"
    err.print(f"{counted(len(chosen.rows), 'requests')} {said} again ({inert(chosen.asked)})")
    if dry_run:
        return
    if chosen.max_tokens is not None:
        err.print("their answers are exported until new ones arrive")
    err.print(f"next: `{inert(next_command(job, job.counts()))}`")


def retry_command(
    job_path: JobArgument,
    failed: FailedOption = False,
    truncated: TruncatedOption = False,
    reason: ReasonOption = None,
    max_tokens: MaxTokensOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Take back results, those that failed or were cut, so that their requests run again."""
    _refuse_contradiction(
        shell_word(job_path),
        failed=failed,
        truncated=truncated,
        reason=reason,
        max_tokens=max_tokens,
    )
    with Job.open(job_path) as job:
        if dry_run:
            chosen = choose(job, reason, max_tokens)
        else:
            with job.lock("retry"):
                chosen = choose(job, reason, max_tokens)
                if len(chosen.rows):
                    job.retry(chosen.rows, asked=chosen.asked, max_tokens=chosen.max_tokens)
        if as_json:
            print_json(_document(job, chosen, dry_run=dry_run))
        else:
            _say(job, chosen, dry_run=dry_run)
