"""An OpenAI-compatible server on loopback that fails as it is told to."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any

import orjson
from aiohttp import web

MODEL = "tiny"
KEY = "sk-a-key-that-nobody-may-see"

Fault = str
FaultOf = Callable[[str, int], Fault]


def soundly(_name: str, _attempt: int) -> Fault:
    return "none"


@dataclass
class FaultyServer:
    """What the server does, and what has arrived; a request is known by the end of its prompt.

    ``fault_of`` names the fault of a request's attempt, counted from 1; no answer goes out before
    ``answers_from`` requests have arrived.
    """

    fault_of: FaultOf = soundly
    answer_s: float = 0.0
    answers_from: int = 0
    key: str | None = None
    models: Any = field(default_factory=lambda: [{"id": MODEL, "max_model_len": 2048}])
    models_status: int = 200
    metrics: str | None = None
    arrivals: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    authorizations: set[str | None] = field(default_factory=set)
    others: list[str] = field(default_factory=list)
    inside: int = 0
    most_inside: int = 0
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def list_models(self, request: web.Request) -> web.Response:
        if not self._authorised(request):
            return web.json_response({"error": f"wrong key: {self.key}"}, status=401)
        body = {"object": "list", "data": self.models} if self.models is not None else "hello"
        return web.json_response(body, status=self.models_status)

    async def show_metrics(self, _request: web.Request) -> web.Response:
        return web.Response(text=self.metrics, status=200 if self.metrics else 404)

    async def complete(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        name = name_of(orjson.loads(raw))
        self.arrivals.append(name)
        self.times.append(time.monotonic())
        self.bodies.append(raw)
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        try:
            fault = self.fault_of(name, Counter(self.arrivals)[name])
            if not self._authorised(request):
                fault = "401"
            return await self._respond(request, fault, name)
        finally:
            self.inside -= 1

    async def refuse(self, request: web.Request) -> web.Response:
        self.others.append(request.path)
        return web.Response(status=404)

    def _authorised(self, request: web.Request) -> bool:
        given = request.headers.get("Authorization")
        self.authorizations.add(given)
        return self.key is None or given == f"Bearer {self.key}"

    async def _respond(self, request: web.Request, fault: Fault, name: str) -> web.StreamResponse:
        kind, _, detail = fault.partition(" ")
        whole = orjson.dumps(answer(name))
        if kind == "none":
            await asyncio.sleep(self.answer_s)
            while len(self.arrivals) < self.answers_from:
                await asyncio.sleep(0.01)
            return web.Response(body=whole, content_type="application/json")
        if kind == "hang":
            await asyncio.sleep(60)
        if kind in {"drop", "half", "drip"}:
            return await _in_parts(request, whole, fault=kind)
        if kind == "garbage":
            return web.Response(text='{"choices": [{"ind', content_type="application/json")
        if kind == "other":
            return web.json_response({"object": "something else"})
        return _refusal(int(kind), retry_after=detail)


async def _in_parts(request: web.Request, whole: bytes, *, fault: Fault) -> web.StreamResponse:
    """Send nothing and hang up, send a half and hang up, or send all of it byte by byte."""
    assert request.transport is not None
    response = web.StreamResponse(headers={"Content-Length": str(len(whole))})
    if fault != "drop":
        await response.prepare(request)
    if fault == "drip":
        for byte in whole:
            await response.write(bytes([byte]))
            await asyncio.sleep(0.05)
        return response
    if fault == "half":
        await response.write(whole[: len(whole) // 2])
    request.transport.abort()
    return response


def _refusal(status: int, *, retry_after: str) -> web.Response:
    headers = {}
    if retry_after == "date":
        # A date has whole seconds: this one is at least one second ahead.
        headers["Retry-After"] = formatdate(time.time() + 2, usegmt=True)
    elif retry_after:
        headers["Retry-After"] = retry_after
    if 300 <= status < 400:
        headers["Location"] = "http://127.0.0.1:9/elsewhere"
    if status == 502:
        return web.Response(text="<html>bad gateway</html>", status=502, headers=headers)
    error = {"message": f"fault {status}, said to {KEY}", "type": "x", "code": status}
    return web.json_response({"error": error}, status=status, headers=headers)


def name_of(body: dict[str, Any]) -> str:
    """Return the last word of a request's prompt."""
    text = body["prompt"] if "prompt" in body else body["messages"][-1]["content"]
    return str(text).split()[-1].rstrip(".")


def answer(name: str) -> dict[str, Any]:
    return {
        "id": f"cmpl-{name}",
        "object": "text_completion",
        "created": 1,
        "model": MODEL,
        "choices": [{"index": 0, "text": name, "logprobs": None, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": 10,
            "completion_tokens": 3,
            "total_tokens": 13,
            "prompt_tokens_details": {"cached_tokens": 4},
        },
    }


@contextmanager
def serving(server: FaultyServer, *, port: int = 0) -> Iterator[FaultyServer]:
    """Run *server* in a thread, on a port of its own unless told which."""
    started = threading.Event()
    stop: Callable[[], object] = bool

    async def live() -> None:
        nonlocal stop
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        app = web.Application(client_max_size=1 << 26)
        app.router.add_get("/v1/models", server.list_models)
        app.router.add_get("/metrics", server.show_metrics)
        app.router.add_post("/v1/completions", server.complete)
        app.router.add_post("/v1/chat/completions", server.complete)
        app.router.add_route("*", "/{rest:.*}", server.refuse)
        runner = web.AppRunner(app, shutdown_timeout=0.05, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        server.port = runner.addresses[0][1]
        stop = lambda: loop.call_soon_threadsafe(stopped.set)  # noqa: E731
        started.set()
        await stopped.wait()
        await runner.cleanup()
        # A transport that was closed is let go by the loop, a turn later.
        await asyncio.sleep(0.01)

    thread = threading.Thread(target=lambda: asyncio.run(live()))
    thread.start()
    assert started.wait(10)
    try:
        yield server
    finally:
        stop()
        thread.join()
