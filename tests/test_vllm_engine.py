"""vLLM as an engine: what it answers, in which order, and what it reports."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from blend.core.engines.vllm import VllmEngine
from blend.core.request import Endpoint
from tests.tiny_engine import CHAT, CONTEXT, TEXT, Body, answer, chat, request, run, text

pytestmark = pytest.mark.vllm


def test_starting_does_not_wait_and_capacity_does(engine: VllmEngine) -> None:
    capacity = engine.capacity

    # 4 layers of 2 heads of 32 floats, keys and values: 2 KiB a token.
    assert capacity.kv_tokens == (64 << 20) // 2048 - 32
    assert capacity.max_sequences == 16
    assert capacity.context_tokens == CONTEXT
    assert capacity.block_tokens == 32
    assert engine.wait_ready(0)
    assert re.match(r"\d+\.\d+", engine.version)


def test_a_chat_is_answered_with_its_usage(engine: VllmEngine) -> None:
    before = time.time()
    completion, body = answer(engine, CHAT, chat(ignore_eos=True, model="another"))

    assert completion.status_code == 200
    assert completion.finish_reason == body["choices"][0]["finish_reason"] == "length"
    assert body["object"] == "chat.completion"
    assert body["model"] == "tiny"
    assert completion.completion_tokens == body["usage"]["completion_tokens"] == 8
    assert completion.prompt_tokens == body["usage"]["prompt_tokens"] > 0
    assert before <= completion.started <= completion.finished <= time.time()


TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"wet": {"type": "boolean"}},
            "required": ["wet"],
            "additionalProperties": False,
        },
    },
}
SCHEMA = TOOL["function"]["parameters"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("endpoint", "body", "holds"),
    [
        (CHAT, chat(n=2, seed=1, temperature=1), lambda b: len(b["choices"]) == 2),
        (CHAT, chat(seed=2**60, top_p=None, logit_bias={"5": -100}), lambda b: b["choices"]),
        (CHAT, chat(unknown={"big": 2**80}), lambda b: b["choices"]),
        (
            CHAT,
            chat(logprobs=True, top_logprobs=2),
            lambda b: len(b["choices"][0]["logprobs"]["content"][0]["top_logprobs"]) == 2,
        ),
        (
            CHAT,
            chat(stop=list("aei "), max_tokens=200),
            lambda b: not set("aei ") & set(b["choices"][0]["message"]["content"]),
        ),
        (
            CHAT,
            chat(
                max_tokens=100,
                temperature=1,
                seed=1,
                response_format={
                    "type": "json_schema",
                    "json_schema": {"name": "w", "schema": SCHEMA, "strict": True},
                },
            ),
            lambda b: "wet" in json.loads(b["choices"][0]["message"]["content"]),
        ),
        (
            CHAT,
            chat(tools=[TOOL], tool_choice="required", max_tokens=200, temperature=1, seed=1),
            lambda b: b["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "weather",
        ),
        (CHAT, chat(tools=[TOOL], tool_choice="auto"), lambda b: b["choices"]),
        (
            CHAT,
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]},
            lambda b: b["usage"]["completion_tokens"] > 0,
        ),
        (TEXT, text(), lambda b: b["object"] == "text_completion"),
        (TEXT, text(["the sea", "a boat"], n=2, seed=1), lambda b: len(b["choices"]) == 4),
        (TEXT, text([5, 6, 7]), lambda b: b["usage"]["prompt_tokens"] == 3),
        (TEXT, text([[5, 6, 7], [8]]), lambda b: b["usage"]["prompt_tokens"] == 4),
        (TEXT, text("the sea", echo=True), lambda b: b["choices"][0]["text"].startswith("the sea")),
        (
            TEXT,
            text(logprobs=1),
            lambda b: len(b["choices"][0]["logprobs"]["token_logprobs"]) > 0,
        ),
        (TEXT, text(use_beam_search=True, n=2), lambda b: len(b["choices"]) == 2),
    ],
    # Not by the address of a function: every worker is to know a test by the same name.
    ids=lambda value: "holds" if callable(value) else str(value),
)
def test_a_field_means_what_it_means_to_vllm(
    engine: VllmEngine, endpoint: Endpoint, body: Body, holds: Callable[[Any], Any]
) -> None:
    completion, response = answer(engine, endpoint, body)

    assert completion.status_code == 200, response
    assert holds(response)


@pytest.mark.parametrize(
    ("endpoint", "body", "names"),
    [
        (CHAT, chat(temperature=-1), "temperature"),
        (CHAT, chat(max_tokens="many"), "max_tokens"),
        (CHAT, chat(n=0), "n must be"),
        (CHAT, chat(n=2, temperature=0), "greedy"),
        (CHAT, chat(stream=True), "stream"),
        (CHAT, {"messages": []}, "message"),
        (CHAT, {}, "messages"),
        (CHAT, chat(seed=2**70), "seed"),
        (TEXT, text(max_tokens=0), "max_tokens"),
        (TEXT, {"max_tokens": 1}, "prompt"),
        (TEXT, text([10**8]), "vocabulary"),
    ],
    ids=str,
)
def test_a_refused_request_is_an_answer_and_harms_nobody(
    engine: VllmEngine, endpoint: Endpoint, body: Body, names: str
) -> None:
    completions, _ = run(engine, [(TEXT, text()), (endpoint, body), (CHAT, chat())])
    error = json.loads(completions[1].body)["error"]

    assert [completion.status_code for completion in completions] == [200, 400, 200]
    assert names in error["message"]
    assert error["code"] == 400
    assert len(error["message"]) < 500


@pytest.mark.parametrize("endpoint", [CHAT, TEXT])
def test_too_many_tokens_are_cut_to_the_context_unless_it_could_never_hold_them(
    engine: VllmEngine, endpoint: Endpoint
) -> None:
    def body(**fields: Any) -> Body:
        return (chat if endpoint == CHAT else text)("zz " * 200, ignore_eos=True, **fields)

    completions, _ = run(
        engine,
        [
            (endpoint, body(max_tokens=CONTEXT)),
            (endpoint, body(max_tokens=CONTEXT + 1)),
            (TEXT, text([5] * (CONTEXT - 1), max_tokens=100, ignore_eos=True)),
            (TEXT, text([5] * CONTEXT, max_tokens=100)),
            (TEXT, text([5] * (CONTEXT + 1), max_tokens=1)),
        ],
    )

    assert [completion.status_code for completion in completions] == [200, 400, 200, 400, 400]
    assert completions[0].prompt_tokens + completions[0].completion_tokens == CONTEXT
    assert completions[0].finish_reason == "length"
    assert completions[2].completion_tokens == 1


def test_requests_enter_in_the_order_of_submission(engine: VllmEngine, log_path: Path) -> None:
    """Long prompts take longer to render, refused ones never enter, a list enters as one."""
    engine.wait_ready()
    read = log_path.stat().st_size
    bodies: list[tuple[Endpoint, Body]] = []
    for number in range(40):
        words = "the sea and the wind " * (0 if number % 3 else 40) + str(number)
        body = chat(words) if number % 2 else text([words, words])
        body |= {"request_id": f"q{number}", "max_tokens": 2}
        bodies.append((CHAT if number % 2 else TEXT, body))
        bodies.append((CHAT, chat(temperature=-1, request_id="refused")))
    run(engine, bodies)
    log = log_path.read_bytes()[read:].decode()
    entered = [
        a or b for a, b in re.findall(r"Added request (?:chatcmpl-(q\d+)|cmpl-(q\d+-\d))-", log)
    ]

    names = [[f"q{n}"] if n % 2 else [f"q{n}-0", f"q{n}-1"] for n in range(40)]
    assert entered == [name for group in names for name in group]


def test_reports_add_up_to_the_usage_of_the_requests(engine: VllmEngine) -> None:
    prefix = [7, 8, 9, 10] * 40
    bodies = [(TEXT, text([*prefix, 11, n], max_tokens=5 + n, ignore_eos=True)) for n in range(50)]
    completions, reports = run(engine, bodies)

    prompt = sum(completion.prompt_tokens for completion in completions)
    cached = sum(completion.cached_tokens for completion in completions)
    output = sum(completion.completion_tokens for completion in completions)
    assert prompt == 50 * 162
    assert cached == sum(report.cached_tokens for report in reports) >= 49 * 160
    assert sum(report.prefill_tokens for report in reports) + cached == prompt
    # The first token of an answer comes out of the prompt's own step.
    assert sum(report.decode_tokens for report in reports) == output - len(bodies)
    assert sum(report.preemptions for report in reports) == 0
    assert sum(report.steps for report in reports) > 50


def test_gauges_stay_within_the_capacity_and_end_at_zero(engine: VllmEngine) -> None:
    """How many run or wait in a report depends on who is how fast; the bounds do not."""
    capacity = engine.capacity
    bodies = [(TEXT, text([n] * 40, max_tokens=60, n=2, ignore_eos=True)) for n in range(5, 55)]
    _, reports = run(engine, bodies, sequences=2)

    assert all(0 <= report.running <= capacity.max_sequences for report in reports)
    assert all(0 <= report.running + report.waiting <= 100 for report in reports)
    assert all(0 <= report.kv_tokens <= capacity.kv_tokens for report in reports)
    assert (reports[-1].running, reports[-1].waiting) == (0, 0)
    assert all(report.seconds >= 0 for report in reports)


def test_the_same_seed_gives_the_same_answer(engine: VllmEngine) -> None:
    body = chat(temperature=1, seed=5, max_tokens=20)
    completions, _ = run(engine, [(CHAT, body)] * 3)

    choices = {json.dumps(json.loads(completion.body)["choices"]) for completion in completions}
    assert len(choices) == 1


def test_aborted_requests_tell_how_far_they_were_and_leave_room_for_others(
    engine: VllmEngine,
) -> None:
    """So many rows that some are unfinished however fast the engine is."""
    rows = 2000
    for row in range(rows):
        engine.submit(request(row, TEXT, text(max_tokens=900 if row else 1, ignore_eos=True)))
    answered: set[int] = set()
    tokens = 0
    while tokens == 0:
        report = engine.step()
        tokens = report.decode_tokens if 0 in answered else 0
        answered |= {completion.row for completion in report.completions}
    ages = engine.ages()
    # What moved while it was asked is not lost.
    answered |= {completion.row for completion in engine.step().completions}
    aborted = engine.abort()
    answered |= {completion.row for completion in aborted.report.completions}

    assert 0 in answered
    assert set(aborted.tokens) == set(range(rows)) - answered
    assert ages.keys() >= aborted.tokens.keys()
    assert all(ages[row] <= tokens for row, tokens in aborted.tokens.items())
    assert max(aborted.tokens.values()) > 0
    # Sixteen sequences fit; the last had not begun.
    assert min(aborted.tokens.values()) == 0
    completion, _ = answer(engine, CHAT, chat())
    assert completion.status_code == 200
