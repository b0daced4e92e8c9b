"""The job's tokens stand in for vLLM's rendering of plain chats, while the two are the same."""

from typing import Any

import numpy as np
import pytest

from blend.core.engines.known_prompts import CHECKED_EVERY, CHECKED_FIRST, KnownPrompts, kind_of

USER, SYSTEM = {"role": "user", "content": "hi"}, {"role": "system", "content": "be kind"}
PROMPT = np.array([1, 2, 300], "<u4").tobytes()
IDS = [1, 2, 300]


def answered(prompts: KnownPrompts, fields: dict[str, Any], *, renders: list[int]) -> bool:
    """Tell whether vLLM had to render the chat, of which it makes *renders*."""
    prompts.begin(fields, PROMPT)
    ids = prompts.ids()
    prompts.rendered(renders if ids is None else ids)
    return ids is None


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [USER], "tools": []},
        {"messages": [USER], "return_prompt_text": True},
        {"messages": [USER], "chat_template_kwargs": {}},
        {"messages": [USER], "truncate_prompt_tokens": 5},
        {"messages": [USER | {"name": "bob"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]},
        {"messages": [{"role": "developer", "content": "d"}, USER]},
        {"messages": [{"role": "assistant", "content": None}, USER]},
        {"messages": "hi"},
    ],
)
def test_what_a_rendering_could_look_at_is_rendered_by_vllm(fields: dict[str, Any]) -> None:
    prompts = KnownPrompts()

    assert kind_of(fields) is None
    assert all(answered(prompts, fields, renders=IDS) for _ in range(2 * CHECKED_FIRST))


def test_a_kind_of_chat_is_its_roles() -> None:
    chat = {"messages": [SYSTEM, USER, USER], "temperature": 0, "logprobs": True}

    assert kind_of(chat) == ("system", "user")


def test_the_first_chats_of_each_kind_are_rendered_and_some_of_the_others() -> None:
    prompts = KnownPrompts()
    alone, both = {"messages": [USER]}, {"messages": [SYSTEM, USER]}
    told = [answered(prompts, alone, renders=IDS) for _ in range(2 * CHECKED_EVERY)]

    assert told[:CHECKED_FIRST] == [True] * CHECKED_FIRST
    assert told[CHECKED_FIRST:].count(True) == 2
    assert answered(prompts, both, renders=IDS)


def test_after_one_difference_vllm_renders_every_chat() -> None:
    prompts = KnownPrompts()
    chat = {"messages": [USER]}
    for _ in range(CHECKED_EVERY - 1):
        answered(prompts, chat, renders=IDS)
    assert prompts.ids() == IDS

    assert answered(prompts, chat, renders=[1, 2])
    assert all(answered(prompts, chat, renders=IDS) for _ in range(CHECKED_EVERY + 1))


def test_a_chat_without_tokens_in_the_job_is_rendered() -> None:
    prompts = KnownPrompts()
    prompts.begin({"messages": [USER]}, b"")

    assert prompts.ids() is None
