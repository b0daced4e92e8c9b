"""Which command line does vLLM get? Our defaults, then what the user asked for, which wins."""

from collections.abc import Iterable, Mapping

from blend.core.engines.vllm_messages import Start

Flags = tuple[tuple[str, str | None], ...]

# float32: a bfloat16 step takes ten times as long on a CPU without native support. The block
# size is the smallest that the CPU kernels are fast with: less of a shared prefix is lost.
CPU_DEFAULTS: Flags = (
    ("dtype", "float32"),
    ("block-size", "32"),
    ("enforce-eager", None),
    ("gpu-memory-utilization", "0.1"),
    ("kv-cache-memory-bytes", str(2 << 30)),
    ("max-num-seqs", "64"),
)
CPU_STEP_TOKENS = 2048
GPU_DEFAULTS: Flags = (("max-num-seqs", "1024"), ("max-num-batched-tokens", "8192"))

# What our reports are made of. The default loggers would write a line a step.
REPORTING: Flags = (
    ("enable-prompt-tokens-details", None),
    ("enable-logging-iteration-details", None),
    ("disable-log-stats", None),
)


def command_line(start: Start, *, on_cpu: bool) -> list[str]:
    """Return the arguments of `vllm serve` for *start*."""
    flags = dict(CPU_DEFAULTS if on_cpu else GPU_DEFAULTS)
    asked = {flag_name(name): value for name, value in start.arguments}
    if on_cpu:
        flags |= _whole_prompts(asked)
    for name in asked:
        flags.pop(name.removeprefix("no-"), None)
    flags |= asked | dict(REPORTING)
    flags |= {"model": start.model, "served-model-name": start.served_model_name}
    if start.seed is not None:
        flags["seed"] = str(start.seed)
    return list(_words(flags.items()))


def _whole_prompts(asked: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return flags that make each step compute whole prompts, where the context's size is known.

    vLLM's CPU engine dies when a request with a seed has a part of its prompt computed: it would
    rewind the request's generator, which a CPU's cannot.
    """
    context = asked.get("max-model-len")
    if {"max-num-batched-tokens", "enable-chunked-prefill"} & asked.keys() or not context:
        return {}
    tokens = max(int(context), CPU_STEP_TOKENS)
    return {"no-enable-chunked-prefill": None, "max-num-batched-tokens": str(tokens)}


def flag_name(name: str) -> str:
    """Return *name* as vLLM's documentation writes it, without the dashes before it."""
    return name.lstrip("-").replace("_", "-")


def _words(flags: Iterable[tuple[str, str | None]]) -> Iterable[str]:
    for name, value in flags:
        yield f"--{name}" if value is None else f"--{name}={value}"
