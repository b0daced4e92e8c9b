"""Open a request file, plain or compressed, as one stream of bytes.

A compressed file that is cut short or damaged gives what came before the damage, then raises.
"""

import gzip
import io
import sys
import zlib
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from blend.core.errors import BlendError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_CHUNK_BYTES = 1 << 18
# zstd can blow one compressed kilobyte up to tens of megabytes; larger pieces would not be flat.
_ZSTD_PIECE_BYTES = 1 << 10
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_PARQUET = b"PAR1"


@contextmanager
def decompressed(path: Path | str) -> Iterator[BinaryIO]:
    """Open ``path`` (``-``: stdin) for reading, decompressed by its suffix ``.gz`` or ``.zst``.

    Plain files can be seeked; the others are read from front to back. Raises BlendError when the
    file cannot be opened and, while reading, when its compressed content is damaged.
    """
    if str(path) == "-":
        yield _refusing_compression(sys.stdin.buffer, "stdin")
        return
    path = Path(path)
    with _opened(path) as file:
        match path.suffix:
            case ".gz":
                chunks = _gunzipped(file, path)
            case ".zst":
                chunks = _unzstd(file, path)
            case _:
                yield _refusing_compression(file, str(path))
                return
        with closing(chunks):
            yield io.BufferedReader(_Chunks(chunks), _CHUNK_BYTES)


def _opened(path: Path) -> io.BufferedReader:
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise BlendError(f"no such file: {path}", hint="check the path") from None
    except IsADirectoryError:
        hint = f"name the files in it: `{path}/*.jsonl`"
        raise BlendError(f"not a file but a directory: {path}", hint=hint) from None
    except OSError as error:
        raise BlendError(
            f"cannot read {path}: {error.strerror}", hint="check its permissions and its disk"
        ) from None


def _refusing_compression(file: BinaryIO, name: str) -> BinaryIO:
    head = file.peek(4)[:4] if isinstance(file, io.BufferedReader) else b""
    for magic, kind in _MAGIC.items():
        if head.startswith(magic):
            hint = "give the file the suffix `.gz` or `.zst`, or decompress it first"
            raise BlendError(f"{name} is compressed with {kind}", hint=hint)
    if head == _PARQUET:
        hint = "give it by its path, with the suffix `.parquet`: such a file is read from its end"
        raise BlendError(f"{name} is a Parquet file", hint=hint)
    return file


def _gunzipped(file: BinaryIO, path: Path) -> Generator[bytes]:
    try:
        with gzip.GzipFile(fileobj=file) as stream:
            while chunk := stream.read1(_CHUNK_BYTES):
                yield chunk
    except EOFError:
        raise _damaged(path, "it ends in the middle") from None
    except (zlib.error, gzip.BadGzipFile) as error:
        raise _damaged(path, str(error)) from None


def _unzstd(file: BinaryIO, path: Path) -> Generator[bytes]:
    import zstandard

    decompressor = zstandard.ZstdDecompressor()
    frame = decompressor.decompressobj()
    fresh = True
    try:
        while piece := file.read(_ZSTD_PIECE_BYTES):
            while piece:
                yield frame.decompress(piece)
                piece, fresh = frame.unused_data, frame.eof
                if frame.eof:
                    frame = decompressor.decompressobj()
    except zstandard.ZstdError as error:
        raise _damaged(path, str(error)) from None
    if not fresh:
        raise _damaged(path, "it ends in the middle")


def _damaged(path: Path, why: str) -> BlendError:
    hint = "the lines before the damage are valid; make the file again for the rest"
    return BlendError(f"{path} is truncated or corrupt: {why}", hint=hint)


class _Chunks(io.RawIOBase):
    """A raw stream over chunks of bytes, empty ones allowed."""

    def __init__(self, chunks: Iterator[bytes]):
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        target = memoryview(buffer).cast("B")
        count = min(len(target), len(self._rest))
        target[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
