"""The simulated engine takes the very steps that vLLM's own scheduler takes.

No model runs: vLLM's scheduler is given made-up tokens for what it schedules, and both are
compared step by step.
"""

import os
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
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.request import Request

    init_none_hash(sha256)
    hasher = get_request_block_hasher(BLOCK_TOKENS, sha256)
    scheduler = vllm_scheduler(capacity, model)
    rng = np.random.default_rng(0)
    for step in range(10**6):
        for row, job in enumerate(jobs):
            if job.step == step:
                params = SamplingParams(max_tokens=job.output_tokens, ignore_eos=True)
                scheduler.add_request(
                    Request(str(row), job.prompt.tolist(), params, None, block_hasher=hasher)
                )
        if scheduler.has_unfinished_requests():
            yield real_step(scheduler, rng)
        elif step > jobs[-1].step:
            return


def real_step(scheduler: Any, rng: np.random.Generator) -> Moment:
    from vllm.v1.outputs import ModelRunnerOutput

    scheduled = scheduler.schedule()
    ids = list(scheduled.num_scheduled_tokens)
    complete = [
        scheduler.requests[i].num_computed_tokens >= scheduler.requests[i].num_tokens for i in ids
    ]
    output = ModelRunnerOutput(
        req_ids=ids,
        req_id_to_index={request_id: index for index, request_id in enumerate(ids)},
        sampled_token_ids=[[int(rng.integers(5, 400))] if done else [] for done in complete],
    )
    pool = scheduler.kv_cache_manager.block_pool
    outputs = scheduler.update_from_output(scheduled, output)
    stats = next(iter(outputs.values())).scheduler_stats
    return Moment(
        sum(scheduled.num_scheduled_tokens.values()),
        stats.prefix_cache_stats.hits,
        len(scheduled.preempted_req_ids or ()),
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


def vllm_scheduler(capacity: Capacity, model: Path) -> Any:
    import torch
    from vllm.config import CacheConfig, ModelConfig, SchedulerConfig, VllmConfig
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    config = VllmConfig(
        model_config=ModelConfig(model=str(model), dtype="float32", max_model_len=CONTEXT_TOKENS),
        scheduler_config=SchedulerConfig(
            max_num_seqs=capacity.max_sequences,
            # A step has room for more than it is given.
            max_num_batched_tokens=2 * capacity.step_tokens,
            max_num_scheduled_tokens=capacity.step_tokens,
            long_prefill_token_threshold=capacity.prefill_threshold,
            max_model_len=CONTEXT_TOKENS,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
        ),
        cache_config=CacheConfig(block_size=BLOCK_TOKENS, enable_prefix_caching=True),
    )
    blocks = capacity.kv_tokens // BLOCK_TOKENS + 1
    config.cache_config.num_gpu_blocks = blocks
    attention = FullAttentionSpec(
        block_size=BLOCK_TOKENS, num_kv_heads=1, head_size=1, dtype=torch.float32
    )
    return Scheduler(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=blocks,
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer"], attention)],
        ),
        block_size=BLOCK_TOKENS,
        log_stats=True,
        structured_output_manager=StructuredOutputManager(config),
    )


@pytest.fixture(scope="module", autouse=True)
def quiet_vllm() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_LOGGING_LEVEL": "ERROR",
            "HF_HUB_OFFLINE": "1",
        }.items():
            patch.setenv(name, os.environ.get(name, value))
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
