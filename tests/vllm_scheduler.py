"""vLLM's own scheduler without an engine: made-up tokens for what it schedules, step by step."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blend.core.engines import Capacity

QUIET = {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1"}


@contextmanager
def quiet_vllm() -> Iterator[None]:
    """Keep vLLM's log and its look-ups away, unless the environment says otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in QUIET.items():
            patch.setenv(name, os.environ.get(name, value))
        yield


def vllm_scheduler(
    capacity: Capacity,
    model: Path,
    *,
    build: Callable[..., Any] | None = None,
    **options: Any,
) -> Any:
    """Return a scheduler of the given capacity; *options* are those of its configuration."""
    import torch
    from vllm.config import CacheConfig, ModelConfig, SchedulerConfig, VllmConfig
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    block_tokens = capacity.block_tokens
    length = capacity.context_tokens
    given: dict[str, Any] = {
        # A step has room for more than it is given.
        "max_num_batched_tokens": 2 * capacity.step_tokens,
        "max_num_scheduled_tokens": capacity.step_tokens,
        "long_prefill_token_threshold": capacity.prefill_threshold,
        "enable_chunked_prefill": True,
    } | options
    config = VllmConfig(
        model_config=ModelConfig(model=str(model), dtype="float32", max_model_len=length),
        scheduler_config=SchedulerConfig(
            max_num_seqs=capacity.max_sequences,
            max_model_len=length,
            is_encoder_decoder=False,
            **given,
        ),
        cache_config=CacheConfig(block_size=block_tokens, enable_prefix_caching=True),
    )
    # A CPU's configuration takes it away.
    config.scheduler_config.async_scheduling = given.get("async_scheduling", False)
    blocks = capacity.kv_tokens // block_tokens + 1
    config.cache_config.num_gpu_blocks = blocks
    attention = FullAttentionSpec(
        block_size=block_tokens, num_kv_heads=1, head_size=1, dtype=torch.float32
    )
    return (build or Scheduler)(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=blocks,
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer"], attention)],
        ),
        block_size=block_tokens,
        log_stats=True,
        structured_output_manager=StructuredOutputManager(config),
    )


def vllm_request(row: int, prompt: Sequence[int], *, output_tokens: int, block_tokens: int) -> Any:
    """Return a request of vLLM's own kind, whose answer has so many tokens."""
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.request import Request

    init_none_hash(sha256)
    hasher = get_request_block_hasher(block_tokens, sha256)
    params = SamplingParams(max_tokens=output_tokens, ignore_eos=True)
    return Request(str(row), list(prompt), params, None, block_hasher=hasher)


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A step that is scheduled and not computed yet: vLLM's output, and who gets a token."""

    output: Any
    prefill_tokens: int
    decoding: frozenset[str]
    sampling: frozenset[str]


def schedule(scheduler: Any) -> Scheduled:
    """Schedule one step."""
    decoding = {one.request_id for one in scheduler.running if not one.is_prefill_chunk}
    output = scheduler.schedule()
    tokens = output.num_scheduled_tokens
    return Scheduled(
        output,
        sum(count for one, count in tokens.items() if one not in decoding),
        frozenset(decoding & tokens.keys()),
        frozenset(one for one in tokens if not scheduler.requests[one].is_prefill_chunk),
    )


def complete(scheduler: Any, step: Scheduled, rng: np.random.Generator) -> Any:
    """Give a scheduled step its made-up tokens; return what the scheduler makes of them."""
    from vllm.v1.outputs import ModelRunnerOutput

    ids = list(step.output.num_scheduled_tokens)
    tokens = [[int(rng.integers(5, 400))] if one in step.sampling else [] for one in ids]
    output = ModelRunnerOutput(
        req_ids=ids,
        req_id_to_index={request_id: index for index, request_id in enumerate(ids)},
        sampled_token_ids=tokens,
    )
    return scheduler.update_from_output(step.output, output)
