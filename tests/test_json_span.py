"""Spans found in JSON text."""

import json
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from blend.core.input.json_span import elements, locate, members, value_end

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
WRITERS = st.sampled_from(
    [
        json.dumps,
        lambda value: json.dumps(value, ensure_ascii=False),
        lambda value: json.dumps(value, separators=(",", ":")),
        lambda value: json.dumps(value, indent=1).replace("\n", "\r"),
    ]
)


@given(VALUES, WRITERS, st.sampled_from(["", " ", "\t\r"]))
def test_every_span_holds_exactly_the_value_that_the_parser_sees(
    value: Any, write: Any, space: str
) -> None:
    document = (space + write(value) + space).encode()

    check(document, (), orjson.loads(document))


def check(document: bytes, path: tuple[str | int, ...], value: Any) -> None:
    start, end = locate(document, path)
    text = document[start:end]
    assert text == text.strip()
    assert orjson.loads(text) == value
    assert value_end(document, start) == end
    if isinstance(value, dict):
        assert dict(members(document, start)).keys() == value.keys()
        for key, inner in value.items():
            check(document, (*path, key), inner)
    if isinstance(value, list):
        assert len(list(elements(document, start))) == len(value)
        for index, inner in enumerate(value):
            check(document, (*path, index), inner)


def test_the_last_of_duplicate_keys_counts_as_for_the_parser() -> None:
    document = rb'{"body": 1, "b\u006fdy": [2], "other": 3}'

    assert document[slice(*locate(document, ("body",)))] == b"[2]"


def test_a_missing_step_gives_the_place_of_what_encloses_it() -> None:
    document = b'  {"body": {"n": 1}}'

    assert locate(document, ("body", "messages", 0)) == (11, 19)
    assert locate(document, ("url",)) == (2, 20)


def test_megabytes_of_escapes_and_of_brackets_are_passed_over() -> None:
    text = b'{"a": "' + rb"\"" * 500_000 + b'", "b": ' + b"[" * 900 + b"]" * 900 + b"}"

    start, end = locate(text, ("b",))

    assert (start, end) == (len(text) - 1801, len(text) - 1)
