"""What goes on inside the host, on a stand-in for the engine: no vLLM is started."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from blend.core.engines.vllm_compat import Handler
from blend.core.engines.vllm_messages import Moved, Work
from blend.core.engines.vllm_service import Service
from tests.tiny_engine import TEXT


class DeadError(Exception):
    """Stands for the end of the host's process."""


class Host:
    """A service on an engine that answers when and as it is told to."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.service = Service(send=self.said.append, die=self.die)
        self.engine = SimpleNamespace(
            errored=False,
            output_processor=SimpleNamespace(get_num_unfinished_requests=lambda: 0),
        )
        self.let_go = asyncio.Event()
        self.service._engine = self.engine
        self.service._served_model_name = "m"
        self.service._handlers = {TEXT: Handler(lambda fields: fields, self.respond)}
        self.service._kv_tokens = 100
        self.service._reported = 0.0

    async def respond(self, fields: dict[str, Any]) -> Any:
        await self.let_go.wait()
        for _ in range(fields["turns"]):
            await asyncio.sleep(0)
        return SimpleNamespace(status_code=fields["status"], body=b'{"choices": []}')

    def die(self, reason: str) -> Any:
        self.said.append(reason)
        raise DeadError

    def accept(self, row: int, **fields: Any) -> None:
        self.service.accept(Work(row, TEXT, json.dumps(fields).encode(), 1))

    def told(self) -> list[Any]:
        """Return the rows of all reports, and what else was said, in order."""
        told: list[Any] = []
        for one in self.said:
            rows = [c.row for c in one.report.completions] if isinstance(one, Moved) else [one]
            told += rows
        return told


@pytest.mark.parametrize("turns", [0, 50])
def test_what_an_engine_answered_before_it_died_is_told_before_its_death(turns: int) -> None:
    """Whether the answer is written already when the first request fails, or not yet."""

    async def life() -> list[Any]:
        host = Host()
        host.accept(1, status=200, turns=turns)
        host.accept(2, status=500, turns=10)
        watch = asyncio.create_task(host.service.watch())
        await asyncio.sleep(0)
        host.engine.errored = True
        host.let_go.set()
        with pytest.raises(DeadError):
            await watch
        return host.told()

    assert asyncio.run(life()) == [1, "the engine process is gone"]


def test_a_request_that_never_ends_does_not_hide_a_death(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blend.core.engines.vllm_service._LAST_ANSWERS_S", 0.01)

    async def life() -> list[Any]:
        host = Host()
        host.accept(1, status=200, turns=0)
        host.engine.errored = True
        with pytest.raises(DeadError):
            await host.service.watch()
        return host.told()

    assert asyncio.run(life()) == ["the engine process is gone"]
