"""`blend check`: validate request files without a model."""

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import typer

from blend.cli.advice import advice, lint_document, lint_sample
from blend.cli.console import err, inert, out, print_json
from blend.cli.inputs import expand_inputs
from blend.cli.judging import Judged, judged_lines
from blend.cli.options import JsonOption
from blend.cli.reading import reading_progress
from blend.cli.rejections import RejectionTally, shown_source, tell_notes
from blend.cli.wording import counted
from blend.core.errors import SOME_FAILED
from blend.core.input.draft import Note, Rejection
from blend.core.input.lines import MAX_LINE_BYTES
from blend.core.input.words import PromptSample
from blend.store.seen_ids import SeenIds

InputsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="IN…", help="Request files, globs, or - for stdin; .gz, .zst and .parquet too."
    ),
]
StrictOption = Annotated[bool, typer.Option("--strict", help="Stop at the first rejected line.")]
MaxLineBytesOption = Annotated[
    int, typer.Option(min=1, metavar="BYTES", help="Reject lines longer than this, in bytes.")
]


@dataclass(slots=True)
class CheckCounts:
    """What the lines of some files turned out to be."""

    accepted: Counter[str] = field(default_factory=Counter)
    rejected: RejectionTally = field(default_factory=RejectionTally)
    notes: Counter[Note] = field(default_factory=Counter)
    blank: int = 0
    prompts: PromptSample = field(default_factory=PromptSample)

    @property
    def lines(self) -> int:
        """All lines, the blank ones too."""
        return self.accepted.total() + len(self.rejected) + self.blank

    def add(self, source: str, judged: Judged) -> None:
        """Count one line of ``source``."""
        if judged is None:
            self.blank += 1
        elif isinstance(judged, Rejection):
            self.rejected.add(source, judged)
        else:
            self.accepted[judged.endpoint] += 1
            self.notes.update(judged.notes)
            self.prompts.add(judged)


def check_inputs(
    sources: Sequence[str],
    counts: CheckCounts,
    *,
    strict: bool = False,
    max_line_bytes: int = MAX_LINE_BYTES,
) -> None:
    """Count every line of the files into ``counts``; with ``strict``, up to the first rejection."""
    with SeenIds() as seen:
        for source in sources:
            name = shown_source(source)
            for judged in judged_lines(
                source, name, max_line_bytes=max_line_bytes, seen=seen, reading=reading_progress
            ):
                counts.add(source, judged)
                if strict and counts.rejected:
                    return


def check_command(
    inputs: InputsArgument,
    strict: StrictOption = False,
    max_line_bytes: MaxLineBytesOption = MAX_LINE_BYTES,
    json: JsonOption = False,
) -> None:
    """Validate request files: which lines would be accepted, and why others would not."""
    sources = expand_inputs(inputs)
    counts = CheckCounts()
    try:
        check_inputs(sources, counts, strict=strict, max_line_bytes=max_line_bytes)
    finally:
        # What was found before a damaged file or an interrupt is worth knowing.
        if counts.lines or not sys.exception():
            _print(counts, json=json)
    if not counts.lines:
        err.print(f"no line to check in {inert(', '.join(map(shown_source, sources)))}")
    if counts.rejected:
        raise typer.Exit(SOME_FAILED)


def _print(counts: CheckCounts, *, json: bool) -> None:
    counts.rejected.tell()
    tell_notes(counts.notes)
    found = lint_sample(counts.prompts)
    if json:
        document = {
            "accepted": counts.accepted.total(),
            "rejected": len(counts.rejected),
            "blank": counts.blank,
            "endpoints": dict(counts.accepted),
            "notes": dict(counts.notes),
            "rejections": counts.rejected.summary(),
            "lint": lint_document(found),
        }
        print_json(document)
        return
    out.print(f"accepted: {counted(counts.accepted.total())}")
    for endpoint, count in sorted(counts.accepted.items()):
        out.print(f"  {inert(endpoint)}: {counted(count)}")
    out.print(f"rejected: {counted(len(counts.rejected))}")
    for reason, count in counts.rejected.counts.most_common():
        out.print(f"  {inert(reason)}: {counted(count)}")
    for paragraph in advice(found, unit="word"):
        out.print(f"prompts: {paragraph}")
