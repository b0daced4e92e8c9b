"""Whole lines judged: custom_id, the body byte for byte, and the context."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blend.core.input.validate import duplicate, output_tokens, too_long
from tests.request_lines import CHAT, COMPLETION, accepted, chat, judged, outer, rejected, without


@pytest.mark.parametrize(
    ("text", "custom_id", "notes"),
    [
        ('"a b|c"', "a b|c", ()),
        (r'"\u00e9\n"', "é\n", ()),
        ("null", "line-7", ("custom_id generated",)),
        ('""', "line-7", ("custom_id generated",)),
        ("17", "17", ("custom_id converted",)),
        ("1.50", "1.50", ("custom_id converted",)),
        ("123456789012345678901234567890", "1234567890" * 3, ("custom_id converted",)),
        (f'"{"x" * 300}"', "x" * 300, ("custom_id long",)),
    ],
)
def test_an_odd_custom_id_is_generated_converted_or_noted(
    text: str, custom_id: str, notes: tuple[str, ...]
) -> None:
    line = f'{{"custom_id": {text}, "url": "/v1/completions", "body": {{"prompt": "x"}}}}'

    draft = accepted(line)

    assert (draft.custom_id, draft.notes) == (custom_id, notes)
    assert line[draft.id_column - 1 :].startswith(text)


def test_a_missing_custom_id_is_generated_from_the_line_number() -> None:
    draft = accepted(without("custom_id"))

    assert (draft.custom_id, draft.notes) == ("line-7", ("custom_id generated",))


def test_a_duplicate_names_both_lines() -> None:
    rejection = duplicate(accepted(outer()), "a.jsonl:3")

    assert rejection.reason == "duplicate custom_id"
    assert "a.jsonl:3" in rejection.message
    assert "line 7" in rejection.message
    assert outer()[rejection.column - 1 :].startswith('"a"')


@pytest.mark.parametrize(
    "body",
    [
        rb'{"prompt": "\u0000\ud83d\ude00\/", "seed":1}',
        b'{"prompt": "x", "x": 123456789012345678901234567890, "y": 0.10000000000000000001}',
        b'{ "z" : 1, "prompt" : "x" , "a":2 , "z":3 }',
        '{"prompt": "é漢\u2028\u2029😀 "}'.encode(),
        b'{"prompt":"a}\\"]{", "unknown": {"body": {"prompt": []}}}',
    ],
)
def test_the_body_is_kept_byte_for_byte(body: bytes) -> None:
    line = b' {"body": 1, "url": "/v1/completions", "body" : ' + body + b' , "x": {"body": 2}} '

    draft = accepted(line)

    assert draft.body == body
    assert draft.fields == orjson.loads(body)
    assert line[draft.body_column - 1 :].startswith(body)


def test_a_short_form_becomes_a_body_without_its_custom_id() -> None:
    line = rb'{"prompt": "\u00e9", "custom_id": "a", "seed": 12345678901234567890123, "n": 2}'

    draft = accepted(line.replace(b"12345678901234567890123", b"1"))

    assert draft.custom_id == "a"
    assert draft.endpoint == "/v1/completions"
    assert draft.body == rb'{"prompt": "\u00e9", "seed": 1, "n": 2}'
    assert draft.fields == {"prompt": "é", "seed": 1, "n": 2}


def test_both_short_forms_are_known_by_what_they_ask() -> None:
    draft = accepted('{"messages": [{"role": "user", "content": "hi"}], "temperature": 0}')

    assert draft.endpoint == "/v1/chat/completions"
    assert draft.custom_id == "line-7"
    assert accepted('{"prompt": "x"}').endpoint == "/v1/completions"


def test_a_problem_in_a_short_form_is_placed_in_the_line() -> None:
    line = '{"custom_id": "a", "prompt": "x", "max_tokens": -5}'

    assert line[rejected(line).column - 1 :] == "-5}"


@given(
    st.dictionaries(
        st.text(),
        st.recursive(
            st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=5,
        ),
    )
)
def test_no_line_makes_the_parser_fail(members: dict[str, Any]) -> None:
    judged(json.dumps(members))
    judged(json.dumps({"url": "/v1/completions", "body": members}))
    judged(json.dumps({"url": "/v1/completions", "body": COMPLETION | members}))
    judged(json.dumps({"url": "/v1/chat/completions", "body": CHAT | members}))


@given(st.binary(max_size=60))
def test_no_bytes_make_the_parser_fail(line: bytes) -> None:
    judged(line)
    judged(b'{"prompt": "' + line + b'"}')


def test_a_request_beyond_the_context_is_rejected_with_both_numbers() -> None:
    draft = accepted(chat(max_tokens=100))

    assert too_long(draft, prompt_tokens=4095, context_tokens=4096) is None
    full = too_long(draft, prompt_tokens=4096, context_tokens=4096)
    assert full is not None
    assert full.reason == "prompt too long"
    assert full.message == "the prompt has 4,096 tokens, but the context has 4,096"

    greedy = too_long(draft, prompt_tokens=1, context_tokens=99)
    assert greedy is not None
    assert greedy.reason == "max_tokens too large"
    assert "`max_tokens` is 100, but the context has 99 tokens" in greedy.message
    assert (greedy.line, greedy.custom_id) == (7, "a")


def test_the_output_is_limited_by_what_the_prompt_leaves_free() -> None:
    assert output_tokens(accepted(chat()), prompt_tokens=10, context_tokens=32) == 22
    limited = accepted(chat(max_tokens=20))
    assert output_tokens(limited, prompt_tokens=10, context_tokens=32) == 20
    assert output_tokens(limited, prompt_tokens=20, context_tokens=32) == 12
