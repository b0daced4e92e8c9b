"""Read the rows of a Parquet file as lines of a request file, in flat memory.

A table with a column ``body`` holds full requests: ``custom_id``, ``method``, ``url`` and a body
that is JSON text or a struct. Any other one holds short requests, whose fields are its columns: a
``prompt`` or ``messages``, and the fields of a chat or a completion that have columns of their
name. A null, or a NaN, is a member that is not there: a table has the same members in all rows.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from blend.core.errors import BlendError
from blend.core.input.fields import SHORT_FIELDS
from blend.core.input.lines import MAX_LINE_BYTES, RawLine

_FULL = ("custom_id", "method", "url", "body")
_SHORT = {"custom_id", "messages", "prompt", *SHORT_FIELDS}
_ROWS_AT_ONCE = 256
_BUFFER_BYTES = 1 << 20
# What the errors of pyarrow are derived from.
_OF_PYARROW = (OSError, ValueError, NotImplementedError)


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The columns of a table that requests are made of, each with its number from 1 in the file."""

    taken: Mapping[str, int]
    left_out: Sequence[str]


def is_parquet(path: Path | str) -> bool:
    """Tell whether a file is called a Parquet file."""
    return str(path).lower().endswith(".parquet")


def require_pyarrow() -> None:
    """Raise BlendError where Parquet can be neither read nor written."""
    try:
        import pyarrow.parquet  # noqa: F401 - slow to import, and not everybody has it
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "pyarrow":
            raise
        raise BlendError(
            "Parquet needs pyarrow", hint="`pip install 'blend-batch[parquet]'`"
        ) from None


def columns_of(path: Path | str) -> TableColumns:
    """Return which columns of a Parquet file requests are made of; BlendError where none can be."""
    with _opened(path) as file:
        return _columns(file.schema_arrow.names, path)


def open_rows(
    path: Path | str, *, start_row: int = 0, max_line_bytes: int = MAX_LINE_BYTES
) -> Generator[RawLine]:
    """Yield the rows that follow the first ``start_row`` ones, each as a line with its columns.

    ``end_offset`` is the number of rows up to there. Raises BlendError for what is no whole Parquet
    file, and for a table without requests.
    """
    with _opened(path) as file:
        columns = _columns(file.schema_arrow.names, path)
        before, groups = _groups_from(file, start_row)
        for number, row in enumerate(_rows(file, groups, list(columns.taken), path), before + 1):
            if number > start_row:
                yield _line(row, number, columns.taken, max_line_bytes)


def _rows(
    file: Any, groups: list[int], names: list[str], path: Path | str
) -> Iterator[dict[str, Any]]:
    try:
        # Group by group, so that no batch loses rows to the damage of the group after them.
        for group in groups:
            for batch in file.iter_batches(_ROWS_AT_ONCE, [group], names, use_threads=False):
                yield from batch.to_pylist()
    except _OF_PYARROW as error:
        raise _damaged(path, error) from None


def _groups_from(file: Any, start_row: int) -> tuple[int, list[int]]:
    """Return the row group that a row is in and those after it, and how many rows come before."""
    before, group, groups = 0, 0, file.metadata.num_row_groups
    while group < groups and before + file.metadata.row_group(group).num_rows <= start_row:
        before += file.metadata.row_group(group).num_rows
        group += 1
    return before, list(range(group, groups))


def _opened(path: Path | str) -> Any:
    require_pyarrow()
    from pyarrow.parquet import ParquetFile

    try:
        # Column chunks of a row group are read in pieces, not whole.
        return ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False)
    except FileNotFoundError:
        raise BlendError(f"no such file: {path}", hint="check the path") from None
    except _OF_PYARROW as error:
        raise _damaged(path, error) from None


def _damaged(path: Path | str, error: Exception) -> BlendError:
    why = str(error).splitlines()[0] if str(error) else type(error).__name__
    return BlendError(
        f"{path} is truncated, corrupt or no Parquet file: {why}",
        hint="the rows before the damage are valid; make the file again for the rest",
    )


def _columns(names: Sequence[str], path: Path | str) -> TableColumns:
    full = "body" in names
    if not full and not {"prompt", "messages"} & set(names):
        raise BlendError(
            f"{path} has no column `body`, `messages` or `prompt`: it has {', '.join(names)}",
            hint="rename the one with the requests; docs/requests.md says what each holds",
        )
    wanted = _FULL if full else _SHORT
    taken = {name: number for number, name in enumerate(names, 1) if name in wanted}
    return TableColumns(taken, [name for name in names if name not in taken])


def _line(
    row: Mapping[str, Any], number: int, columns: Mapping[str, int], max_line_bytes: int
) -> RawLine:
    document, places = _document(row, columns)
    fits = len(document) <= max_line_bytes
    return RawLine(number, document if fits else None, len(document), number, places)


def _document(
    row: Mapping[str, Any], columns: Mapping[str, int]
) -> tuple[bytes, tuple[tuple[int, int], ...]]:
    """Return a row as a JSON object, and at which byte the value of which column begins."""
    document = b"{"
    places: list[tuple[int, int]] = []
    for name, value in row.items():
        member = _body(value) if name == "body" else _member(name, value)
        if member is None:
            # Text that is no JSON is judged by itself, so that nothing around it mends it.
            return _bytes(value), ((0, columns[name]),)
        if member == b"null" and name != "body":
            continue
        document += (b", " if places else b"") + orjson.dumps(name) + b": "
        places.append((len(document), columns[name]))
        document += member
    return document + b"}", tuple(places)


def _body(value: Any) -> bytes | None:
    """Return a body, or messages, as JSON, text byte for byte; None for text that is none."""
    if not isinstance(value, str | bytes):
        return _dumped(value)
    text = _bytes(value)
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return None if text.strip() else b"null"
    return text


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _member(name: str, value: Any) -> bytes | None:
    return _body(value) if name == "messages" else _dumped(value)


def _dumped(value: Any) -> bytes:
    # What JSON cannot say becomes text, which the rule of its field refuses or takes.
    return orjson.dumps(_present(value), default=_as_text, option=orjson.OPT_NON_STR_KEYS)


def _as_text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _present(value: Any) -> Any:
    """Return a value without the members that are null or NaN; a map is an object."""
    if isinstance(value, dict):
        kept = ((name, _present(one)) for name, one in value.items())
        return {name: one for name, one in kept if one is not None}
    if isinstance(value, list):
        if value and all(isinstance(one, tuple) for one in value):
            return _present(dict(value))
        return [_present(one) for one in value]
    return None if isinstance(value, float) and value != value else value
