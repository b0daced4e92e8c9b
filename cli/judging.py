"""The first look at a line: what can be said of it before any model is loaded."""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from blend.core.input.draft import Draft, Rejection
from blend.core.input.parquet import columns_of, is_parquet
from blend.core.input.request_file import opened_lines
from blend.core.input.validate import duplicate, parse_line
from blend.store.seen_ids import SeenIds

logger = logging.getLogger(__name__)

Judged = Draft | Rejection | None
"""What became of a line; None for a blank one."""

Reading = Callable[[str, int | None], AbstractContextManager[Callable[[int], None]]]
"""Opened with a file's name, and how many lines it has where that is known, for as long as it is
read, and told the number of each line."""


@contextmanager
def unwatched(_name: str, _lines: int | None) -> Iterator[Callable[[int], None]]:
    """Read a file with nobody looking."""
    yield lambda _line: None


def judged_lines(
    path: str | Path,
    name: str,
    *,
    max_line_bytes: int,
    seen: SeenIds | None,
    reading: Reading = unwatched,
) -> Iterator[Judged]:
    """Yield the judgement of every line of one file, in flat memory.

    An id that ``seen`` already has is a duplicate, except where it was made up for a line without
    one: such ids are made unique when the line is stored. Without ``seen`` every id may be used
    again. ``name`` is what messages call the file.
    """
    _tell_columns(path, name)
    with opened_lines(path, max_line_bytes=max_line_bytes) as lines, reading(name, None) as show:
        for line in lines:
            show(line.number)
            judged = parse_line(line)
            if seen is not None and isinstance(judged, Draft) and not judged.id_made_up:
                judged = _first_use(judged, name, seen)
            yield judged


def _tell_columns(path: str | Path, name: str) -> None:
    left_out = columns_of(path).left_out if is_parquet(path) else ()
    if left_out:
        logger.warning(f"{name}: columns that no request is made of: {', '.join(left_out)}")


def _first_use(draft: Draft, name: str, seen: SeenIds) -> Draft | Rejection:
    first = seen.add(draft.custom_id, source=name, line=draft.line)
    return draft if first is None else duplicate(draft, f"{first[0]}:{first[1]}")
