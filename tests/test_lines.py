"""Lines read from files of any shape."""

import gzip
import io
import tracemalloc
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from blend.core.errors import BlendError
from blend.core.input.decompress import decompressed
from blend.core.input.lines import open_lines


def texts(content: bytes, **options: int) -> list[bytes | None]:
    return [line.data for line in open_lines(io.BytesIO(content), **options)]


@given(st.lists(st.binary().map(lambda b: b.replace(b"\n", b"\x00"))))
def test_lines_are_what_stands_between_line_feeds(lines: list[bytes]) -> None:
    content = b"".join(line + b"\n" for line in lines)

    expected = [line.removesuffix(b"\r") for line in lines]
    if expected:
        expected[0] = expected[0].removeprefix(b"\xef\xbb\xbf")
    assert texts(content) == expected


@given(
    st.lists(st.sampled_from([b"", b"a", b"bb\r", b"\xef\xbb\xbfc", b"x" * 40])),
    st.integers(1, 20),
)
def test_reading_resumes_at_the_end_offset_of_any_line(lines: list[bytes], cap: int) -> None:
    content = b"\n".join(lines)
    whole = list(open_lines(io.BytesIO(content), max_line_bytes=cap))

    for line in whole:
        rest = open_lines(
            io.BytesIO(content),
            start_offset=line.end_offset,
            start_line=line.number,
            max_line_bytes=cap,
        )
        assert list(rest) == whole[line.number :]


def test_the_last_line_needs_no_line_ending() -> None:
    assert texts(b"a\nb") == [b"a", b"b"]
    assert texts(b"a\nb\n") == [b"a", b"b"]


def test_crlf_and_a_byte_order_mark_are_dropped() -> None:
    assert texts(b"\xef\xbb\xbfa\r\nb\r\n") == [b"a", b"b"]


def test_other_line_separators_are_text() -> None:
    text = '"\u2028\u2029\x85\r\x0b\x0c"'.encode()

    assert texts(text + b"\n") == [text]


def test_blank_lines_are_counted() -> None:
    numbers = [line.number for line in open_lines(io.BytesIO(b"\n\na\n"))]

    assert numbers == [1, 2, 3]


def test_a_line_at_the_cap_is_read_and_one_beyond_is_passed_over_and_measured() -> None:
    content = b"\xef\xbb\xbf" + b"x" * 10 + b"\r\n" + b"x" * 11 + b"\n" + b"y" * 30 + b"\nz"

    lines = list(open_lines(io.BytesIO(content), max_line_bytes=10))

    assert [line.data for line in lines] == [b"x" * 10, None, None, b"z"]
    assert [line.length for line in lines] == [15, 12, 31, 1]
    assert lines[-1].end_offset == len(content)


class Endless(io.RawIOBase):
    """A stream of one byte value that never sees a line feed until its length is reached."""

    def __init__(self, length: int):
        self.left = length

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        count = min(len(buffer), self.left)
        buffer[:count] = b"x" * count
        self.left -= count
        return count


def test_a_line_of_200_mb_does_not_enter_memory() -> None:
    stream = io.BufferedReader(Endless(200_000_000))
    tracemalloc.start()

    (line,) = open_lines(stream, max_line_bytes=1_000_000)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert line.data is None
    assert line.length == 200_000_000
    assert peak_bytes < 8_000_000


CONTENT = b"".join(b'{"n": %d}\n' % n for n in range(50_000))


def write_gz(path: Path, content: bytes) -> Path:
    # Two members, as `cat a.gz b.gz` leaves them.
    path.write_bytes(gzip.compress(content[:1000]) + gzip.compress(content[1000:]))
    return path


def write_zst(path: Path, content: bytes) -> Path:
    compress = zstandard.ZstdCompressor().compress
    path.write_bytes(compress(content[:1000]) + compress(content[1000:]))
    return path


def write_plain(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("name", "write"), [("a.jsonl", write_plain), ("a.gz", write_gz), ("a.zst", write_zst)]
)
def test_a_file_is_read_by_its_suffix_and_resumes_in_the_middle(
    tmp_path: Path, name: str, write: object
) -> None:
    path = write(tmp_path / name, CONTENT)  # type: ignore[operator]
    with decompressed(path) as stream:
        lines = list(open_lines(stream))

    assert b"".join((line.data or b"") + b"\n" for line in lines) == CONTENT
    middle = lines[30_000]
    with decompressed(path) as stream:
        rest = open_lines(stream, start_offset=middle.end_offset, start_line=middle.number)
        assert list(rest) == lines[30_001:]


@pytest.mark.parametrize(("name", "write"), [("a.jsonl.gz", write_gz), ("a.jsonl.zst", write_zst)])
def test_a_truncated_file_gives_what_came_before_and_then_says_so(
    tmp_path: Path, name: str, write: object
) -> None:
    path = write(tmp_path / name, CONTENT)  # type: ignore[operator]
    path.write_bytes(path.read_bytes()[:-30])
    read = []

    with pytest.raises(BlendError, match=name) as raised, decompressed(path) as stream:
        read.extend(line.data for line in open_lines(stream))

    assert "truncated or corrupt" in raised.value.message
    assert read == CONTENT.splitlines()[: len(read)]
    assert len(read) > 100


@pytest.mark.parametrize("name", ["a.gz", "a.zst"])
def test_a_corrupt_file_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"this was never compressed\n" * 10)

    with pytest.raises(BlendError, match=name), decompressed(path) as stream:
        list(open_lines(stream))


@pytest.mark.parametrize("name", ["a.gz", "a.zst", "a.jsonl"])
def test_an_empty_file_has_no_lines(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.touch()
    with decompressed(path) as stream:
        assert list(open_lines(stream)) == []


def test_compressed_content_without_its_suffix_is_refused(tmp_path: Path) -> None:
    path = write_gz(tmp_path / "a.jsonl", CONTENT)

    with pytest.raises(BlendError, match="gzip"), decompressed(path):
        pass


def test_a_missing_file_and_a_directory_are_named(tmp_path: Path) -> None:
    with pytest.raises(BlendError, match="no such file"), decompressed(tmp_path / "absent"):
        pass
    with pytest.raises(BlendError, match="directory"), decompressed(tmp_path):
        pass
