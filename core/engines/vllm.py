"""vLLM as an engine: its own OpenAI serving layer, in a process of its own.

The engine starts while the caller does something else, and everything it started ends with the
caller, whichever way that ends. This side imports neither torch nor vLLM.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from blend.core.engines import Aborted, Capacity, EngineDiedError, StepReport, silence, total
from blend.core.engines.outbox import Inbox, Outbox
from blend.core.engines.processors import confine_this_thread
from blend.core.engines.vllm_launch import EngineSettings, HostProcess
from blend.core.engines.vllm_messages import (
    Abort,
    Ages,
    Ask,
    Close,
    Died,
    Dropped,
    Moved,
    Ready,
    Refused,
    Start,
    Work,
)
from blend.core.errors import RESUMABLE, BlendError
from blend.core.request import Request

SILENT_S = 1.0
"""After so long without a word of the engine, a step reports that there was none."""
MOST_FOLDED = 256
"""Reports that a step sums up at most: one that fell behind must not wait for the last."""


class VllmEngine:
    """An Engine of one vLLM instance; starts at once, in the background."""

    def __init__(self, host: HostProcess, *, stall_s: float):
        self._host = host
        self._inbox = Inbox(host.pipe)
        # That nobody reads is noticed by the silence, for which the stall limit is.
        self._outbox = Outbox(host.pipe, on_broken=lambda: None)
        self._ready: Ready | None = None
        self._stall_s = stall_s
        self._submitted = 0
        self._inside = 0
        self._moved_s = time.monotonic()
        self._last: Moved | None = None
        self._unheard: list[Moved] = []
        self._ended = False
        self._death: EngineDiedError | None = None
        self._let_go: Callable[[], None] = lambda: None

    @classmethod
    def start(cls, settings: EngineSettings) -> "VllmEngine":
        """Start the engine's process and return without waiting for it."""
        engine = cls(HostProcess.start(settings), stall_s=settings.stall_s)
        engine._outbox.put(
            Start(
                settings.model,
                settings.served_model_name,
                tuple(settings.arguments.items()),
                settings.seed,
                settings.pacing,
                settings.seeded,
            )
        )
        return engine

    def wait_ready(self, timeout_s: float | None = None) -> bool:
        """Wait until the engine runs, but no longer than *timeout_s*; say whether it does.

        Raises BlendError when vLLM refuses to start, EngineDiedError when it died while starting.
        """
        if self._ready is None and self._inbox.poll(timeout_s):
            self._ready = self._first_message()
            # The thread that drives the engine must not hold up its workers.
            self._let_go = confine_this_thread(self._ready.processors)
        return self._ready is not None

    @property
    def capacity(self) -> Capacity:
        """What the engine can hold; waits until it runs."""
        return self._running().capacity

    @property
    def version(self) -> str:
        """The version of vLLM; waits until the engine runs."""
        return self._running().vllm_version

    @property
    def pid(self) -> int:
        """The process that leads the engine's process group."""
        return self._host.leader.pid

    def submit(self, request: Request) -> None:
        """Queue one request behind those submitted before it."""
        if not self._inside:
            self._moved_s = time.monotonic()
        self._inside += 1
        self._submitted += request.sequences
        # Of a chat alone: nothing else is rendered.
        known = request.endpoint == "/v1/chat/completions"
        prompt = request.prompt.astype("<u4", copy=False).tobytes() if known else b""
        work = Work(request.row, request.endpoint, request.body, request.sequences, prompt)
        self._outbox.put(work)

    def pace(self, prefill_tokens: int | None) -> None:
        """Compute at most so many prompt tokens a step, if the capacity names that pacing."""
        self._host.pace.prefill_tokens = prefill_tokens

    def step(self) -> StepReport:
        """Wait until something moved, for a second at most, and say what.

        Raises EngineDiedError when the engine is gone, or hangs.
        """
        self._running()
        if self._death is not None:
            raise self._death
        moved = self._arrived()
        self._last = moved[-1] if moved else self._last
        # What is still in the pipe waits too.
        waiting = self._submitted - (self._last.received if self._last else 0)
        waiting += self._last.report.waiting if self._last else 0
        reports = [m.report for m in moved] or [silence(self._last.report if self._last else None)]
        report = replace(total(reports), waiting=waiting)
        self._inside -= len(report.completions)
        self._watch(report)
        return report

    def ages(self) -> Mapping[int, int]:
        """Return the output tokens that each row inside has, over all its sequences.

        Raises EngineDiedError when the engine is gone, or hangs.
        """
        self._running()
        self._outbox.put(Ask())
        while isinstance(message := self._message_in_time(), Moved):
            self._unheard.append(message)
        assert isinstance(message, Ages)
        return message.tokens

    def abort(self) -> Aborted:
        """Drop every request inside and say what came of them; the engine can be used on."""
        self._running()
        self._outbox.put(Abort())
        moved, self._unheard = self._unheard, []
        while isinstance(message := self._message_in_time(), Moved):
            moved.append(message)
        assert isinstance(message, Dropped)
        self._inside = 0
        # The host has reported just before.
        self._last = moved[-1]
        report = replace(total([m.report for m in moved]), waiting=0)
        return Aborted(report, message.tokens)

    def close(self) -> None:
        """Stop the engine and every process of it; requests in flight are dropped."""
        self._outbox.put(Close())
        self._end()
        self._outbox.close()
        self._host.pace.close()

    def _running(self) -> Ready:
        self.wait_ready()
        assert self._ready is not None
        return self._ready

    def _first_message(self) -> Ready:
        message = self._message()
        if isinstance(message, Ready):
            return message
        self._end()
        if isinstance(message, Refused) and message.by_arguments:
            raise BlendError(
                f"vLLM does not accept its arguments: {message.reason}",
                hint="`vllm serve --help=all` lists them; they go through `--engine-arg`",
            )
        reason = message.reason if isinstance(message, Refused) else "it ended"
        raise BlendError(
            f"vLLM did not start: {self._host.log.cause() or reason}",
            hint=f"its output is in `{self._host.log.path}`",
            exit_code=RESUMABLE,
        )

    def _arrived(self) -> list[Moved]:
        """Return what has come within a second, but no more than a step can sum up."""
        moved, self._unheard = self._unheard, []
        if not moved:
            if not self._inbox.poll(SILENT_S):
                return []
            moved = [self._receive()]
        try:
            while len(moved) < MOST_FOLDED and self._inbox.poll():
                moved.append(self._receive())
        except EngineDiedError as death:
            # The answers that came before it count; the next step says it.
            self._death = death
        return moved

    def _watch(self, report: StepReport) -> None:
        """Raise EngineDiedError when nothing has come of what is inside for too long."""
        now = time.monotonic()
        # An engine may go on with steps that compute nothing.
        if report.completions or report.prefill_tokens or report.decode_tokens:
            self._moved_s = now
        elif self._inside and now - self._moved_s >= self._stall_s:
            raise self._hung()

    def _message_in_time(self) -> object:
        if not self._inbox.poll(self._stall_s):
            raise self._hung()
        return self._living_message()

    def _hung(self) -> EngineDiedError:
        self._host.kill_leader()
        return self._died(f"it hangs: nothing came of its requests for {self._stall_s:.0f} s")

    def _receive(self) -> Moved:
        message = self._living_message()
        assert isinstance(message, Moved)
        return message

    def _living_message(self) -> object:
        message = self._message()
        if isinstance(message, Died):
            raise self._died(message.reason)
        return message

    def _message(self) -> object:
        try:
            return self._inbox.take()
        except (EOFError, OSError) as error:
            raise self._died("its process is gone") from error

    def _died(self, reason: str) -> EngineDiedError:
        self._end()
        cause = self._host.log.cause(of_engine=True)
        return EngineDiedError(
            f"vLLM died: {reason}" + (f": {cause}" if cause else ""), log=self._host.log.tail()
        )

    def _end(self) -> None:
        """See to it that no process of the engine is left."""
        if self._ended:
            return
        self._ended = True
        self._let_go()
        self._host.end(leaving=self._ready is not None)
