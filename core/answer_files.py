"""Write what rows came to into a stream: as JSON lines, as CSV, or as Parquet in row groups.

Memory is that of one group of rows, whatever the size of the job.
"""

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, fields
from typing import Any, BinaryIO, Literal, Protocol, get_args

from blend.core.answers import Answer, answer_of, rejected_answer
from blend.core.completion import Completion
from blend.core.input.draft import Rejection
from blend.core.results import rejected_line, result_line

FileFormat = Literal["jsonl", "parquet", "csv"]

COLUMNS = tuple(one.name for one in fields(Answer))
PARQUET_VERSION = "1"
GROUP_ROWS = 8192
GROUP_BYTES = 16 << 20

_NUMBERS = {"status_code", "prompt_tokens", "completion_tokens", "cached_tokens"}
_PLACES = {"error_line", "error_column"}


class AnswerWriter(Protocol):
    """Takes what rows came to, one after another."""

    def add(self, custom_id: str, completion: Completion) -> None:
        """Write an answered or failed row."""

    def reject(self, source: str, rejection: Rejection) -> None:
        """Write a line that never became a row."""


@contextmanager
def answer_writer(stream: BinaryIO, file_format: FileFormat) -> Iterator[AnswerWriter]:
    """Write to *stream*, which stays open; it holds a whole file when the context ends well."""
    match file_format:
        case "jsonl":
            yield _Lines(stream)
        case "csv":
            with _csv(stream) as table:
                yield table
        case "parquet":
            with _parquet(stream) as table:
                yield table


def format_of(path: str, asked: FileFormat | None = None) -> FileFormat:
    """Return the format of a file: as asked, or by its suffix, JSON lines where that says none."""
    if asked is not None:
        return asked
    suffix = path.rpartition(".")[2].lower()
    return next((known for known in get_args(FileFormat) if known == suffix), "jsonl")


class _Lines:
    """OpenAI batch result lines, bodies byte for byte."""

    def __init__(self, stream: BinaryIO):
        self._stream = stream

    def add(self, custom_id: str, completion: Completion) -> None:
        self._stream.write(result_line(custom_id, completion))

    def reject(self, source: str, rejection: Rejection) -> None:
        self._stream.write(rejected_line(source, rejection))


class _Table:
    """Rows of a table, written a group at a time."""

    def __init__(self, write: Callable[[Sequence[Answer]], None]):
        self._write = write
        self._group: list[Answer] = []
        self._bytes = 0

    def add(self, custom_id: str, completion: Completion) -> None:
        self._take(answer_of(custom_id, completion))

    def reject(self, source: str, rejection: Rejection) -> None:
        self._take(rejected_answer(source, rejection))

    def _take(self, answer: Answer) -> None:
        self._group.append(answer)
        self._bytes += len(answer.body) + len(answer.text or "")
        if len(self._group) == GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the rows that are left."""
        if self._group:
            self._write(self._group)
            self._group, self._bytes = [], 0


@contextmanager
def _csv(stream: BinaryIO) -> Iterator[_Table]:
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
    try:
        # RFC 4180's line ending: with a bare newline, carriage returns in a text stay unquoted.
        writer = csv.writer(text, lineterminator="\r\n")
        writer.writerow(COLUMNS)
        table = _Table(lambda group: writer.writerows(map(astuple, group)))
        yield table
        table.flush()
        text.flush()
    finally:
        text.detach()


@contextmanager
def _parquet(stream: BinaryIO) -> Iterator[_Table]:
    import pyarrow as pa  # slow to import, and not everybody has it
    from pyarrow.parquet import ParquetWriter

    schema = _schema()

    def write(group: Sequence[Answer]) -> None:
        columns = zip(*map(astuple, group), strict=True)
        arrays = [pa.array(one, kind) for one, kind in zip(columns, schema.types, strict=True)]
        writer.write_table(pa.Table.from_arrays(arrays, schema=schema))

    with ParquetWriter(_Sink(stream), schema, compression="zstd") as writer:
        table = _Table(write)
        yield table
        table.flush()


def _schema() -> Any:
    import pyarrow as pa

    kinds = {name: pa.int64() for name in _NUMBERS | _PLACES}
    optional = {name for name in COLUMNS if name not in {"custom_id", "body"}}
    return pa.schema(
        [pa.field(name, kinds.get(name, pa.string()), name in optional) for name in COLUMNS],
        metadata={"blend.answers": PARQUET_VERSION},
    )


class _Sink:
    """A stream that says how far it is, also where it is a pipe, and that others do not close."""

    closed = False

    def __init__(self, stream: BinaryIO):
        self._stream = stream
        self._written = 0

    def write(self, piece: bytes) -> int:
        self._stream.write(piece)
        self._written += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        pass
