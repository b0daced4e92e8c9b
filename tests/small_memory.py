"""A real vLLM engine with little memory and every way of pacing, held between two steps at will."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from blend.core.engines.vllm import VllmEngine
from tests.stepped_scheduler import ALLOWED, ARRIVED, FREE, SCHEDULER, STEPS_VARIABLE, TAKEN, Steps
from tests.tiny_engine import settings, wait_until

BLOCK_TOKENS = 32
KV_TOKENS = 4096
"""Of the cache and of the context: one request may fill it."""

STEP_TOKENS = 1536
THRESHOLD = 64


@dataclass(frozen=True)
class SmallMemory:
    """The engine, and the steps that it may take."""

    engine: VllmEngine
    steps: Steps

    def hold(self) -> None:
        """Let no step begin that computes anything."""
        cells = self.steps.cells
        # Not the value that would let it run.
        cells[ALLOWED] = cells[TAKEN] = max(cells[TAKEN], 1)

    def let_go(self) -> None:
        """Let the engine take steps as it likes."""
        self.steps.cells[ALLOWED] = FREE

    @contextmanager
    def held(self, arriving: int) -> Iterator[None]:
        """Let no step begin until so many more requests have arrived."""
        cells, before = self.steps.cells, self.steps.cells[ARRIVED]
        self.hold()
        try:
            yield
            assert wait_until(lambda: cells[ARRIVED] == before + arriving)
        finally:
            self.let_go()


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
    steps = Steps.create(folder / "steps")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(STEPS_VARIABLE, str(folder / "steps"))
        patch.setenv("PYTHONPATH", str(Path(__file__).parent.parent), prepend=os.pathsep)
        engine = VllmEngine.start(replace(asked, pacing="step budget", seeded=False))
    try:
        engine.wait_ready()
        yield SmallMemory(engine, steps)
    finally:
        engine.close()
