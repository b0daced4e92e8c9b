"""Sampling fields: what is refused by name and place, and what is accepted."""

import json
from typing import Any

import pytest

from tests.request_lines import CHAT, COMPLETION, accepted, chat, completion, rejected


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"max_tokens": 0}, "bad max_tokens"),
        ({"max_tokens": -5}, "bad max_tokens"),
        ({"max_tokens": "100"}, "bad max_tokens"),
        ({"max_tokens": True}, "bad max_tokens"),
        ({"max_tokens": 1.5}, "bad max_tokens"),
        ({"max_completion_tokens": 0}, "bad max_tokens"),
        ({"n": 0}, "bad n"),
        ({"n": -1}, "bad n"),
        ({"n": 10**30}, "bad n"),
        ({"n": "2"}, "bad n"),
        ({"stream": True}, "stream"),
        ({"stream": "no"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream"),
        ({"temperature": "hot"}, "bad field"),
        ({"temperature": -0.1}, "bad field"),
        ({"temperature": 2.5}, "bad field"),
        ({"temperature": True}, "bad field"),
        ({"top_p": 0}, "bad field"),
        ({"top_p": 1.1}, "bad field"),
        ({"top_k": -2}, "bad field"),
        ({"presence_penalty": 3}, "bad field"),
        ({"frequency_penalty": "0"}, "bad field"),
        ({"repetition_penalty": 0}, "bad field"),
        ({"seed": "x"}, "bad field"),
        ({"seed": 2**63}, "bad field"),
        ({"stop": 5}, "bad field"),
        ({"stop": ""}, "bad field"),
        ({"stop": ["a", 5]}, "bad field"),
        ({"logit_bias": {"50256": "x"}}, "bad field"),
        ({"logprobs": 2}, "bad field"),
        ({"top_logprobs": 2}, "bad field"),
        ({"response_format": "json"}, "bad field"),
        ({"response_format": {"type": "xml"}}, "bad field"),
        ({"response_format": {"type": "json_schema"}}, "bad field"),
        ({"tools": []}, "bad field"),
        ({"tools": [{"type": "function"}]}, "bad field"),
        ({"tool_choice": "auto"}, "bad field"),
        ({"tool_choice": "sometimes"}, "bad field"),
        ({"model": 5}, "bad field"),
        ({"chat_template_kwargs": []}, "bad field"),
        ({"continue_final_message": True, "add_generation_prompt": True}, "bad field"),
    ],
)
def test_a_wrong_field_is_rejected_by_name_and_place(fields: dict[str, Any], reason: str) -> None:
    line = chat(**fields)
    name, value = next(iter(fields.items()))

    rejection = rejected(line)

    assert rejection.reason == reason
    assert f"`{name}`" in rejection.message
    assert line[rejection.column - 1 :].startswith(json.dumps(value))


@pytest.mark.parametrize("name", ["prompt", "temperature", "custom_id"])
def test_a_deeply_nested_wrong_value_is_rejected_like_any_other(name: str) -> None:
    line = json.dumps(COMPLETION | {name: "@"}).replace('"@"', "[" * 900 + "]" * 900)

    assert line[rejected(line).column - 1 :].startswith("[[[[")


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": None, "top_p": None, "stop": None, "n": None, "tools": None},
        {"max_tokens": 100.0},
        {"n": 4, "seed": -(2**63), "temperature": 0, "top_p": 1, "top_k": -1},
        {"stop": "x"},
        {"stop": ["x", "y"], "logit_bias": {"1": -100}},
        {"presence_penalty": -2, "frequency_penalty": 2.0},
        {"logprobs": True, "top_logprobs": 5},
        {"stream": False, "stream_options": None},
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {}}}},
        {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "auto"},
        {
            "tools": [{"type": "function", "function": {"name": "f"}}],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
        },
        {"tool_choice": "none"},
        {"thinking": {"type": "disabled"}, "whatever": [1], "prompt": []},
        {"chat_template_kwargs": {"enable_thinking": False}},
    ],
)
def test_fields_that_an_engine_would_take_are_accepted(fields: dict[str, Any]) -> None:
    assert accepted(chat(**fields)).fields == CHAT | fields


def test_the_output_limit_is_the_endpoints_own() -> None:
    assert accepted(chat()).max_tokens is None
    assert accepted(chat(max_tokens=5)).max_tokens == 5
    assert accepted(chat(max_tokens=5, max_completion_tokens=9)).max_tokens == 9
    assert accepted(chat(max_tokens=5, max_completion_tokens=None)).max_tokens == 5
    assert accepted(completion()).max_tokens == 16
    assert accepted(completion(max_tokens=None)).max_tokens == 16
    assert accepted(completion(max_tokens=5, max_completion_tokens=9)).max_tokens == 5


@pytest.mark.parametrize(
    ("model", "meant"),
    [("m/n", "m/n"), ("placeholder", None), ("{{modelName}}", None), ("", None), (None, None)],
)
def test_a_placeholder_names_no_model(model: str | None, meant: str | None) -> None:
    assert accepted(chat(model=model)).model == meant


def test_a_long_value_is_cut_in_the_message() -> None:
    assert len(rejected(chat(temperature="x" * 10_000)).message) < 200
    assert len(rejected(completion(prompt=[["x"]] * 10_000)).message) < 250
