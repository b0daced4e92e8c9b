"""How large is a server's KV cache, and how full? What a vLLM server tells under /metrics.

The text format is Prometheus's: one sample a line, ``name{label="value",…} number``.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_SAMPLE = re.compile(r"^vllm:(\w+)\{(.*)\} (\S+)", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class ServerCache:
    """The KV cache of a server over all its engines; ``used`` is a share of ``tokens``."""

    tokens: int
    block_tokens: int
    used: float


def server_cache(text: str) -> ServerCache | None:
    """Return the cache that a page of metrics tells of; None when it tells of none."""
    tokens, block_tokens = 0, 0
    used = []
    for name, labels, value in _samples(text):
        if name == "cache_config_info":
            blocks, size = labels.get("num_gpu_blocks", ""), labels.get("block_size", "")
            if blocks.isdigit() and size.isdigit():
                # One block is never handed out.
                tokens += (int(blocks) - 1) * int(size)
                block_tokens = int(size)
        elif name in {"kv_cache_usage_perc", "gpu_cache_usage_perc"}:
            used.append(value)
    if tokens <= 0:
        return None
    return ServerCache(tokens, block_tokens, sum(used) / len(used) if used else 0.0)


def _samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for name, labels, value in _SAMPLE.findall(text):
        try:
            number = float(value)
        except ValueError:
            continue
        yield name, dict(_LABEL.findall(labels)), number
