"""The lines of a request file, whatever its form: JSON lines, compressed ones, Parquet rows."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from blend.core.input.decompress import decompressed
from blend.core.input.lines import MAX_LINE_BYTES, RawLine, open_lines
from blend.core.input.parquet import is_parquet, open_rows


@contextmanager
def opened_lines(
    path: Path | str,
    *,
    start_offset: int = 0,
    start_line: int = 0,
    max_line_bytes: int = MAX_LINE_BYTES,
) -> Iterator[Iterator[RawLine]]:
    """Open a file at the ``end_offset`` of a line that was read before, or at its beginning.

    Raises BlendError, here and while reading, for what cannot be read.
    """
    if is_parquet(path):
        with closing(open_rows(path, start_row=start_line, max_line_bytes=max_line_bytes)) as rows:
            yield rows
        return
    with decompressed(path) as stream:
        yield open_lines(
            stream, start_offset=start_offset, start_line=start_line, max_line_bytes=max_line_bytes
        )
