r"""Read JSONL one line at a time, in flat memory.

Lines end at ``\n`` alone: U+2028 and a lone carriage return are text. A line beyond the cap is
passed over in pieces and told by its length, so a file of any shape is read in flat memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

MAX_LINE_BYTES = 64 << 20

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class RawLine:
    """One line of a file without its line ending.

    ``number`` counts from 1. ``data`` is None when the line is longer than the cap; ``length`` is
    its bytes in the stream, line ending included. ``end_offset`` is where the next line begins in
    the uncompressed stream: reading resumes there. Of the row of a table, ``columns`` say at which
    byte of ``data`` which column of the table begins, numbered from 1.
    """

    number: int
    data: bytes | None
    length: int
    end_offset: int
    columns: tuple[tuple[int, int], ...] = ()


def open_lines(
    stream: BinaryIO,
    *,
    start_offset: int = 0,
    start_line: int = 0,
    max_line_bytes: int = MAX_LINE_BYTES,
) -> Iterator[RawLine]:
    """Yield the lines of ``stream`` that follow the first ``start_line`` ones.

    ``start_offset`` is the ``end_offset`` of the last line that was read before. The byte-order
    mark of the first line and a carriage return before the line ending are dropped; the last line
    needs no line ending.
    """
    _advance(stream, start_offset)
    offset, number = start_offset, start_line
    # Room for the byte-order mark and the line ending, which do not count against the cap.
    limit = max_line_bytes + len(_BYTE_ORDER_MARK) + len(b"\r\n")
    while line := stream.readline(limit):
        length = len(line)
        if length == limit and not line.endswith(b"\n"):
            length += _skip_to_line_end(stream)
        offset += length
        number += 1
        text = _without_marks(line, first=offset == length)
        fits = length == len(line) and len(text) <= max_line_bytes
        yield RawLine(number, text if fits else None, length, offset)


def _without_marks(line: bytes, *, first: bool) -> bytes:
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    return line.removeprefix(_BYTE_ORDER_MARK) if first else line


def _skip_to_line_end(stream: BinaryIO) -> int:
    skipped = 0
    while piece := stream.readline(_CHUNK_BYTES):
        skipped += len(piece)
        if piece.endswith(b"\n"):
            break
    return skipped


def _advance(stream: BinaryIO, offset: int) -> None:
    if offset and stream.seekable():
        stream.seek(offset)
        return
    while offset > 0:
        piece = stream.read(min(offset, _CHUNK_BYTES))
        if not piece:
            return
        offset -= len(piece)
