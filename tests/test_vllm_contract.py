"""Answers are those of vLLM's own programs, field by field, on the same model and arguments.

Chats are compared with `run-batch`; completions, responses and whatever makes `run-batch` give up
its whole file with `vllm serve`. Each program starts once and answers everything.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from blend.core.engines.vllm import VllmEngine
from blend.core.request import Endpoint
from tests.tiny_engine import CHAT, RESPONSES, TEXT, Body, chat, run, text, wait_until
from tests.vllm_reference import KEY, run_batch

pytestmark = pytest.mark.vllm

# Drawn anew or read off a clock, by any of the programs, each time.
VOLATILE = frozenset({"id", "created", "created_at"})
# What the cache held before depends on what else ran.
CACHE_STATE = frozenset({"prompt_tokens_details", "input_tokens_details"})

USER = {"role": "user", "content": "how many apples does she have?"}
OBJECT = {
    "type": "object",
    "properties": {"wet": {"type": "boolean"}},
    "required": ["wet"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": OBJECT}}
NAMED = {"type": "function", "function": {"name": "weather"}}
CALL = {
    "id": "call-1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"wet": true}'},
}


def greedy(**fields: Any) -> Body:
    return chat(**{"temperature": 0, **fields})


def said(*messages: Mapping[str, Any], **fields: Any) -> Body:
    return greedy(messages=list(messages), **fields)


def completed(prompt: Any = "the sea and the wind", **fields: Any) -> Body:
    return text(prompt, **{"temperature": 0, **fields})


CHATS: dict[str, Body] = {
    "plain": greedy(),
    "system prompt": said({"role": "system", "content": "You are a careful tutor."}, USER),
    "developer": said({"role": "developer", "content": "Be brief."}, USER),
    "several turns": said(USER, {"role": "assistant", "content": "two"}, {**USER, "name": "bob"}),
    "content parts": said(
        {"role": "user", "content": [{"type": "text", "text": t} for t in ("the", "sea")]}
    ),
    "image": said(
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "what is this?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            ],
        }
    ),
    "past tool calls": said(
        USER,
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call-1", "content": "it is wet"},
        tools=[TOOL],
    ),
    "past reasoning": said(
        USER, {"role": "assistant", "reasoning": "she has two", "content": "two"}, USER
    ),
    "tool_choice none": greedy(tools=[TOOL], tool_choice="none"),
    "tool_choice auto": greedy(tools=[TOOL], tool_choice="auto", parallel_tool_calls=False),
    "tool_choice required": greedy(tools=[TOOL], tool_choice="required", max_tokens=200),
    "tool_choice named": greedy(tools=[TOOL], tool_choice=NAMED, max_tokens=200),
    "json_object": greedy(response_format={"type": "json_object"}, max_tokens=60),
    "json_schema": greedy(
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "w", "schema": OBJECT, "strict": True},
        },
        max_tokens=100,
    ),
    "structured choice": greedy(structured_outputs={"choice": ["yes", "no"]}),
    "logprobs": greedy(logprobs=True, top_logprobs=3),
    "prompt_logprobs": greedy(prompt_logprobs=1),
    "token ids": greedy(return_token_ids=True, return_tokens_as_token_ids=True, logprobs=True),
    "n and seed": greedy(n=2, temperature=1, seed=5, top_p=0.9, top_k=20, min_p=0.01),
    "stop strings": greedy(stop=["a", "e"], include_stop_str_in_output=True, max_tokens=100),
    "stop token ids": greedy(stop_token_ids=list(range(3, 120)), max_tokens=100),
    "logit_bias": greedy(logit_bias={"70": 100}),
    "penalties": greedy(presence_penalty=1, frequency_penalty=0.5, repetition_penalty=1.1),
    "min_tokens": greedy(min_tokens=4, max_tokens=6),
    "ignore_eos": greedy(ignore_eos=True, skip_special_tokens=False, max_tokens=20),
    "max_completion_tokens": greedy(max_completion_tokens=3, max_tokens=None),
    "no limit": said({"role": "user", "content": "zz " * 300}, max_tokens=None, stop=["a"]),
    "echo": said(USER, {"role": "assistant", "content": "she"}, echo=True),
    "continue_final_message": said(
        USER,
        {"role": "assistant", "content": "she has"},
        continue_final_message=True,
        add_generation_prompt=False,
    ),
    "chat_template_kwargs": greedy(chat_template_kwargs={"enable_thinking": False}),
    "reasoning": greedy(reasoning_effort="low", include_reasoning=False),
    "truncated": greedy(truncate_prompt_tokens=5),
    "unknown role": said({"role": "robot", "content": "hi"}),
    "unknown field": greedy(thinking={"type": "enabled"}, store=True, metadata={"a": "b"}),
    "greedy and n": greedy(n=2),
    "too long": said({"role": "user", "content": "zz " * 2000}),
    "template in request": greedy(chat_template="{{ messages }}"),
    "bad schema": greedy(
        response_format={"type": "json_schema", "json_schema": {"name": "w", "schema": {"type": 5}}}
    ),
    "allowed token out of range": greedy(allowed_token_ids=[10**8]),
}

COMPLETIONS: dict[str, Body] = {
    "plain": completed(),
    "no limit": completed(max_tokens=None),
    "list of prompts": completed(["the sea", "a boat"], echo=True),
    "token ids": completed([5, 6, 7]),
    "lists of token ids": completed([[5, 6, 7], [8]], return_token_ids=True),
    "n and best_of": completed(n=2, best_of=3, temperature=1, seed=5),
    "n and prompts": completed(["the sea", "a boat"], n=2, temperature=1, seed=6),
    "echo and logprobs": completed(echo=True, logprobs=2, max_tokens=3),
    "echo alone": completed(echo=True, max_tokens=0),
    "logprobs": completed(logprobs=1, add_special_tokens=False),
    "prompt_logprobs": completed(prompt_logprobs=0),
    "stop strings": completed(stop=["a", "e"], max_tokens=100),
    "stop token ids": completed(stop_token_ids=list(range(3, 120)), max_tokens=100),
    "logit_bias": completed(logit_bias={"70": -100, "71": 5}),
    "min_tokens and ignore_eos": completed(min_tokens=3, ignore_eos=True),
    "beam search": completed(use_beam_search=True, n=2),
    "json_schema": completed(
        response_format={"type": "json_schema", "json_schema": {"name": "w", "schema": OBJECT}},
        max_tokens=100,
    ),
    "suffix": completed(suffix="and the boat"),
    "bad temperature": completed(temperature=-1),
    "bad max_tokens": completed(max_tokens="many"),
    "no prompt": {"max_tokens": 1},
    "empty prompt": completed(""),
    "token out of range": completed([10**8]),
    "too long": completed([5] * 5000),
    "bad stop": completed(stop=[1, {}]),
    "bad logit_bias": completed(logit_bias={"x": 1}),
    "seed out of range": completed(seed=2**70),
}

FUNCTION = {"type": "function", **TOOL["function"]}  # type: ignore[dict-item]
SCHEMA = {"type": "json_schema", "name": "w", "schema": OBJECT}


def responded(given: Any = "how many apples does she have?", **fields: Any) -> Body:
    return {"input": given, "temperature": 0, "max_output_tokens": 8} | fields


RESPONDED: dict[str, Body] = {
    "text": responded(),
    "instructions": responded(instructions="You are a careful tutor.", metadata={"a": "b"}),
    "several turns": responded(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"role": "assistant", "content": "yes?"},
            {"type": "message", "role": "user", "content": "how many?"},
        ]
    ),
    "past calls": responded(
        [
            USER,
            {
                "type": "function_call",
                "call_id": "call-1",
                "name": "weather",
                "arguments": '{"wet": true}',
            },
            {"type": "function_call_output", "call_id": "call-1", "output": "it is wet"},
        ],
        tools=[FUNCTION],
    ),
    "tool_choice required": responded(
        tools=[FUNCTION], tool_choice="required", max_output_tokens=200
    ),
    "json_schema": responded(text={"format": SCHEMA}, max_output_tokens=100),
    "logprobs": responded(include=["message.output_text.logprobs"], top_logprobs=2),
    "reasoning": responded(reasoning={"effort": "low"}, store=False, truncation="auto"),
    "sampled": responded(temperature=1, seed=5, top_p=0.9, top_k=20, ignore_eos=True),
    "stop": responded(stop=["a", "e"], max_output_tokens=100),
    "no limit": responded(max_output_tokens=None, stop=["a"]),
    "no input": {"max_output_tokens": 1},
    "bad item": responded([{"type": "walk"}]),
    "bad temperature": responded(temperature=-1),
    "unknown response": responded(previous_response_id="resp_1"),
    "too long": responded("zz " * 2000),
}

REFUSED_CHATS = {
    "image",
    "greedy and n",
    "too long",
    "template in request",
    "bad schema",
    "allowed token out of range",
}
REFUSED_COMPLETIONS = {
    "suffix",
    "bad temperature",
    "bad max_tokens",
    "no prompt",
    "empty prompt",
    "token out of range",
    "too long",
    "bad stop",
    "bad logit_bias",
    "seed out of range",
}
REFUSED_RESPONSES = {"no input", "bad item", "bad temperature", "unknown response", "too long"}

# `run-batch` ends without any answer where one of these stands in its file.
BROKEN_CHATS: dict[str, Body] = {
    "no messages": {"max_tokens": 1},
    "messages of a wrong type": {"messages": "hi"},
    "many faults": greedy(max_tokens="many", temperature="hot", stop=5, tools="none"),
    "n out of range": greedy(n=0),
    "bad tool_choice": greedy(tools=[TOOL], tool_choice="sometimes"),
    "named tool is missing": greedy(tool_choice=NAMED),
    "top_logprobs alone": greedy(top_logprobs=2),
    "both ends": greedy(continue_final_message=True, add_generation_prompt=True),
}

Outcome = tuple[int, Any]


def served(address: str, endpoint: Endpoint, body: Body) -> Outcome:
    """Return status and body of a request, as `vllm serve` answers it."""
    request = urllib.request.Request(
        address + endpoint,
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def is_up(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=5) as response:
            return response.status == 200
    except OSError:
        return False


Cases = dict[tuple[Endpoint, str], Body]
FOR_BATCH: Cases = {(CHAT, name): body for name, body in CHATS.items()}
FOR_SERVER: Cases = {
    **{(CHAT, name): body for name, body in BROKEN_CHATS.items()},
    **{(TEXT, name): body for name, body in COMPLETIONS.items()},
    **{(RESPONSES, name): body for name, body in RESPONDED.items()},
}


@pytest.fixture(scope="module")
def answers(engine: VllmEngine) -> dict[tuple[Endpoint, str], Outcome]:
    """What our engine says to everything, asked at once."""
    cases = {**FOR_BATCH, **FOR_SERVER}
    completions, _ = run(engine, [(endpoint, body) for (endpoint, _), body in cases.items()])
    return {
        case: (completion.status_code, json.loads(completion.body))
        for case, completion in zip(cases, completions, strict=True)
    }


@pytest.fixture(scope="module")
def batch_answers(
    tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[Endpoint, str], Outcome]:
    answered = run_batch(tiny_model_dir, tmp_path_factory.mktemp("batch"), list(FOR_BATCH.values()))
    return dict(zip(FOR_BATCH, answered, strict=True))


@pytest.fixture(scope="module")
def address(server: str) -> str:
    assert wait_until(lambda: is_up(server))
    return server


def test_only_what_is_wrong_is_refused(
    answers: Mapping[tuple[Endpoint, str], Outcome],
) -> None:
    refused = {case for case, (status, _) in answers.items() if status != 200}
    expected = {
        *((CHAT, name) for name in REFUSED_CHATS | BROKEN_CHATS.keys()),
        *((TEXT, name) for name in REFUSED_COMPLETIONS),
        *((RESPONSES, name) for name in REFUSED_RESPONSES),
    }

    assert sorted(refused - expected) == sorted(expected - refused) == []


@pytest.mark.parametrize("case", FOR_BATCH, ids=" ".join)
def test_a_chat_is_answered_as_run_batch_answers_it(
    case: tuple[Endpoint, str],
    answers: Mapping[tuple[Endpoint, str], Outcome],
    batch_answers: Mapping[tuple[Endpoint, str], Outcome],
) -> None:
    assert comparable(answers[case]) == comparable(batch_answers[case])


@pytest.mark.parametrize("case", FOR_SERVER, ids=" ".join)
def test_a_request_is_answered_as_the_server_answers_it(
    case: tuple[Endpoint, str],
    answers: Mapping[tuple[Endpoint, str], Outcome],
    address: str,
) -> None:
    endpoint, _ = case
    expected = served(address, endpoint, {"model": "tiny", **FOR_SERVER[case]})

    assert comparable(answers[case]) == comparable(expected)


def comparable(value: Any) -> Any:
    """Return *value* without what differs by nature, its logprobs as approximate numbers."""
    if isinstance(value, dict):
        kept = value.keys() - VOLATILE - CACHE_STATE
        return {key: comparable(value[key]) for key in sorted(kept)}
    if isinstance(value, list | tuple):
        return [comparable(one) for one in value]
    return pytest.approx(value, abs=1e-3) if isinstance(value, float) else value
