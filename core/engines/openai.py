"""Any OpenAI-compatible server as an engine, over HTTP.

Requests are sent by a thread with an event loop of its own; this side only hands them over and
collects what came of them. The server tells little of what goes on in it: tokens and steps are
counted when answers come, by their usage.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Mapping, Sequence
from queue import Empty, SimpleQueue

from blend.core.completion import Completion
from blend.core.engines import Aborted, Capacity, StepReport
from blend.core.engines.openai_messages import Dropped, Message, Ready, ServerSettings
from blend.core.engines.openai_service import Service
from blend.core.request import Request

REPORT_EVERY_S = 0.5
"""A report comes at least this often, so that whoever waits for one can also stop."""


class OpenAIEngine:
    """An Engine over one server; looks for it at once, in the background."""

    def __init__(self, settings: ServerSettings):
        self._messages: SimpleQueue[Message] = SimpleQueue()
        self._service = Service(settings, send=self._messages.put)
        self._ready: Ready | None = None
        self._error: Exception | None = None
        self._inside: dict[int, int] = {}
        self._begun_steps = 0.0
        self._reported = time.monotonic()
        self._loop = asyncio.new_event_loop()
        self._main = self._loop.create_task(self._service.run())
        self._thread = threading.Thread(target=self._serve, name="blend-openai", daemon=True)
        self._thread.start()

    def wait_ready(self, timeout_s: float | None = None) -> bool:
        """Wait until the server answers, but no longer than *timeout_s*; say whether it does.

        Raises BlendError when it does not come, or refuses the key or the model.
        """
        if self._error is not None:
            raise self._error
        if self._ready is None:
            with contextlib.suppress(Empty):
                message = self._messages.get(timeout=timeout_s)
                if isinstance(message, Exception):
                    self._error = message
                    raise message
                # Nothing is sent before the server answers.
                assert isinstance(message, Ready)
                self._ready = message
        return self._ready is not None

    @property
    def capacity(self) -> Capacity:
        """What the server can hold, as far as it tells; waits until it answers."""
        self.wait_ready()
        assert self._ready is not None
        return self._ready.capacity

    @property
    def pid(self) -> None:
        """None: it is not ours."""
        return None

    def submit(self, request: Request) -> None:
        """Queue one request behind those submitted before it."""
        if not self._inside:
            # What passed while nothing was inside is not the engine's time.
            self._reported = time.monotonic()
        self._inside[request.row] = request.sequences
        self._loop.call_soon_threadsafe(self._service.accept, request)

    def step(self) -> StepReport:
        """Wait until something moved, for half a second at most, and say what.

        Raises EngineDiedError when the server is gone.
        """
        self.wait_ready()
        completions = self._arrived()
        if self._error is not None and not completions:
            raise self._error
        return self._report(completions)

    def pace(self, prefill_tokens: int | None) -> None:
        """Do nothing: a server sets the budget of its steps itself."""

    def ages(self) -> Mapping[int, int]:
        """Return 0 for each row inside: how far it is, the server does not tell."""
        return dict.fromkeys(self._inside, 0)

    def abort(self) -> Aborted:
        """Drop every request inside; how far each was, the server does not tell."""
        self.wait_ready()
        asyncio.run_coroutine_threadsafe(self._service.abort(), self._loop)
        completions = []
        while not isinstance(message := self._messages.get(), Dropped):
            if isinstance(message, Exception):
                self._error = message
                raise message
            if isinstance(message, Completion):
                completions.append(message)
        for row in message.rows:
            del self._inside[row]
        return Aborted(self._report(completions), dict.fromkeys(message.rows, 0))

    def close(self) -> None:
        """Drop every request inside and close the connections."""
        # The loop has ended by itself where no server was found.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._main.cancel)
        self._thread.join()

    def _serve(self) -> None:
        try:
            self._loop.run_until_complete(self._main)
        except asyncio.CancelledError:
            pass
        except Exception as error:  # noqa: BLE001 - raised by the next step
            self._messages.put(error)
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    def _arrived(self) -> list[Completion]:
        """Return the answers that have come, and keep an error for when they are reported."""
        completions = []
        wait_s: float = REPORT_EVERY_S if self._error is None else 0
        with contextlib.suppress(Empty):
            while True:
                message = self._messages.get(timeout=wait_s)
                wait_s = 0
                if isinstance(message, Completion):
                    completions.append(message)
                elif isinstance(message, Exception):
                    self._error = self._error or message
        return completions

    def _report(self, completions: Sequence[Completion]) -> StepReport:
        steps = self._steps_of(completions)
        for completion in completions:
            del self._inside[completion.row]
        running = self._service.running
        now = time.monotonic()
        seconds, self._reported = now - self._reported, now
        return StepReport(
            completions=tuple(completions),
            running=running,
            waiting=max(sum(self._inside.values()) - running, 0),
            kv_tokens=self._service.cache_tokens,
            steps=steps,
            prefill_tokens=sum(c.prompt_tokens - c.cached_tokens for c in completions),
            decode_tokens=sum(c.completion_tokens for c in completions),
            cached_tokens=sum(c.cached_tokens for c in completions),
            preemptions=0,
            seconds=seconds,
        )

    def _steps_of(self, completions: Sequence[Completion]) -> int:
        """Return the steps in which these answers were made, all sequences inside at once."""
        tokens = sum(completion.completion_tokens for completion in completions)
        assert self._ready is not None
        together = min(sum(self._inside.values()), self._ready.capacity.max_sequences)
        self._begun_steps += tokens / max(together, 1)
        whole = int(self._begun_steps)
        self._begun_steps -= whole
        return whole
