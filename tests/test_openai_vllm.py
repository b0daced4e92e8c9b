"""The engine over HTTP against a real `vllm serve` on loopback."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from blend.cli.app import main
from blend.core.engines.openai import OpenAIEngine
from blend.core.engines.openai_messages import ServerSettings
from blend.core.engines.openai_retry import Patience
from blend.store.job import Job
from tests.batch_files import mixed, read_lines, write_requests
from tests.tiny_engine import (
    CHAT,
    CONTEXT,
    EMBEDDINGS,
    RESPONSES,
    TEXT,
    chat,
    request,
    text,
)
from tests.vllm_reference import KEY

pytestmark = pytest.mark.vllm

CACHE_TOKENS = (64 << 20) // 2048 - 32
PATIENCE = Patience(start_s=240, outage_s=1.0, first_s=0.05)


@contextmanager
def opened(url: str, *, concurrency: int = 16) -> Iterator[OpenAIEngine]:
    settings = ServerSettings(url, "tiny", KEY, concurrency, patience=PATIENCE)
    engine = OpenAIEngine(settings)
    try:
        yield engine
    finally:
        engine.close()


def test_the_server_tells_its_capacity_and_answers_as_it_would_anybody(server: str) -> None:
    with opened(server) as engine:
        capacity = engine.capacity
        bodies = [
            (CHAT, chat(ignore_eos=True, model="another")),
            (TEXT, text("apples " * 200, n=2, temperature=1.0, seed=1)),
            (TEXT, text("apples " * 2000)),
            (CHAT, chat(temperature=-5)),
            (TEXT, text("apples " * 200)),
            (RESPONSES, {"input": "apples", "max_output_tokens": 4, "ignore_eos": True}),
            (EMBEDDINGS, {"input": "apples"}),
        ]
        for row, (endpoint, body) in enumerate(bodies):
            engine.submit(request(row, endpoint, body, sequences=body.get("n", 1)))
        completions = {}
        while len(completions) < len(bodies):
            completions |= {c.row: c for c in engine.step().completions}

    assert (capacity.kv_tokens, capacity.block_tokens) == (CACHE_TOKENS, 32)
    assert (capacity.context_tokens, capacity.max_sequences) == (CONTEXT, 16)
    assert [completions[row].status_code for row in range(6)] == [200, 200, 400, 400, 200, 200]
    assert completions[0].completion_tokens == 8
    assert completions[0].finish_reason == "length"
    assert b"context length" in completions[2].body
    assert (completions[5].completion_tokens, completions[5].finish_reason) == (4, "length")
    # This model embeds nothing.
    assert completions[6].status_code in {404, 501}


def test_abort_reaches_the_server_and_a_run_goes_on(server: str) -> None:
    with opened(server, concurrency=4) as engine:
        for row in range(12):
            engine.submit(request(row, TEXT, text(max_tokens=900, ignore_eos=True)))
        engine.step()
        aborted = engine.abort()
        engine.submit(request(12, TEXT, text()))
        report = engine.step()
        while not report.completions:
            report = engine.step()

    assert len(aborted.tokens) + len(aborted.report.completions) == 12
    assert [c.status_code for c in report.completions] == [200]


def test_a_job_runs_from_end_to_end_and_its_prompts_are_those_of_the_plan(
    server: str, tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    source = write_requests(tmp_path / "in.jsonl", mixed(30))
    output = tmp_path / "out.jsonl"
    argv = [
        *("run", "-i", str(source), "-o", str(output), "-m", str(tiny_model_dir)),
        *("--engine", "openai", "--base-url", server, "--served-model-name", "tiny"),
        *("--max-model-len", str(CONTEXT), "--concurrency", "16"),
    ]
    code = main(argv)

    assert code == 0
    assert [line["custom_id"] for line in read_lines(output)] == [r["custom_id"] for r in mixed(30)]
    with Job.open(tmp_path / "out.blend") as job:
        counts = job.counts()
        assert [c.prompt_tokens for _, c in job.results()] == job.sizes().prompt_tokens.tolist()
    assert counts.cached_tokens > 0
