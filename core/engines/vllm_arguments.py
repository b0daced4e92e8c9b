"""Which command line does vLLM get? Our defaults, then what the user asked for, which wins."""

import logging
from collections.abc import Iterable

from blend.core.engines.vllm_messages import Start
from blend.core.engines.vllm_pace import SCHEDULER

logger = logging.getLogger(__name__)

Flags = dict[str, str | None]

# float32: a bfloat16 step takes ten times as long on a CPU without native support. The block
# size is the smallest that the CPU kernels are fast with: less of a shared prefix is lost.
CPU_DEFAULTS: Flags = {
    "dtype": "float32",
    "block-size": "32",
    "enforce-eager": None,
    "gpu-memory-utilization": "0.1",
    "kv-cache-memory-bytes": str(2 << 30),
    "max-num-seqs": "64",
}
CPU_STEP_TOKENS = 2048
GPU_DEFAULTS: Flags = {"max-num-seqs": "1024", "max-num-batched-tokens": "8192"}
# With these a step computes parts of prompts.
PARTS = ("long-prefill-token-threshold", "max-num-scheduled-tokens")

# What our reports are made of. The default loggers would write a line a step.
REPORTING: Flags = {
    "enable-prompt-tokens-details": None,
    "enable-logging-iteration-details": None,
    "disable-log-stats": None,
}


def command_line(start: Start, *, on_cpu: bool) -> list[str]:
    """Return the arguments of `vllm serve` for *start*."""
    flags = dict(CPU_DEFAULTS if on_cpu else GPU_DEFAULTS)
    asked = {flag_name(name): value for name, value in start.arguments}
    if start.pacing == "step budget":
        flags["scheduler-cls"] = SCHEDULER
    if on_cpu:
        if start.seeded:
            flags, asked = _without_parts(flags, asked)
        flags |= _step_tokens(flags, asked)
    for name in asked:
        flags.pop(name.removeprefix("no-"), None)
    flags |= asked | REPORTING
    flags |= {"model": start.model, "served-model-name": start.served_model_name}
    if start.seed is not None:
        flags["seed"] = str(start.seed)
    return list(_words(flags.items()))


def _without_parts(flags: Flags, asked: Flags) -> tuple[Flags, Flags]:
    """Return our flags and those asked for, without what has prompts computed in parts.

    vLLM's CPU engine dies when a request with a seed has a part of its prompt computed: it would
    rewind the request's generator, which a CPU's cannot.
    """
    left_out = sorted({"scheduler-cls"} & flags.keys() | set(PARTS) & asked.keys())
    if left_out:
        names = ", ".join(f"--{name}" for name in left_out)
        logger.warning("not on a CPU with requests that have a seed: %s", names)
    flags = {name: value for name, value in flags.items() if name != "scheduler-cls"}
    return flags, {name: value for name, value in asked.items() if name not in PARTS}


def _step_tokens(flags: Flags, asked: Flags) -> Flags:
    """Return flags for the tokens of a step: whole prompts, unless parts of them are asked for."""
    context = asked.get("max-model-len")
    if {"max-num-batched-tokens", "enable-chunked-prefill"} & asked.keys() or not context:
        return {}
    if "scheduler-cls" in flags or set(PARTS) & asked.keys():
        return {"max-num-batched-tokens": str(CPU_STEP_TOKENS)}
    tokens = max(int(context), CPU_STEP_TOKENS)
    return {"no-enable-chunked-prefill": None, "max-num-batched-tokens": str(tokens)}


def flag_name(name: str) -> str:
    """Return *name* as vLLM's documentation writes it, without the dashes before it."""
    return name.lstrip("-").replace("_", "-")


def _words(flags: Iterable[tuple[str, str | None]]) -> Iterable[str]:
    for name, value in flags:
        yield f"--{name}" if value is None else f"--{name}={value}"
