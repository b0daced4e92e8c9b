"""Request bodies keep every byte but the model's name; what comes back is JSON or an error."""

import json
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blend.core.engines.openai_metrics import ServerCache, server_cache
from blend.core.engines.openai_wire import BadAnswerError, Response, completion_of, with_model
from blend.core.request import Request

REQUEST = Request(3, "id-3", "/v1/completions", b"{}", np.zeros(5, np.uint32), 16)


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        ('{"model": "m", "n": 1e2}', '{"model": "served", "n": 1e2}'),
        ('{"a": {"model": "m"}, "model":null}', '{"a": {"model": "m"}, "model":"served"}'),
        ('{"prompt": "\\u0000 x"}', '{"model": "served", "prompt": "\\u0000 x"}'),
        ("{ }", '{"model": "served" }'),
        ('{"model": "m", "model": "o"}', '{"model": "served", "model": "served"}'),
        ('{"mod\\u0065l": "m"}', '{"mod\\u0065l": "served"}'),
        (
            '{"seed": 123456789012345678901234567890}',
            '{"model": "served", "seed": 123456789012345678901234567890}',
        ),
    ],
)
def test_only_the_name_of_the_model_is_replaced(body: str, sent: str) -> None:
    assert with_model(body.encode(), "served").decode() == sent


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.text() | st.just("model"), JSON, max_size=5),
    st.text(st.characters(exclude_categories=["Cs"])),
)
def test_any_body_asks_for_the_model_and_is_otherwise_the_same(
    fields: dict[str, Any], model: str
) -> None:
    sent = with_model(json.dumps(fields).encode(), model)

    assert json.loads(sent) == {**fields, "model": model}


@pytest.mark.parametrize(
    "body", [b"", b"half a", b"[]", b"null", b'{"choices": []}', b'{"choices": null}', b'"x"']
)
def test_a_200_without_a_response_object_is_a_bad_answer(body: bytes) -> None:
    with pytest.raises(BadAnswerError):
        completion_of(REQUEST, Response(200, body), started=0, finished=1)


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        {"prompt_tokens": None},
        {"prompt_tokens": "many"},
        {"prompt_tokens": -1, "completion_tokens": 2**63 - 1},
        7,
    ],
)
def test_an_answer_without_usage_counts_no_tokens(usage: Any) -> None:
    body = orjson.dumps({"choices": [{"finish_reason": "length"}, 5], "usage": usage})
    completion = completion_of(REQUEST, Response(200, body), started=0, finished=1)

    assert completion.body == body
    assert (completion.prompt_tokens, completion.completion_tokens) == (0, 0)
    assert completion.finish_reason == "length"


@pytest.mark.parametrize("body", [b"", b"<html>\x1b[31m", b"\xff\xfe", b'{"detail": "no"}'])
def test_an_errors_body_is_json_in_any_case(body: bytes) -> None:
    completion = completion_of(REQUEST, Response(404, body), started=0, finished=1)

    assert completion.status_code == 404
    assert isinstance(orjson.loads(completion.body), dict)


def test_the_cache_of_a_server_is_read_from_its_metrics() -> None:
    page = """# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="101"} 1.0
vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="51"} 1.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.25
python_info{version="3.11"} 1.0
"""

    assert server_cache(page) == ServerCache(2400, 16, 0.375)


@pytest.mark.parametrize(
    "page",
    ["", "hello", 'vllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1.0', "x" * 9999],
)
def test_metrics_without_a_cache_tell_of_none(page: str) -> None:
    assert server_cache(page) is None
