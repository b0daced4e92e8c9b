"""A real vLLM engine with little memory and every way of pacing, which can wait for requests."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from blend.core.engines.vllm import VllmEngine
from tests.held_scheduler import AWAITED, HOLD_VARIABLE, SCHEDULER, Hold
from tests.tiny_engine import settings

BLOCK_TOKENS = 32
KV_TOKENS = 4096
"""Of the cache and of the context: one request may fill it."""

STEP_TOKENS = 1536
THRESHOLD = 64


@dataclass(frozen=True)
class SmallMemory:
    """The engine, and what tells its scheduler when to go on."""

    engine: VllmEngine
    hold: Hold

    def wait_for(self, requests: int) -> None:
        """Let no step begin until so many requests, the next ones, are inside."""
        self.hold.cells[AWAITED] = requests


@contextmanager
def opened_small_memory(model: Path, folder: Path) -> Iterator[SmallMemory]:
    """Start the engine on a model whose context it can hold."""
    asked = settings(
        model,
        folder / "engine.log",
        kv_cache_memory_bytes=str(2048 * (KV_TOKENS + BLOCK_TOKENS)),
        **{
            "max-num-seqs": "24",
            "max-model-len": str(KV_TOKENS),
            "long-prefill-token-threshold": str(THRESHOLD),
            "max-num-scheduled-tokens": str(STEP_TOKENS),
            "scheduler-cls": SCHEDULER,
        },
    )
    hold = Hold.create(folder / "hold")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
        patch.setenv(HOLD_VARIABLE, str(folder / "hold"))
        engine = VllmEngine.start(replace(asked, pacing="step budget", seeded=False))
    try:
        engine.wait_ready()
        yield SmallMemory(engine, hold)
    finally:
        engine.close()
