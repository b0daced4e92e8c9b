"""A real vLLM engine on the tiny model, requests for it, and a look at its processes."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blend.core.completion import Completion
from blend.core.engines import StepReport
from blend.core.engines.vllm import VllmEngine
from blend.core.engines.vllm_launch import EngineSettings
from blend.core.request import Endpoint, Request

CHAT: Endpoint = "/v1/chat/completions"
TEXT: Endpoint = "/v1/completions"
RESPONSES: Endpoint = "/v1/responses"
EMBEDDINGS: Endpoint = "/v1/embeddings"
CONTEXT = 1024
ARGUMENTS: Mapping[str, str | None] = {
    "max-model-len": str(CONTEXT),
    "kv_cache_memory_bytes": str(64 << 20),
    "max-num-seqs": "16",
    "tool-call-parser": "hermes",
    "enable-auto-tool-choice": None,
    # The log then names each request as it enters.
    "enable-log-requests": None,
}

Body = dict[str, Any]


def request(row: int, endpoint: Endpoint, body: Body, *, sequences: int = 1) -> Request:
    raw = json.dumps(body).encode()
    return Request(row, f"id-{row}", endpoint, raw, np.zeros(0, np.uint32), 16, sequences)


def chat(text: str = "how many apples does she have?", **fields: Any) -> Body:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 8} | fields


def text(prompt: Any = "the sea and the wind", **fields: Any) -> Body:
    return {"prompt": prompt, "max_tokens": 8} | fields


def run(
    engine: VllmEngine, bodies: Sequence[tuple[Endpoint, Body]], *, sequences: int = 1
) -> tuple[list[Completion], list[StepReport]]:
    """Run *bodies* to the end; return their completions by position, and all reports."""
    for row, (endpoint, body) in enumerate(bodies):
        engine.submit(request(row, endpoint, body, sequences=sequences))
    completions: dict[int, Completion] = {}
    reports: list[StepReport] = []
    while len(completions) < len(bodies):
        reports.append(engine.step())
        completions |= {completion.row: completion for completion in reports[-1].completions}
    return [completions[row] for row in range(len(bodies))], reports


def answer(engine: VllmEngine, endpoint: Endpoint, body: Body) -> tuple[Completion, Any]:
    completions, _ = run(engine, [(endpoint, body)])
    return completions[0], json.loads(completions[0].body)


WAIT_S = 600.0
"""Far beyond what anything takes, on a machine with ten times as much to do too."""


def living(group: int) -> set[int]:
    """The processes of a process group that still run."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, pgrp = stat.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(pgrp) == group and state != "Z":
            found.add(int(stat.parent.name))
    return found


def engine_core(group: int) -> int:
    """The process of the group that vLLM calls EngineCore; wait until there is one."""

    def cores() -> list[int]:
        return [pid for pid in living(group) if "EngineCor" in _name(pid)]

    return int(wait_until(cores)[0])


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def wait_until(condition: Callable[[], Any], *, timeout_s: float = WAIT_S) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return value


def settings(model: Path, log_path: Path, **more: str | None) -> EngineSettings:
    return EngineSettings(str(model), "tiny", log_path, {**ARGUMENTS, **more}, seed=0)
