"""The first look at a line: what can be said of it before any model is loaded."""

from collections.abc import Iterator
from pathlib import Path

from blend.cli.reading import reading_progress
from blend.core.input.decompress import decompressed
from blend.core.input.draft import Draft, Rejection
from blend.core.input.lines import open_lines
from blend.core.input.validate import duplicate, parse_line
from blend.store.seen_ids import SeenIds

Judged = Draft | Rejection | None
"""What became of a line; None for a blank one."""


def judged_lines(
    path: str | Path, name: str, *, max_line_bytes: int, seen: SeenIds | None
) -> Iterator[Judged]:
    """Yield the judgement of every line of one file, in flat memory, and show how far it is.

    An id that ``seen`` already has is a duplicate, except where it was made up for a line without
    one: such ids are made unique when the line is stored. Without ``seen`` every id may be used
    again. ``name`` is what messages call the file.
    """
    with decompressed(path) as stream, reading_progress(name) as show:
        for line in open_lines(stream, max_line_bytes=max_line_bytes):
            show(line.number)
            judged = parse_line(line)
            if seen is not None and isinstance(judged, Draft) and not judged.id_made_up:
                judged = _first_use(judged, name, seen)
            yield judged


def _first_use(draft: Draft, name: str, seen: SeenIds) -> Draft | Rejection:
    first = seen.add(draft.custom_id, source=name, line=draft.line)
    return draft if first is None else duplicate(draft, f"{first[0]}:{first[1]}")
