"""vLLM's own scheduler, in process, keeps a pace and starves nobody."""

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blend.core.engines import Capacity, vllm_pace
from blend.core.engines.vllm_pace import PACE_VARIABLE, SharedPace, paced_scheduler
from tests.vllm_scheduler import (
    Scheduled,
    complete,
    quiet_vllm,
    schedule,
    vllm_request,
    vllm_scheduler,
)

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]

CAPACITY = Capacity(
    kv_tokens=16 * 400, max_sequences=24, step_tokens=512, context_tokens=512, block_tokens=16
)


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    with quiet_vllm():
        yield


@pytest.fixture
def pace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SharedPace:
    monkeypatch.setenv(PACE_VARIABLE, str(tmp_path / "pace"))
    return SharedPace.create(tmp_path / "pace")


class Run:
    """A scheduler with work; asynchronous ones schedule a step before the last is computed."""

    def __init__(self, scheduler: Any, *, seed: int = 0, ahead: bool = False):
        self.scheduler = scheduler
        self._rng = np.random.default_rng(seed)
        self._ahead = ahead
        self._under_way: deque[Scheduled] = deque()
        self._rows = 0

    def add(self, prompt_tokens: int, output_tokens: int) -> None:
        prompt = self._rng.integers(5, 400, prompt_tokens).tolist()
        self.scheduler.add_request(
            vllm_request(self._rows, prompt, output_tokens=output_tokens, block_tokens=16)
        )
        self._rows += 1

    def step(self) -> Scheduled:
        step = schedule(self.scheduler)
        self._under_way.append(step)
        if not self._ahead or len(self._under_way) == 2:
            complete(self.scheduler, self._under_way.popleft(), self._rng)
        return step

    def steps(self) -> Iterator[Scheduled]:
        while self.scheduler.has_unfinished_requests():
            yield self.step()


def due(scheduler: Any) -> set[str]:
    """Return the running requests that decode and whose last token is not under way."""
    return {
        one.request_id
        for one in scheduler.running
        if not one.is_prefill_chunk
        and one.num_tokens + one.num_output_placeholders < one.num_prompt_tokens + one.max_tokens
    }


@pytest.mark.parametrize("ahead", [False, True], ids=["synchronous", "asynchronous"])
@pytest.mark.parametrize("threshold", [0, 24])
def test_no_step_computes_more_than_the_pace_and_none_leaves_a_decode_out(
    ahead: bool, threshold: int, pace: SharedPace, tiny_tokenizer_dir: Path
) -> None:
    """With a threshold several prompts are unfinished at once, some before those that decode."""
    scheduler = vllm_scheduler(
        replace(CAPACITY, prefill_threshold=threshold),
        tiny_tokenizer_dir,
        build=paced_scheduler,
        async_scheduling=ahead,
    )
    run = Run(scheduler, ahead=ahead)
    rng = np.random.default_rng(1)
    for _ in range(150):
        run.add(int(rng.integers(1, 200)), int(rng.integers(1, 40)))
    prefilled = full = steps = 0
    waits = True
    while scheduler.has_unfinished_requests():
        pace.prefill_tokens = limit = int(rng.choice([1, 16, 64]))
        decoding, waits = due(scheduler), bool(scheduler.waiting)
        step = run.step()
        steps += 1
        prefilled += step.prefill_tokens
        full += step.prefill_tokens == limit

        assert pace.kept
        assert step.prefill_tokens <= limit
        if not step.output.preempted_req_ids:
            assert step.decoding == decoding
        if waits and len(scheduler.running) < CAPACITY.max_sequences and not threshold:
            assert step.prefill_tokens == limit

    assert full > 0.4 * steps


def test_without_a_limit_the_steps_are_those_of_the_stock_scheduler(
    pace: SharedPace, tiny_tokenizer_dir: Path
) -> None:
    tokens = []
    for build in (None, paced_scheduler):
        run = Run(vllm_scheduler(CAPACITY, tiny_tokenizer_dir, build=build))
        for number in range(60):
            run.add(5 + 3 * number, 1 + number % 30)
        tokens.append([step.output.num_scheduled_tokens for step in run.steps()])

    assert pace.kept
    assert tokens[0] == tokens[1]


def test_a_prompt_that_is_computed_whole_or_not_at_all_does_not_stop_the_engine(
    pace: SharedPace, tiny_tokenizer_dir: Path
) -> None:
    scheduler = vllm_scheduler(CAPACITY, tiny_tokenizer_dir, build=paced_scheduler)
    scheduler._reserve_prefill_lookahead = lambda request, computed, tokens: (
        tokens if computed + tokens >= request.num_prompt_tokens else 0
    )
    pace.prefill_tokens = 16
    run = Run(scheduler)
    run.add(100, 3)
    prefilled = [run.step().prefill_tokens for _ in range(4)]

    assert prefilled == [0, 100, 0, 0]
    assert not scheduler.has_unfinished_requests()


def test_an_engine_that_was_idle_begins_at_the_pace(
    pace: SharedPace, tiny_tokenizer_dir: Path
) -> None:
    pace.prefill_tokens = 16
    run = Run(vllm_scheduler(CAPACITY, tiny_tokenizer_dir, build=paced_scheduler))
    idle = run.step().prefill_tokens
    run.add(100, 3)

    assert (idle, run.step().prefill_tokens) == (0, 16)


@pytest.mark.parametrize("obstacle", ["whole prompts", "release"])
def test_a_scheduler_that_cannot_keep_the_pace_says_so_and_works_as_ever(
    obstacle: str,
    pace: SharedPace,
    tiny_tokenizer_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if obstacle == "release":
        monkeypatch.setattr(vllm_pace, "_OF_REQUEST", ("absent_count",))
    scheduler = vllm_scheduler(
        CAPACITY,
        tiny_tokenizer_dir,
        build=paced_scheduler,
        enable_chunked_prefill=obstacle != "whole prompts",
    )
    pace.prefill_tokens = 16
    run = Run(scheduler)
    run.add(100, 3)

    assert not pace.kept
    assert run.step().prefill_tokens == 100
    assert ("whole" if obstacle == "whole prompts" else "absent_count") in caplog.text
