"""What goes on inside the host: requests enter vLLM in order, answers and steps are reported.

Every request is answered: with vLLM's response, or with the error object its server would send.
"""

import asyncio
import gc
import json
import logging
import time
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, NoReturn

import orjson

from blend.core.completion import Completion
from blend.core.engines import StepReport, vllm_compat
from blend.core.engines.known_prompts import KnownPrompts
from blend.core.engines.processors import give_way, keep_off_workers
from blend.core.engines.turnstile import Ticket, Turnstile
from blend.core.engines.usage import Usage, usage_of
from blend.core.engines.vllm_messages import Ages, Dropped, Moved, Ready, Work

logger = logging.getLogger(__name__)

# Long enough for the answers of one step to be written together.
_REPORT_DELAY_S = 0.002
# Steps that only decode, and answer nobody, make room for nothing: several are told together.
_DECODES_DELAY_S = 0.02
_DEATH_WATCH_S = 0.25
# For answers that came out of an engine before it died to be written.
_LAST_ANSWERS_S = 1.0

_ticket: ContextVar[Ticket] = ContextVar("ticket")
_row: ContextVar[int] = ContextVar("row")


class Service:
    """One engine, the requests inside it, and what has moved since the last report.

    Messages go to *send*; *die* is called with a reason when the engine is gone.
    """

    def __init__(
        self,
        *,
        send: Callable[[Ready | Moved | Ages | Dropped], None],
        die: Callable[[str], NoReturn],
    ):
        self._send = send
        self._die = die
        self._turnstile = Turnstile()
        self._prompts = KnownPrompts()
        self._inside: dict[int, tuple[asyncio.Task[None], Ticket]] = {}
        self._dropped: dict[int, int] = {}
        self._steps: list[vllm_compat.EngineStep] = []
        self._last_step = vllm_compat.EngineStep(0, 0.0, 0, 0, 0, 0, 0)
        self._completions: list[Completion] = []
        self._received = 0
        self._report_due: asyncio.TimerHandle | None = None
        self._suspected = asyncio.Event()

    async def open(self, args: Namespace, *, served_model_name: str) -> None:
        """Start the engine and say that it is ready."""
        self._served_model_name = served_model_name
        self._engine = vllm_compat.start_engine(args, observe=self._observe)
        self._handlers = await vllm_compat.open_endpoints(self._engine, args)
        vllm_compat.read_environment_once()
        vllm_compat.reuse_prompts(self._engine, self._prompts)
        _admit_in_order(self._engine)
        capacity = vllm_compat.capacity(self._engine)
        self._kv_tokens = capacity.kv_tokens
        processors = keep_off_workers() if vllm_compat.on_cpu() else frozenset()
        if processors:
            give_way()
        # What is there by now stays: to go through all of it again and again takes time.
        gc.collect()
        gc.freeze()
        self._send(Ready(capacity, vllm_compat.version(), processors))
        self._reported = time.monotonic()

    async def watch(self) -> None:
        """Notice the death of the engine, and say so behind the answers that are out of it."""
        while not self._engine.errored:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._suspected.wait(), _DEATH_WATCH_S)
            self._suspected.clear()
        if tasks := [task for task, _ in self._inside.values()]:
            await asyncio.wait(tasks, timeout=_LAST_ANSWERS_S)
        self._report()
        self._die("the engine process is gone")

    def accept(self, work: Work) -> None:
        """Answer *work* behind what was accepted before."""
        if not self._inside and not self._report_due:
            # Nobody's step: the time in which the engine had nothing to do.
            self._reported = time.monotonic()
        self._received += work.sequences
        ticket = self._turnstile.draw(work.sequences)
        task = asyncio.create_task(self._answer(work, ticket))
        self._inside[work.row] = task, ticket
        task.add_done_callback(lambda _: self._inside.pop(work.row, None))

    def tell_ages(self) -> None:
        """Say how far each request is that is not answered yet."""
        self._send(Ages(self._ages()))

    async def abort(self) -> None:
        """Drop every request that is not answered yet, and say how far each was."""
        inside = dict(self._inside)
        self._dropped = self._ages()
        # Of several answers to a request one may go on after the others have failed.
        for row in self._dropped.keys() & inside.keys():
            inside[row][0].cancel()
        # Those whose answer is out of the engine, but not written yet, are let finish.
        await asyncio.gather(*(task for task, _ in inside.values()), return_exceptions=True)
        # A task that was cancelled before it began has not left its place.
        self._turnstile = Turnstile()
        self._report()
        self._send(Dropped(self._dropped))
        self._dropped = {}

    def _ages(self) -> dict[int, int]:
        ages = {row: 0 for row, (_, ticket) in self._inside.items() if not ticket.inside}
        for row, tokens in vllm_compat.tokens_so_far(self._engine):
            ages[row] = ages.get(row, 0) + tokens
        return ages

    async def _answer(self, work: Work, ticket: Ticket) -> None:
        _ticket.set(ticket)
        _row.set(work.row)
        started = time.time()
        try:
            answer = await self._ask(work)
        except Exception as error:
            answer = await vllm_compat.error_answer(error)
            # Of a dead engine one line says enough, for all that were inside.
            if answer.status_code >= 500 and not self._engine.errored:
                logger.exception("request of row %d failed", work.row)
        finally:
            ticket.leave()
        if work.row in self._dropped:
            return
        if answer.status_code >= 500 and self._engine.errored:
            # No answer: its row runs again.
            self._suspected.set()
            return
        self._completions.append(_completion(work, answer, started=started))
        self._report_within(_REPORT_DELAY_S)

    async def _ask(self, work: Work) -> vllm_compat.Answer:
        handler = self._handlers.get(work.endpoint)
        if handler is None:
            served = ", ".join(self._handlers) or "none"
            words = f"this model does not serve {work.endpoint}, but: {served}"
            if work.endpoint == "/v1/embeddings":
                words += (
                    " (for embeddings: `--engine-arg runner=pooling --engine-arg convert=embed`)"
                )
            return vllm_compat.refusal(words)
        # Not orjson: an integer of more than 64 bits is the user's to send.
        fields = json.loads(work.body)
        if fields.pop("stream", None):
            return vllm_compat.refusal("`stream` must be false in a batch")
        self._prompts.begin(fields, work.prompt)
        return await handler.respond(fields | {"model": self._served_model_name})

    def _observe(self, step: vllm_compat.EngineStep) -> None:
        self._steps.append(step)
        self._last_step = step
        decodes = not (step.prefill_tokens or step.preemptions)
        self._report_within(_DECODES_DELAY_S if decodes else _REPORT_DELAY_S)

    def _report_within(self, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        due = self._report_due
        if due is not None and due.when() <= loop.time() + delay_s:
            return
        if due is not None:
            due.cancel()
        self._report_due = loop.call_later(delay_s, self._report)

    def _report(self) -> None:
        now = time.monotonic()
        inside = vllm_compat.unfinished(self._engine)
        running = min(self._last_step.running, inside)
        report = StepReport(
            completions=tuple(self._completions),
            running=running,
            # Not the engine's own count of the waiting: it is older than the latest arrivals.
            waiting=inside - running + self._turnstile.outside,
            kv_tokens=round(self._last_step.kv_usage * self._kv_tokens),
            steps=len(self._steps),
            prefill_tokens=sum(step.prefill_tokens for step in self._steps),
            decode_tokens=sum(step.decode_tokens for step in self._steps),
            cached_tokens=sum(step.cached_tokens for step in self._steps),
            preemptions=sum(step.preemptions for step in self._steps),
            seconds=now - self._reported,
            prefilled=sum(step.prefilled for step in self._steps),
        )
        self._send(Moved(report, self._received))
        self._completions, self._steps = [], []
        self._reported = now
        if self._report_due is not None:
            self._report_due.cancel()
            self._report_due = None


def _completion(work: Work, answer: vllm_compat.Answer, *, started: float) -> Completion:
    ok = answer.status_code == 200
    usage = usage_of(work.endpoint, orjson.loads(answer.body)) if ok else Usage()
    return Completion(
        row=work.row,
        status_code=answer.status_code,
        body=answer.body,
        finish_reason=usage.finish_reason,
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cached_tokens=usage.cached_tokens,
        started=started,
        finished=time.time(),
    )


def _admit_in_order(engine: vllm_compat.Engine) -> None:
    """Make requests enter *engine* in the order of their tickets, however long they rendered."""
    add_request: Callable[..., Any] = engine.add_request

    def announced(ask: Callable[..., Any]) -> Callable[..., Any]:
        def announce_and_ask(*args: Any, **kwargs: Any) -> Any:
            _ticket.get().announce()
            return ask(*args, **kwargs)

        return announce_and_ask

    async def ordered_add_request(*args: Any, **kwargs: Any) -> Any:
        ticket = _ticket.get()
        await ticket.turn()
        answers = await add_request(*args, **kwargs)
        vllm_compat.mark(answers, _row.get())
        ticket.enter()
        return answers

    engine.generate = announced(engine.generate)
    engine.encode = announced(engine.encode)
    engine.add_request = ordered_add_request
