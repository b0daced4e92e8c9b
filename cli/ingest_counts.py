"""How it is told what an ingest did."""

from rich.console import Console

from blend.cli.console import inert, out
from blend.cli.ingesting import IngestCounts
from blend.cli.wording import counted, percent


def print_ingested(counts: IngestCounts, to: Console = out) -> None:
    """Write what an ingest did."""
    to.print(f"accepted: {counted(counts.accepted)}")
    to.print(f"rejected: {counted(len(counts.rejected))}")
    for reason, count in counts.rejected.counts.most_common():
        to.print(f"  {inert(reason)}: {counted(count)}")
    if counts.renamed:
        to.print(f"renamed: {counted(counts.renamed)}")
    share = counts.shared_tokens / max(counts.job_tokens, 1)
    to.print(f"requests in the job: {counted(counts.job_rows)}")
    to.print(f"prompt tokens: {counted(counts.job_tokens)}")
    to.print(f"shared prefix: {counted(counts.shared_tokens)} tokens ({percent(share)})")


def document(counts: IngestCounts) -> dict[str, object]:
    """Return the same for `--json`."""
    return {
        "accepted": counts.accepted,
        "rejected": len(counts.rejected),
        "renamed": counts.renamed,
        "prompt_tokens": counts.tokens,
        "already_ingested": counts.finished,
        "rejections": counts.rejected.summary(),
        "job": {
            "requests": counts.job_rows,
            "prompt_tokens": counts.job_tokens,
            "shared_tokens": counts.shared_tokens,
        },
    }
