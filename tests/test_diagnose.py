"""Lines that are no JSON object: each rejected with byte column and reason."""

import json

import pytest

from blend.core.input.draft import Rejection
from blend.core.input.lines import RawLine
from blend.core.input.validate import parse_line
from tests.request_lines import judged, outer, rejected


@pytest.mark.parametrize(
    ("line", "reason", "column"),
    [
        (b'{"a": 1', "not JSON", 8),
        (b'{"a": 1} {"b": 2}', "not JSON", 10),
        (b"{'a': 1}", "not JSON", 2),
        (b'{"a": 1,}', "not JSON", 8),
        ('{"é": x}'.encode(), "not JSON", 8),
        (b'{"a": NaN}', "NaN or Infinity", 7),
        (b'{"a": -Infinity}', "NaN or Infinity", 7),
        (b'{"a": 1e999}', "number out of range", 7),
        (rb'{"a": "x\ud800"}', "unpaired surrogate", 9),
        (rb'{"a": "\udc00x"}', "unpaired surrogate", 8),
        (b'{"a": "x\xff"}', "not UTF-8", 9),
        (b'{"a": "\xed\xa0\x80"}', "not UTF-8", 8),
        ('{"a": "b"}'.encode("utf-16"), "not UTF-8", 1),
        (b'{"a": "x\x01"}', "control character", 9),
        ('{"é": "\t"}'.encode(), "control character", 9),
        (b"<<<<<<< HEAD", "git conflict marker", 1),
        (b"=======", "git conflict marker", 1),
        (b">>>>>>> theirs", "git conflict marker", 1),
        (b"{", "pretty-printed JSON", 1),
        (b'  "custom_id": "a",', "pretty-printed JSON", 1),
        (b'    "stop",', "pretty-printed JSON", 1),
        (b"  },", "pretty-printed JSON", 1),
        (b"[1, 2]", "not an object", 1),
        (b'  "text"', "not an object", 3),
        (b"null", "not an object", 1),
        (b"12", "not an object", 1),
    ],
)
def test_a_line_that_is_no_json_object_is_rejected_with_byte_column_and_reason(
    line: bytes, reason: str, column: int
) -> None:
    rejection = rejected(line)

    assert (rejection.line, rejection.column, rejection.reason) == (7, column, reason)
    assert rejection.message


def test_nesting_beyond_the_parser_is_rejected() -> None:
    rejection = rejected(b'{"a": ' + b"[" * 5000 + b"]" * 5000 + b"}")

    assert rejection.reason == "nested too deeply"
    # Parsers differ by one on where the limit is.
    assert 1024 <= rejection.column <= 1040


def test_every_line_of_a_pretty_printed_request_is_rejected_or_blank() -> None:
    lines = json.dumps(json.loads(outer()), indent=2).splitlines()

    reasons = {rejected(line).reason for line in lines}

    assert reasons == {"pretty-printed JSON"}


def test_a_line_beyond_the_cap_is_rejected_with_its_length() -> None:
    rejection = parse_line(RawLine(3, None, 200_000_001, 200_000_001))

    assert isinstance(rejection, Rejection)
    assert (rejection.line, rejection.reason) == (3, "line too long")
    assert "200,000,001" in rejection.message


@pytest.mark.parametrize("line", ["", " ", "\t \r"])
def test_a_blank_line_is_nothing(line: str) -> None:
    assert judged(line) is None
