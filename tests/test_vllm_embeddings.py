"""A pooling model on real vLLM: texts in, vectors out, and nothing decoded."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blend.core.engines.vllm import VllmEngine
from tests.tiny_engine import CHAT, CONTEXT, EMBEDDINGS, answer, chat, run, settings

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]

POOLING = {"runner": "pooling", "convert": "embed"}
TEXTS = ["the sea", "how many apples does she have?", "the wind and a small boat"]


def vectors(model: Path, prompts: list[list[int]]) -> Any:
    """The last hidden state of each prompt, of length one: what `--convert embed` pools."""
    import torch
    from transformers import AutoModel

    loaded = AutoModel.from_pretrained(model, torch_dtype=torch.float32)
    with torch.no_grad():
        last = [loaded(torch.tensor([ids])).last_hidden_state[0, -1].numpy() for ids in prompts]
    return np.array([vector / np.linalg.norm(vector) for vector in last])


def ids_of(model: Path, texts: list[str]) -> list[list[int]]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    return [tokenizer(text)["input_ids"] for text in texts]


def test_texts_become_the_vectors_of_the_model(tiny_model_dir: Path, tmp_path: Path) -> None:
    """One engine answers all of it: starting one costs more than the rest."""
    ids = ids_of(tiny_model_dir, TEXTS)
    expected = vectors(tiny_model_dir, ids)
    bodies = [
        {"input": TEXTS[0]},
        {"input": TEXTS},
        {"input": ids[1]},
        {"input": ids, "encoding_format": "base64"},
        {"input": [[5] * CONTEXT]},
        {"input": [[5] * (CONTEXT + 1)]},
        {"input": 5},
        {},
    ]
    engine = VllmEngine.start(settings(tiny_model_dir, tmp_path / "engine.log", **POOLING))
    try:
        completions, reports = run(engine, [(EMBEDDINGS, body) for body in bodies], sequences=1)
        refused, error = answer(engine, CHAT, chat())
    finally:
        engine.close()
    answers = [json.loads(completion.body) for completion in completions]

    assert [c.status_code for c in completions] == [200, 200, 200, 200, 200, 400, 400, 400]
    assert embedded(answers[0]) == pytest.approx(expected[:1], abs=1e-4)
    assert embedded(answers[1]) == pytest.approx(expected, abs=1e-4)
    assert embedded(answers[2]) == pytest.approx(expected[1:2], abs=1e-4)
    assert decoded(answers[3]) == pytest.approx(expected, abs=1e-4)
    assert [c.prompt_tokens for c in completions[:2]] == [len(ids[0]), sum(map(len, ids))]
    assert {c.finish_reason for c in completions[:5]} == {"stop"}
    assert {c.completion_tokens for c in completions} == {0}
    assert sum(report.decode_tokens for report in reports) == 0
    assert reports[-1].running == reports[-1].waiting == 0
    assert refused.status_code == 400
    assert "does not serve /v1/chat/completions" in error["error"]["message"]


def embedded(answer: Any) -> Any:
    return np.array([one["embedding"] for one in answer["data"]])


def decoded(answer: Any) -> Any:
    raw = [base64.b64decode(one["embedding"]) for one in answer["data"]]
    return np.array([np.frombuffer(vector, "<f4") for vector in raw])
