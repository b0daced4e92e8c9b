"""The engine over HTTP on a faulty server, and requests for it."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from blend.core.completion import Completion
from blend.core.engines import EngineDiedError, StepReport
from blend.core.engines.openai import OpenAIEngine
from blend.core.engines.openai_messages import ServerSettings
from blend.core.engines.openai_retry import Patience
from blend.core.request import Request
from tests.faulty_server import MODEL, FaultyServer

HASTY = Patience(
    attempts=3,
    attempt_s=10.0,
    row_s=20.0,
    first_s=0.01,
    longest_s=0.05,
    outage_s=10.0,
    start_s=0.3,
)
# For servers that do not answer in time. A machine that stalls must not look like one that hangs.
HURRIED = replace(HASTY, attempt_s=0.8, silent_rows=1000)


def settings(server: FaultyServer, **more: Any) -> ServerSettings:
    return ServerSettings(**{"base_url": server.url, "model": MODEL, "patience": HASTY} | more)


@contextmanager
def opened(server: FaultyServer, **more: Any) -> Iterator[OpenAIEngine]:
    engine = OpenAIEngine(settings(server, **more))
    try:
        yield engine
    finally:
        engine.close()


def request(row: int, *, sequences: int = 1, **fields: Any) -> Request:
    body = json.dumps({"model": "m", "prompt": f"say r{row}", **fields}).encode()
    prompt = np.zeros(10, np.uint32)
    return Request(row, f"id-{row}", "/v1/completions", body, prompt, 16, sequences)


def run(
    engine: OpenAIEngine, rows: int
) -> tuple[dict[int, Completion], list[StepReport], list[int]]:
    """Run so many requests; return completions by row, reports, and the rows as they came."""
    for row in range(rows):
        engine.submit(request(row))
    reports: list[StepReport] = []
    came: list[int] = []
    completions: dict[int, Completion] = {}
    while len(came) < rows:
        reports.append(engine.step())
        came += [completion.row for completion in reports[-1].completions]
        completions |= {completion.row: completion for completion in reports[-1].completions}
    return completions, reports, came


def message_of(completion: Completion) -> str:
    return str(json.loads(completion.body)["error"]["message"])


def end_of(engine: OpenAIEngine) -> EngineDiedError:
    """Step until the engine dies without another answer, and return how."""
    try:
        while True:
            assert not engine.step().completions
    except EngineDiedError as death:
        return death


def death_of(engine: OpenAIEngine) -> str:
    """Step until the engine dies without another answer, and return what it died of."""
    return str(end_of(engine))


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)
