"""`blend check`: validate request files without a model."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import typer

from blend.cli.console import counted, inert, out, print_json
from blend.cli.inputs import expand_inputs
from blend.cli.options import JsonOption
from blend.cli.rejections import RejectionTally, print_notes, shown_source
from blend.core.errors import SOME_FAILED
from blend.core.input.decompress import decompressed
from blend.core.input.draft import Draft, Note, Rejection
from blend.core.input.lines import MAX_LINE_BYTES, open_lines
from blend.core.input.validate import duplicate, parse_line
from blend.store.seen_ids import SeenIds

InputsArgument = Annotated[
    list[str],
    typer.Argument(metavar="IN…", help="Request files, globs, or - for stdin; .gz and .zst too."),
]
StrictOption = Annotated[bool, typer.Option("--strict", help="Stop at the first rejected line.")]
MaxLineBytesOption = Annotated[
    int, typer.Option(min=1, help="Reject lines longer than this, in bytes.")
]


@dataclass(slots=True)
class CheckCounts:
    """What the lines of some files turned out to be."""

    accepted: Counter[str] = field(default_factory=Counter)
    rejected: RejectionTally = field(default_factory=RejectionTally)
    notes: Counter[Note] = field(default_factory=Counter)
    blank: int = 0

    def add(self, source: str, judged: Draft | Rejection | None) -> None:
        """Count one line of ``source``."""
        if judged is None:
            self.blank += 1
        elif isinstance(judged, Rejection):
            self.rejected.add(source, judged)
        else:
            self.accepted[judged.endpoint] += 1
            self.notes.update(judged.notes)


def judged_lines(
    source: str, seen: SeenIds, *, max_line_bytes: int = MAX_LINE_BYTES
) -> Iterator[Draft | Rejection | None]:
    """Yield the judgement of every line of one file; None for a blank one.

    An id that ``seen`` already has is a duplicate, except where it was made up for a line without
    one: such ids are made unique when the line is stored.
    """
    with decompressed(source) as stream:
        for line in open_lines(stream, max_line_bytes=max_line_bytes):
            judged = parse_line(line)
            if isinstance(judged, Draft) and not judged.id_made_up:
                first = seen.add(judged.custom_id, source=shown_source(source), line=judged.line)
                if first is not None:
                    judged = duplicate(judged, f"{first[0]}:{first[1]}")
            yield judged


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
            for judged in judged_lines(source, seen, max_line_bytes=max_line_bytes):
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
        _print(counts, json=json)
    if counts.rejected:
        raise typer.Exit(SOME_FAILED)


def _print(counts: CheckCounts, *, json: bool) -> None:
    counts.rejected.print()
    print_notes(counts.notes)
    if json:
        document = {
            "accepted": counts.accepted.total(),
            "rejected": len(counts.rejected),
            "blank": counts.blank,
            "endpoints": dict(counts.accepted),
            "notes": dict(counts.notes),
            "rejections": counts.rejected.summary(),
        }
        print_json(document)
        return
    out.print(f"accepted: {counted(counts.accepted.total())}")
    for endpoint, count in sorted(counts.accepted.items()):
        out.print(f"  {inert(endpoint)}: {counted(count)}")
    out.print(f"rejected: {counted(len(counts.rejected))}")
    for reason, count in counts.rejected.counts.most_common():
        out.print(f"  {inert(reason)}: {counted(count)}")
