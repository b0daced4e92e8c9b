"""Say why the strict parser refused a line, in the words of whoever wrote the line."""

import re
from collections.abc import Iterator

import orjson

from blend.core.input.draft import Reason

_CONFLICT_MARKER = re.compile(rb"(?:<{7}|={7}|>{7}|\|{7})(?: |$)")
_PRETTY = re.compile(rb'\s*(?:[\[\]{}]+\s*,?|"(?:[^"\\]|\\.)*"\s*(?:[:,].*)?)\s*', re.DOTALL)
_NOT_A_NUMBER = re.compile(rb"-?(?:NaN|Infinity|nan|inf)\b")
_NUMBER = re.compile(rb"-?[0-9.eE+-]{1,40}")


def diagnose(document: bytes, error: orjson.JSONDecodeError) -> tuple[int, Reason, str]:
    """Return byte offset, reason and full sentence for a line that is not JSON."""
    try:
        text = document.decode()
    except UnicodeDecodeError as bad:
        return bad.start, "not UTF-8", _not_utf8(document, bad)
    if _CONFLICT_MARKER.match(document):
        return 0, "git conflict marker", "a conflict marker of git: resolve the merge first"
    if _PRETTY.fullmatch(document):
        words = "part of a pretty-printed document: put each request on one line (`jq -c .`)"
        return 0, "pretty-printed JSON", words
    # The parser counts characters; a column is a byte.
    offset = len(text[: error.pos].encode())
    if document[offset - 1 : offset] == b"-":
        offset -= 1
    reason, words = next(_causes(document, offset, error.msg))
    return offset, reason, words


def _not_utf8(document: bytes, error: UnicodeDecodeError) -> str:
    if document.startswith((b"\xff\xfe", b"\xfe\xff")) or document.count(0) > len(document) // 4:
        return "the text looks like UTF-16: convert the file to UTF-8"
    return f"not valid UTF-8 at byte 0x{document[error.start]:02x}"


def _causes(document: bytes, offset: int, message: str) -> Iterator[tuple[Reason, str]]:
    """Yield the causes that fit, the most telling first; the last one always fits."""
    word = _NOT_A_NUMBER.match(document, offset)
    if word:
        yield "NaN or Infinity", f"JSON has no {word[0].decode()}: use a number or null"
    if "infinity" in message:
        number = _NUMBER.match(document, offset)
        shown = f": {number[0].decode()}" if number else ""
        yield "number out of range", f"a number beyond double precision{shown}"
    if "surrogate" in message:
        yield "unpaired surrogate", "half a surrogate pair (\\ud800 to \\udfff) stands alone"
    if "control character" in message and offset < len(document):
        code = document[offset]
        words = f"a raw control character 0x{code:02x} in a string: write it as \\u{code:04x}"
        yield "control character", words
    if "depth" in message or "recursion" in message.lower():
        yield "nested too deeply", "brackets are nested more than 1,024 deep"
    yield "not JSON", message.split(": line ")[0]
