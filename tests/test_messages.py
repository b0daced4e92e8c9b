"""Messages and prompts: every kind that an engine takes, and what is refused."""

import json
from typing import Any

import pytest

from tests.request_lines import CHAT, COMPLETION, accepted, chat, completion, rejected


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
        [{"role": "developer", "content": "d"}, {"role": "user", "content": "u"}],
        [{"role": "user", "content": [{"type": "text", "text": "a"}, "b"]}],
        [
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0"}},
                    {"image_url": "https://example.org/a.png"},
                ],
            }
        ],
        [
            {"role": "user", "content": "weather?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
                ],
            },
            {"role": "tool", "tool_call_id": "1", "content": "sunny"},
        ],
        [{"role": "user", "content": "u"}, {"role": "assistant", "tool_calls": None}],
        [{"role": "user", "content": ""}],
    ],
)
def test_every_kind_of_message_is_accepted(messages: list[Any]) -> None:
    draft = accepted(chat(messages=messages))

    assert draft.fields["messages"] == messages


@pytest.mark.parametrize(
    ("messages", "reason", "value", "field"),
    [
        (None, "missing messages", "null", "messages"),
        ([], "bad messages", "[]", "messages"),
        ("hi", "bad messages", '"hi"', "messages"),
        (["hi"], "bad messages", '"hi"', "messages[0]"),
        ([{"role": "robot", "content": "x"}], "unknown role", '"robot"', "messages[0].role"),
        ([{"role": ["user"], "content": "x"}], "unknown role", '["user"]', "messages[0].role"),
        ([{"content": "x"}], "unknown role", '{"content"', "messages[0].role"),
        ([{"role": "user"}], "bad messages", '{"role"', "messages[0].content"),
        ([{"role": "user", "content": None}], "bad messages", "null", "messages[0].content"),
        ([{"role": "user", "content": 5}], "bad messages", "5", "messages[0].content"),
        ([{"role": "user", "content": [5]}], "bad messages", "5", "messages[0].content[0]"),
        (
            [{"role": "user", "content": [{"type": "smell"}]}],
            "bad messages",
            '{"type"',
            "messages[0].content[0]",
        ),
        (
            [{"role": "user", "content": [{"type": "text"}]}],
            "bad messages",
            '{"type"',
            "messages[0].content[0]",
        ),
        (
            [{"role": "assistant", "tool_calls": [{"id": "1"}]}],
            "bad messages",
            '{"id"',
            "messages[0].tool_calls[0]",
        ),
        (
            [{"role": "assistant", "tool_calls": {}}],
            "bad messages",
            "{}",
            "messages[0].tool_calls",
        ),
    ],
)
def test_a_wrong_message_is_rejected_where_it_stands(
    messages: Any, reason: str, value: str, field: str
) -> None:
    line = chat(messages=messages)

    rejection = rejected(line)

    assert rejection.reason == reason
    assert f"`{field}`" in rejection.message
    assert line[rejection.column - 1 :].startswith(value)
    assert rejection.custom_id == "a"


def test_the_endpoint_and_what_is_asked_must_fit() -> None:
    line = json.dumps({"url": "/v1/chat/completions", "body": COMPLETION})
    assert rejected(line).reason == "missing messages"
    assert "/v1/completions" in rejected(line).message

    line = json.dumps({"url": "/v1/completions", "body": CHAT})
    assert rejected(line).reason == "missing prompt"
    assert "/v1/chat/completions" in rejected(line).message


@pytest.mark.parametrize(
    ("prompt", "sequences"),
    [
        ("x", 3),
        (["x"], 3),
        (["x", "y"], 6),
        ([1, 2, 3], 3),
        ([[1], [2, 3]], 6),
    ],
)
def test_a_prompt_has_n_sequences_for_each_of_its_texts(prompt: Any, sequences: int) -> None:
    assert accepted(completion(prompt=prompt, n=3)).sequences == sequences


@pytest.mark.parametrize(
    "prompt", ["", [], [""], ["x", 1], [1, "x"], [[]], [[1], []], [-1], [True], [1.5], 5, {}, [{}]]
)
def test_a_prompt_of_no_known_kind_is_rejected(prompt: Any) -> None:
    line = completion(prompt=prompt)

    rejection = rejected(line)

    assert rejection.reason == "bad prompt"
    assert line[rejection.column - 1 :].startswith(json.dumps(prompt))
