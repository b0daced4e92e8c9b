"""Responses and embeddings, from a line of a file to its result."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blend.cli.app import main
from blend.core.engines.openai_wire import BadAnswerError, Response, completion_of
from blend.core.engines.sim import SimEngine
from blend.core.engines.usage import usage_of
from blend.core.input.limits import with_limit
from blend.core.input.validate import output_tokens, too_long
from blend.core.planning.hardware import hardware_preset, model_preset
from blend.core.planning.plan import make_plan
from blend.core.rendering.tokenizer import load_tokenizer
from blend.core.rendering.tokens import Rendered, render
from blend.core.request import Endpoint, Request
from blend.core.schedule import POLICIES, Policy
from blend.store.job import Job
from tests.batch_files import read_lines, write_requests
from tests.prompt_sets import prompts_of, token_lists
from tests.request_lines import accepted, embedding, rejected, response
from tests.small_jobs import capacity, step_s

USER = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("line", "reason", "words"),
    [
        (response(store=True), "bad field", "keeps no state"),
        (response(background=True), "bad field", "keeps no state"),
        (response(previous_response_id="resp_1"), "bad field", "keeps no state"),
        (response(conversation="conv_1"), "bad field", "keeps no state"),
        (response(prompt={"id": "pmpt_1"}), "bad field", "OpenAI's platform"),
        (response(input=[{"type": "item_reference", "id": "x"}]), "bad messages", "no state"),
        (response(input=None), "missing prompt", "`input` is missing"),
        (response(input=[]), "bad prompt", "`input` must be"),
        (response(input=[[1, 2]]), "bad messages", "`input[0]` must be an object"),
        (response(input=[{"role": "robot", "content": "hi"}]), "unknown role", "`input[0].role`"),
        (response(input=[{"type": "function_call", "name": "f"}]), "bad messages", "`call_id`"),
        (response(stream=True), "stream", "`stream`"),
        (response(max_output_tokens=0), "bad max_tokens", "`max_output_tokens`"),
        (response(temperature=3), "bad field", "`temperature`"),
        (response(tools=[{"name": "f"}]), "bad field", "`tools`"),
        (embedding(input=None), "missing prompt", "`input` is missing"),
        (embedding(input=""), "bad prompt", "`input` must be"),
        (embedding(input=[1, "a"]), "bad prompt", "`input` must be"),
        (embedding(input=[[]]), "bad prompt", "`input` must be"),
        (embedding(encoding_format="bytes"), "bad field", "`encoding_format`"),
        (embedding(dimensions=0), "bad field", "`dimensions`"),
    ],
)
def test_what_no_batch_can_serve_is_refused_by_name(line: str, reason: str, words: str) -> None:
    rejection = rejected(line)

    assert rejection.reason == reason
    assert words in rejection.message


@pytest.mark.parametrize(
    ("line", "sequences", "max_tokens"),
    [
        (response(), 1, None),
        (response(store=False, background=False, previous_response_id=None), 1, None),
        (response(max_output_tokens=7, max_tokens=3, n=5), 1, 7),
        (response(input=[USER, {"type": "web_search_call", "id": "ws_1"}]), 1, None),
        (embedding(), 1, 0),
        (embedding(input=[1, 2, 3], max_tokens=9), 1, 0),
        (embedding(input=["a", "b"], encoding_format="base64"), 2, 0),
        (embedding(input=[[1], [2], [3, 4]]), 3, 0),
    ],
)
def test_a_line_says_how_many_answers_it_asks_for_and_how_long(
    line: str, sequences: int, max_tokens: int | None
) -> None:
    draft = accepted(line)

    assert (draft.sequences, draft.max_tokens) == (sequences, max_tokens)


def test_a_text_to_embed_may_fill_the_context_and_gets_no_output() -> None:
    draft = accepted(embedding())

    assert too_long(draft, prompt_tokens=100, context_tokens=100) is None
    assert too_long(draft, prompt_tokens=101, context_tokens=100) is not None
    assert output_tokens(draft, prompt_tokens=40, context_tokens=100) == 0


def test_a_limit_beyond_the_context_is_named_as_the_endpoint_names_it() -> None:
    draft = accepted(response(max_output_tokens=101))
    rejection = too_long(draft, prompt_tokens=5, context_tokens=100)

    assert rejection is not None
    assert "`max_output_tokens` is 101" in rejection.message


def test_the_tokens_of_an_embedding_are_those_of_its_texts(tiny_tokenizer_dir: Path) -> None:
    tokenizer = load_tokenizer(str(tiny_tokenizer_dir))
    lines = [embedding(input=["the sea", "a boat"]), embedding(input=[[5, 6], [7]])]
    texts, ids = render(tokenizer, [accepted(line) for line in lines])
    expected = [tokenizer.hf(text)["input_ids"] for text in ("the sea", "a boat")]

    assert isinstance(texts, Rendered)
    assert isinstance(ids, Rendered)
    assert texts.tokens.tolist() == [token for ids in expected for token in ids]
    assert (ids.tokens.tolist(), ids.lengths) == ([5, 6, 7], (2, 1))


def test_a_cut_text_to_embed_keeps_the_whole_context(tiny_tokenizer_dir: Path) -> None:
    tokenizer = replace(load_tokenizer(str(tiny_tokenizer_dir)), context_tokens=10)
    line = embedding(input=list(range(20)), truncate_prompt_tokens=-1)
    [cut] = render(tokenizer, [accepted(line)])

    assert isinstance(cut, Rendered)
    assert cut.tokens.tolist() == list(range(10, 20))


def test_a_response_without_a_chat_template_is_refused(tiny_tokenizer_dir: Path) -> None:
    tokenizer = replace(load_tokenizer(str(tiny_tokenizer_dir)), template=None)
    [refused] = render(tokenizer, [accepted(response())])

    assert not isinstance(refused, Rendered)
    assert refused.reason == "template refused"


limits = st.sampled_from([0, 0, 1, 16, 500])


@given(st.data(), token_lists, st.sampled_from(POLICIES))
def test_rows_without_an_answer_are_planned_like_any_other(
    data: st.DataObject, token_ids: list[list[int]], policy: Policy
) -> None:
    max_tokens = [data.draw(limits) for _ in token_ids]
    plan = make_plan(
        prompts_of(token_ids, max_tokens=max_tokens),
        policy=policy,
        hardware=hardware_preset("a100-80g"),
        model=model_preset("llama-3-8b"),
    )
    figures = [getattr(plan.prediction, name) for name in type(plan.prediction).__slots__]

    assert sorted(plan.schedule.order.tolist()) == list(range(len(token_ids)))
    assert np.isfinite(plan.schedule.density).all()
    assert np.isfinite(figures).all()
    if not any(max_tokens):
        assert plan.prediction.output_tokens == 0


def request(
    endpoint: Endpoint, body: dict[str, Any], *, max_tokens: int, sequences: int = 1
) -> Any:
    prompt = np.arange(8, dtype=np.uint32)
    raw = orjson.dumps(body)
    return Request(0, "a", endpoint, raw, prompt, max_tokens, sequences=sequences)


def simulated(one: Request, *, tokens: int) -> tuple[Any, Any]:
    engine = SimEngine(capacity(320), step_s=step_s, output_tokens=lambda _: tokens)
    engine.submit(one)
    while not (done := engine.step().completions):
        pass
    return done[0], orjson.loads(done[0].body)


@pytest.mark.parametrize(
    ("tokens", "status", "reason"), [(3, "completed", "stop"), (4, "incomplete", "length")]
)
def test_the_simulated_engine_answers_a_response(tokens: int, status: str, reason: str) -> None:
    done, body = simulated(request("/v1/responses", {"input": "hi"}, max_tokens=4), tokens=tokens)

    assert (body["object"], body["status"]) == ("response", status)
    assert body["usage"]["output_tokens"] == done.completion_tokens == tokens
    assert done.finish_reason == reason
    assert usage_of("/v1/responses", body).finish_reason == reason


def test_the_simulated_engine_embeds_each_text_and_writes_nothing() -> None:
    one = request("/v1/embeddings", {"input": ["a", "b"]}, max_tokens=0, sequences=2)
    done, body = simulated(one, tokens=5)

    assert [part["index"] for part in body["data"]] == [0, 1]
    assert (done.prompt_tokens, done.completion_tokens) == (8, 0)
    assert done.finish_reason == "stop"


@pytest.mark.parametrize(
    ("endpoint", "body", "expected"),
    [
        (
            "/v1/responses",
            {
                "status": "incomplete",
                "incomplete_details": {"reason": "max_output_tokens"},
                "output": [],
                "usage": {
                    "input_tokens": 5,
                    "output_tokens": 2,
                    "input_tokens_details": {"cached_tokens": 3},
                },
            },
            ("length", 5, 2, 3),
        ),
        (
            "/v1/responses",
            {
                "status": "incomplete",
                "incomplete_details": {"reason": "content_filter"},
                "output": [],
            },
            ("content_filter", 0, 0, 0),
        ),
        ("/v1/responses", {"output": [{}], "usage": None}, ("stop", 0, 0, 0)),
        (
            "/v1/embeddings",
            {"data": [{"embedding": [1.0]}], "usage": {"prompt_tokens": 4, "total_tokens": 4}},
            ("stop", 4, 0, 0),
        ),
    ],
)
def test_a_servers_answer_says_what_it_used(
    endpoint: Endpoint, body: dict[str, Any], expected: tuple[str, int, int, int]
) -> None:
    asked = request(endpoint, {"input": "hi"}, max_tokens=4)
    done = completion_of(asked, Response(200, json.dumps(body).encode()), started=0, finished=1)

    assert (
        done.finish_reason,
        done.prompt_tokens,
        done.completion_tokens,
        done.cached_tokens,
    ) == expected


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        ("/v1/responses", {"choices": [{}]}),
        ("/v1/responses", {"output": None}),
        ("/v1/embeddings", {"data": []}),
        ("/v1/embeddings", {"choices": [{}]}),
    ],
)
def test_the_object_of_another_endpoint_is_no_answer(
    endpoint: Endpoint, body: dict[str, Any]
) -> None:
    asked = request(endpoint, {"input": "hi"}, max_tokens=4)
    with pytest.raises(BadAnswerError, match=r"has no `(output|data)`"):
        completion_of(asked, Response(200, json.dumps(body).encode()), started=0, finished=1)


def line(number: int, url: str, **body: Any) -> dict[str, Any]:
    return {"custom_id": f"r-{number}", "method": "POST", "url": url, "body": body}


def mixed_endpoints(count: int) -> list[dict[str, Any]]:
    """Every second row an embedding, the others responses and chats."""
    kinds = [
        ("/v1/embeddings", {"input": ["the sea and the wind", "a boat"]}),
        ("/v1/responses", {"input": "the sea", "max_output_tokens": 40}),
        ("/v1/embeddings", {"input": "the sea and the wind"}),
        ("/v1/chat/completions", {"messages": [USER], "max_tokens": 40}),
    ]
    return [line(i, kinds[i % 4][0], **kinds[i % 4][1]) for i in range(count)]


@pytest.mark.parametrize("only_embeddings", [False, True], ids=["mixed", "only embeddings"])
def test_a_job_with_embeddings_runs_from_end_to_end(
    only_embeddings: bool, tmp_path: Path, tiny_tokenizer_dir: Path, capsys: Any
) -> None:
    lines = [one for one in mixed_endpoints(40) if not only_embeddings or "emb" in one["url"]]
    source, output = write_requests(tmp_path / "in.jsonl", lines), tmp_path / "out.jsonl"
    model = str(tiny_tokenizer_dir)
    code = main(["run", "-i", str(source), "-o", str(output), "-m", model, "--engine", "sim"])
    results = read_lines(output)
    with Job.open(tmp_path / "out.blend") as job:
        counts = job.counts()

    assert code == 0
    assert [result["custom_id"] for result in results] == [one["custom_id"] for one in lines]
    for asked, result in zip(lines, results, strict=True):
        if asked["url"] == "/v1/embeddings":
            given = asked["body"]["input"]
            assert len(result["response"]["body"]["data"]) == (1 if type(given) is str else 2)
    assert (counts.output_tokens == 0) == only_embeddings
    capsys.readouterr()
    assert main(["show", str(tmp_path / "out.blend"), "request", lines[1]["custom_id"]]) == 0
    assert main(["status", str(tmp_path / "out.blend")]) == 0


@pytest.mark.parametrize(
    ("endpoint", "body", "raised"),
    [
        ("/v1/responses", {"input": "x"}, {"input": "x", "max_output_tokens": 9}),
        ("/v1/responses", {"max_output_tokens": 4}, {"max_output_tokens": 9}),
        ("/v1/chat/completions", {"max_completion_tokens": 4}, {"max_completion_tokens": 9}),
        ("/v1/chat/completions", {"max_tokens": 4}, {"max_tokens": 9}),
        ("/v1/completions", {"prompt": "x"}, {"prompt": "x", "max_tokens": 9}),
    ],
)
def test_a_limit_is_raised_under_the_name_of_its_endpoint(
    endpoint: Endpoint, body: dict[str, Any], raised: dict[str, Any]
) -> None:
    assert json.loads(with_limit(endpoint, json.dumps(body).encode(), 9)) == raised
