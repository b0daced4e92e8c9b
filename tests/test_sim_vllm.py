"""The simulated engine takes the very steps that vLLM's own scheduler takes.

No model runs: vLLM's scheduler is given made-up tokens for what it schedules, and both are
compared step by step.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from blend.core.engines import Capacity
from blend.core.engines.sim import SimEngine
from tests.small_jobs import request, step_s
from tests.vllm_scheduler import complete, quiet_vllm, schedule, vllm_request, vllm_scheduler

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.filterwarnings("ignore"),
]

CONTEXT_TOKENS = 512
BLOCK_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Moment:
    """What both can say after a step."""

    scheduled_tokens: int
    cached_tokens: int
    preemptions: int
    running: int
    waiting: int
    blocks: int
    finished: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request and the step before which it arrives."""

    step: int
    prompt: npt.NDArray[np.uint32]
    output_tokens: int


def arrivals(rng: np.random.Generator, count: int) -> list[Arrival]:
    """Return requests with whole or partly shared prefixes, most with short answers."""
    prefixes = [rng.integers(5, 400, rng.integers(10, 200)) for _ in range(6)]
    steps = np.sort(rng.integers(0, 100, count))
    made = []
    for step in steps.tolist():
        prefix = prefixes[rng.integers(len(prefixes))]
        if rng.random() < 0.5:
            prefix = prefix[: rng.integers(5, len(prefix) + 1)]
        prompt = np.concatenate([prefix, rng.integers(5, 400, rng.integers(0, 40))])
        output_tokens = rng.integers(1, 200) if rng.random() < 0.4 else rng.integers(1, 4)
        made.append(Arrival(step, prompt.astype(np.uint32), int(output_tokens)))
    return made


def simulated(jobs: list[Arrival], capacity: Capacity) -> Iterator[Moment]:
    engine = SimEngine(
        capacity, step_s=step_s, output_tokens=lambda one: jobs[one.row].output_tokens
    )
    for step in range(10**6):
        for row, job in enumerate(jobs):
            if job.step == step:
                engine.submit(request(row, job.prompt.tolist(), max_tokens=CONTEXT_TOKENS))
        if step < jobs[0].step:
            continue
        try:
            report = engine.step()
        except RuntimeError:
            if step > jobs[-1].step:
                return
            continue
        yield Moment(
            report.prefill_tokens + report.decode_tokens,
            report.cached_tokens,
            report.preemptions,
            report.running,
            report.waiting,
            report.kv_tokens // BLOCK_TOKENS,
            tuple(completion.row for completion in report.completions),
        )


def real(jobs: list[Arrival], capacity: Capacity, model: Path) -> Iterator[Moment]:
    scheduler = vllm_scheduler(capacity, model)
    rng = np.random.default_rng(0)
    for step in range(10**6):
        for row, job in enumerate(jobs):
            if job.step == step:
                scheduler.add_request(
                    vllm_request(
                        row,
                        job.prompt.tolist(),
                        output_tokens=job.output_tokens,
                        block_tokens=BLOCK_TOKENS,
                    )
                )
        if scheduler.has_unfinished_requests():
            yield real_step(scheduler, rng)
        elif step > jobs[-1].step:
            return


def real_step(scheduler: Any, rng: np.random.Generator) -> Moment:
    scheduled = schedule(scheduler)
    outputs = complete(scheduler, scheduled, rng)
    pool = scheduler.kv_cache_manager.block_pool
    stats = next(iter(outputs.values())).scheduler_stats
    return Moment(
        sum(scheduled.output.num_scheduled_tokens.values()),
        stats.prefix_cache_stats.hits,
        len(scheduled.output.preempted_req_ids or ()),
        len(scheduler.running),
        len(scheduler.waiting),
        # One block is vLLM's placeholder.
        pool.num_gpu_blocks - 1 - pool.get_num_free_blocks(),
        tuple(
            int(one.request_id)
            for of_client in outputs.values()
            for one in of_client.outputs
            if one.finish_reason is not None
        ),
    )


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    with quiet_vllm():
        yield


@pytest.mark.parametrize("seed", range(12))
def test_every_step_is_the_one_that_vllm_takes(seed: int, tiny_tokenizer_dir: Path) -> None:
    rng = np.random.default_rng(seed)
    capacity = Capacity(
        kv_tokens=BLOCK_TOKENS * int(rng.integers(33, 150)),
        max_sequences=int(rng.integers(1, 24)),
        step_tokens=int(rng.choice([32, 64, 128, 512])),
        context_tokens=CONTEXT_TOKENS,
        block_tokens=BLOCK_TOKENS,
        prefill_threshold=(0, 24, 48)[seed % 3],
    )
    jobs = arrivals(rng, 120)

    ours = list(simulated(jobs, capacity))
    theirs = list(real(jobs, capacity, tiny_tokenizer_dir))

    assert sorted(row for moment in ours for row in moment.finished) == list(range(len(jobs)))
    assert ours == theirs
