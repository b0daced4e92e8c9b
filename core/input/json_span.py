"""Where a value stands inside the bytes of a JSON document.

Invariant: the document was accepted by a strict parser before, so these functions only find
ends; they never judge. A span is [start, end) in bytes, without the whitespace around the value.
Of duplicate keys the last one counts, as it does for the parser.
"""

import re
from collections.abc import Iterator, Sequence

import orjson

Span = tuple[int, int]

# Possessive quantifiers: a megabyte of escapes must not grow a backtracking stack.
_SPACE = rb"[ \t\r\n]*+"
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_SCALAR = rb'(?:[^\s,:"\[\]{}]++|' + _STRING + rb")"
_space = re.compile(_SPACE)
_scalar = re.compile(_SCALAR, re.DOTALL)
_separator = re.compile(_SPACE + b",?" + _SPACE)
_member = re.compile(
    rb",?" + _SPACE + rb"(" + _STRING + rb")" + _SPACE + rb":" + _SPACE + rb"(" + _SCALAR + rb")?",
    re.DOTALL,
)
_next_bracket = re.compile(rb'[^"\[\]{}]*+(?:' + _STRING + rb'[^"\[\]{}]*+)*+([\[\]{}])', re.DOTALL)

_BACKSLASH = b"\\"
_OPENING = b"[{"
_CLOSING = b"]}"


def value_end(document: bytes, start: int) -> int:
    """Return the end of the value that begins at ``start``."""
    if document[start] in _OPENING:
        return _container_end(document, start)
    return _matched(_scalar, document, start).end()


def members(document: bytes, start: int) -> Iterator[tuple[str, Span]]:
    """Yield key and value span of every member of the object that begins at ``start``."""
    position = _matched(_space, document, start + 1).end()
    while document[position] not in _CLOSING:
        member = _matched(_member, document, position)
        begin, end = member.span(2)
        if end < 0:
            begin = member.end()
            end = _container_end(document, begin)
        key = member[1]
        yield orjson.loads(key) if _BACKSLASH in key else key[1:-1].decode(), (begin, end)
        position = _matched(_space, document, end).end()


def with_member(document: bytes, name: str, value: bytes) -> bytes:
    """Return an object whose member *name* is *value*, otherwise byte for byte as it was.

    A member that it has not got comes first.
    """
    start = document.index(b"{")
    spans = [span for key, span in members(document, start) if key == name]
    if not spans:
        rest = document[start + 1 :]
        comma = b"" if rest.lstrip().startswith(b"}") else b", "
        return document[: start + 1] + orjson.dumps(name) + b": " + value + comma + rest
    # From the back, so that the spans before stay where they are.
    for lo, hi in reversed(spans):
        document = document[:lo] + value + document[hi:]
    return document


def elements(document: bytes, start: int) -> Iterator[Span]:
    """Yield the span of every element of the array that begins at ``start``."""
    position = _matched(_space, document, start + 1).end()
    while document[position] not in _CLOSING:
        end = value_end(document, position)
        yield position, end
        position = _matched(_separator, document, end).end()


def locate(document: bytes, path: Sequence[str | int]) -> Span:
    """Return the span of the value at ``path``; where a step is missing, of what encloses it."""
    start = _matched(_space, document, 0).end()
    span = start, value_end(document, start)
    for step in path:
        child = _child(document, span[0], step)
        if child is None:
            break
        span = child
    return span


def _child(document: bytes, start: int, step: str | int) -> Span | None:
    opening = document[start : start + 1]
    if opening == b"{":
        return dict(members(document, start)).get(str(step))
    if opening == b"[":
        return next((s for i, s in enumerate(elements(document, start)) if i == step), None)
    return None


def _container_end(document: bytes, start: int) -> int:
    depth = 1
    position = start + 1
    while depth:
        position = _matched(_next_bracket, document, position).end()
        depth += 1 if document[position - 1] in _OPENING else -1
    return position


def _matched(pattern: re.Pattern[bytes], document: bytes, position: int) -> re.Match[bytes]:
    match = pattern.match(document, position)
    if match is None:
        raise ValueError(f"no JSON value at byte {position} of {len(document)}")
    return match
