"""What goes on in the background: requests go to the server in order, a window of them at a time.

Every request is answered: with the server's response, or with an error that names the cause. The
invariant: at most ``concurrency`` sequences are at the server, unless one request alone has more,
and they went there in the order in which they were accepted; only what is tried again falls behind.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable

from blend.core.completion import Completion
from blend.core.engines import UNKNOWN_TOKENS, Capacity, EngineDiedError
from blend.core.engines.openai_health import Failure, Health
from blend.core.engines.openai_http import Connection, UnansweredError, open_connection
from blend.core.engines.openai_messages import Dropped, Message, Ready, ServerSettings, Started
from blend.core.engines.openai_retry import Attempts, retry_after_s, trouble_of
from blend.core.engines.openai_server import Server, find_server, read_cache
from blend.core.engines.openai_wire import (
    BadAnswerError,
    Response,
    completion_of,
    error_body,
    error_object,
    with_model,
)
from blend.core.errors import BlendError
from blend.core.request import Request

_BLOCK_TOKENS = 16
_CACHE_EVERY_S = 2.0
_UNAUTHORISED = 401
_BAD_GATEWAY = 502


class Service:
    """One server, the requests inside, and the messages about them, which go to *send*."""

    def __init__(self, settings: ServerSettings, *, send: Callable[[Message], None]):
        self.running = 0
        self.cache_tokens = 0
        self._settings = settings
        self._send = send
        self._queue: deque[Request] = deque()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._health = Health(settings.patience)
        self._connection: Connection | None = None
        self._lost = False

    async def run(self) -> None:
        """Find the server and serve until cancelled."""
        settings = self._settings
        async with open_connection(settings.base_url, settings.api_key) as connection:
            try:
                server = await find_server(
                    connection,
                    base_url=settings.base_url,
                    model=settings.model,
                    start_s=settings.patience.start_s,
                )
            except BlendError as error:
                self._send(error)
                return
            self._connection = connection
            self._send(Ready(_capacity(server, settings)))
            self._start_next()
            try:
                await self._watch_cache(server, connection)
            finally:
                await self._cancel()

    def accept(self, request: Request) -> None:
        """Send *request* behind those accepted before, as soon as the window has room."""
        self._queue.append(request)
        self._start_next()

    async def abort(self) -> None:
        """Drop every request that is not answered yet."""
        queued = [request.row for request in self._queue]
        self._queue.clear()
        self._send(Dropped((*await self._cancel(), *queued)))

    async def _cancel(self) -> list[int]:
        """Drop what is at the server and return its rows."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        rows = list(self._tasks)
        self._tasks.clear()
        self._health = Health(self._settings.patience)
        self.running = 0
        return rows

    async def _watch_cache(self, server: Server, connection: Connection) -> None:
        cache = server.cache
        while True:
            if cache is not None:
                self.cache_tokens = round(cache.used * cache.tokens)
            await asyncio.sleep(_CACHE_EVERY_S)
            if server.cache is not None and self._tasks:
                cache = await read_cache(connection)

    def _start_next(self) -> None:
        started = False
        while self._queue and self._connection and not self._lost and self._room():
            request = self._queue.popleft()
            self.running += request.sequences
            self._tasks[request.row] = asyncio.create_task(self._serve(request, self._connection))
            started = True
        if started:
            self._send(Started())

    def _room(self) -> bool:
        after = self.running + self._queue[0].sequences
        return not self.running or after <= self._settings.concurrency

    async def _serve(self, request: Request, connection: Connection) -> None:
        try:
            outcome: Message = await self._answer(request, connection)
        except Exception as error:  # noqa: BLE001 - passed on, to be raised in the caller's thread
            outcome = error
            self._lost = True
        self._health.leave(request.row)
        del self._tasks[request.row]
        self.running -= request.sequences
        self._send(outcome)
        self._start_next()

    async def _answer(self, request: Request, connection: Connection) -> Completion:
        body = with_model(request.body, self._settings.model)
        attempts = Attempts(self._settings.patience, seed=f"{self._settings.seed}/{request.row}")
        started = time.time()
        clock = asyncio.get_running_loop().time
        first_sent = clock()
        while True:
            self._health.send(request.row, now=clock())
            outcome = await self._try(request, connection, body, started=started)
            if isinstance(outcome, Completion):
                return outcome
            attempts.fail(outcome.trouble)
            elapsed_s = clock() - first_sent
            pause_s = attempts.pause_s(elapsed_s=elapsed_s, asked_s=outcome.asked_s)
            lost = self._health.fail(request.row, outcome, now=clock(), pause_s=pause_s)
            if lost:
                raise self._died(lost, blameless=self._health.blameless)
            if not attempts.spent(elapsed_s):
                await asyncio.sleep(pause_s)
            if attempts.spent(clock() - first_sent):
                return _given_up(request, outcome, attempts.failed, started=started)

    async def _try(
        self, request: Request, connection: Connection, body: bytes, *, started: float
    ) -> Completion | Failure:
        timeout_s = self._settings.patience.attempt_s
        try:
            response = await connection.post(request.endpoint, body, timeout_s=timeout_s)
            if failure := self._failure(response):
                return failure
            self._health.hear(request.row)
            return completion_of(request, response, started=started, finished=time.time())
        except UnansweredError as error:
            return Failure(error.trouble, error.reason)
        except BadAnswerError as error:
            return Failure("broken", str(error))

    def _failure(self, response: Response) -> Failure | None:
        if response.status == _UNAUTHORISED:
            # No row is at fault, and every other would fail the same way.
            raise self._died("no longer accepts the API key: 401", blameless=True)
        trouble = trouble_of(response.status)
        if trouble is None:
            return None
        asked_s = retry_after_s(response.retry_after, now=time.time())
        return Failure(trouble, f"the server answered {response.status}", response, asked_s)

    def _died(self, reason: str, *, blameless: bool = False) -> EngineDiedError:
        said = f"the server at {self._settings.base_url} {reason}"
        return EngineDiedError(said, blameless=blameless)


def _given_up(request: Request, failure: Failure, attempts: int, *, started: float) -> Completion:
    """Return the completion of a row that was tried often enough: the server's error, or ours."""
    if failure.response is not None:
        status, body = failure.response.status, error_body(failure.response)
    else:
        status = _BAD_GATEWAY
        body = error_object(f"{failure.reason}; given up after {attempts} attempts", status=status)
    return Completion(request.row, status, body, started=started, finished=time.time())


def _capacity(server: Server, settings: ServerSettings) -> Capacity:
    cache = server.cache
    return Capacity(
        kv_tokens=settings.kv_tokens or (cache.tokens if cache else UNKNOWN_TOKENS),
        max_sequences=settings.concurrency,
        step_tokens=settings.step_tokens,
        context_tokens=server.context_tokens or UNKNOWN_TOKENS,
        block_tokens=cache.block_tokens if cache else _BLOCK_TOKENS,
    )
