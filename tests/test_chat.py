"""The conversation that a template is given; tests/test_tokens_vllm.py holds it against vLLM's."""

from typing import Any

import pytest

from blend.core.rendering.chat import conversation, developer_as_system, template_arguments, tools

USER = {"role": "user", "content": "hi"}


def shown(message: dict[str, Any], *, as_parts: bool = False, media: bool = False) -> Any:
    return conversation([message], as_parts=as_parts, media=media)[0]


def parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


def test_a_template_that_reads_strings_gets_parts_joined_by_lines() -> None:
    assert shown({"role": "user", "content": parts("a", "", "b")})["content"] == "a\nb"
    assert shown({"role": "assistant", "content": None})["content"] == ""


def test_a_template_that_reads_parts_gets_strings_as_parts() -> None:
    message = {"role": "user", "content": "a"}

    assert shown(message, as_parts=True)["content"] == parts("a")


def test_a_tool_result_is_a_string_for_every_template() -> None:
    message = {"role": "tool", "tool_call_id": "1", "content": parts("p", "q")}

    assert shown(message, as_parts=True) == {
        "role": "tool",
        "content": "p\nq",
        "tool_call_id": "1",
    }


@pytest.mark.parametrize(
    ("written", "read"),
    [('{"b": 1, "a": [2]}', {"b": 1, "a": [2]}), ("oops", {}), ("[1]", {}), ("", {})],
)
def test_past_tool_calls_have_their_arguments_as_an_object(written: str, read: Any) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": written}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}

    assert shown(message)["tool_calls"][0]["function"] == {"arguments": read, "name": "f"}


def test_reasoning_is_given_under_both_of_its_names() -> None:
    message = shown({"role": "assistant", "content": "x", "reasoning_content": "why"})

    assert message["reasoning"] == message["reasoning_content"] == "why"


def test_media_is_refused_by_a_text_model_and_stands_as_a_part_for_others() -> None:
    image = {"type": "image_url", "image_url": {"url": "http://example.org/a.png"}}
    message = {"role": "user", "content": [image, *parts("what is it?")]}

    with pytest.raises(ValueError, match="`image_url`: the model takes text only"):
        shown(message)
    assert shown(message, as_parts=True, media=True)["content"][0] == {"type": "image"}
    assert shown(message, media=True)["content"] == "what is it?"


def test_a_developer_message_becomes_one_system_message_in_front() -> None:
    messages = conversation(
        [USER, {"role": "developer", "content": "d"}, {"role": "system", "content": "s"}],
        as_parts=False,
        media=False,
    )

    assert developer_as_system(messages) == [{"role": "system", "content": "d\n\ns"}, USER]


def test_tools_keep_the_members_that_the_engine_keeps() -> None:
    tool = {"type": "function", "function": {"parameters": {}, "name": "f", "x": 1}, "y": 2}

    assert tools({"tools": [tool]}) == [
        {"type": "function", "function": {"name": "f", "description": None, "parameters": {}}}
    ]
    assert tools({}) is None


def test_a_request_steers_the_template_but_not_the_tokenizer() -> None:
    body = {
        "reasoning_effort": "none",
        "chat_template_kwargs": {
            "style": "short",
            "tokenize": True,
            "add_generation_prompt": False,
        },
    }

    assert template_arguments(body) == {
        "style": "short",
        "add_generation_prompt": True,
        "continue_final_message": False,
        "reasoning_effort": "none",
        "enable_thinking": False,
    }
