"""An engine in virtual time that schedules step by step as vLLM does.

Continuous batching with chunked prefill: in every step the running sequences come first, in the
order of their admission, then the waiting ones while token budget, slots and cache last. Admission
needs blocks for the prompt alone, minus what is cached. When a running sequence finds no block the
newest one gives up all of its blocks and waits, first in the queue, to be computed again.
The invariant: the same submissions at the same steps give the same reports.

Differs from vLLM: blocks of a sequence are free at the end of its last step, also where vLLM
schedules asynchronously and frees them one step later; a request that cannot fit the cache alone
is refused at once, where vLLM refuses such a context length at start-up.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping

from blend.core.completion import Completion
from blend.core.engines import Aborted, Capacity, StepReport, total
from blend.core.engines.blocks import BlockPool, prefix_keys
from blend.core.engines.sim_answers import answer, hashed_length, refusal, work_of
from blend.core.engines.sim_step import Sequence, Step
from blend.core.request import Request

StepTime = Callable[[int, int, int], float]
"""Seconds of a step from its prefill tokens, decode tokens, and KV tokens read by decodes."""


class SimEngine:
    """Runs requests on no hardware; ``step_s`` says how long a step takes."""

    def __init__(
        self,
        capacity: Capacity,
        *,
        step_s: StepTime,
        output_tokens: Callable[[Request], int] = hashed_length,
    ):
        self._capacity = capacity
        self._step_s = step_s
        self._output_tokens = output_tokens
        self._pool = BlockPool(capacity.kv_tokens // capacity.block_tokens)
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._refused: list[Completion] = []
        self._submitted = 0
        self._pace: int | None = None
        self._unheard: deque[StepReport] = deque()
        self.clock_s = 0.0

    def wait_ready(self, timeout_s: float | None = None) -> bool:  # noqa: ARG002 - never waits
        """Return True: it always runs."""
        return True

    @property
    def capacity(self) -> Capacity:
        """What the engine can hold; constant while it lives."""
        return self._capacity

    @property
    def pid(self) -> None:
        """None: it is no process of its own."""
        return None

    def submit(self, request: Request) -> None:
        """Queue one request; one that can never run is refused with the next report."""
        work = work_of(
            request,
            output_tokens=self._output_tokens(request),
            context_tokens=self._capacity.context_tokens,
        )
        cache_tokens = self._pool.blocks * self._capacity.block_tokens
        if refused := refusal(work, capacity=self._capacity, cache_tokens=cache_tokens):
            self._refused.append(refused)
            return
        for prompt, output in zip(work.prompts, work.outputs, strict=True):
            keys = prefix_keys(prompt, block_tokens=self._capacity.block_tokens)
            for copy in range(work.copies):
                self._submitted += 1
                self._waiting.append(
                    Sequence(
                        number=self._submitted,
                        work=work,
                        leads=copy == 0,
                        keys=keys.copy(),
                        prompt_tokens=len(prompt),
                        tokens=len(prompt),
                        final_tokens=len(prompt) + output,
                    )
                )

    def pace(self, prefill_tokens: int | None) -> None:
        """Compute at most so many prompt tokens a step from now on, if the capacity says so."""
        if self._capacity.pacing == "step budget":
            self._pace = prefill_tokens

    def step(self) -> StepReport:
        """Run on until a report is due, and return the oldest that was not heard."""
        if self._refused:
            refused, self._refused = tuple(self._refused), []
            self._unheard.append(self._report(_nothing(), refused, steps=0, seconds=0.0))
        lag = self._capacity.report_lag
        while len(self._unheard) <= lag and (self._running or self._waiting):
            self._unheard.append(self._step())
        if not self._unheard:
            raise RuntimeError("the simulated engine has nothing to run")
        return self._unheard.popleft()

    def _step(self) -> StepReport:
        budget = self._capacity.step_tokens
        alone = len(self._running) + len(self._waiting) == 1
        step = Step(
            budget,
            budget if self._pace is None else self._pace,
            (0 if alone else self._capacity.prefill_threshold) or budget,
        )
        self._schedule_running(step)
        if not step.preemptions:
            self._schedule_waiting(step)
        seconds = self._step_s(step.prefill_tokens, step.decode_tokens, step.read_tokens)
        self.clock_s += seconds
        return self._report(step, self._sample(step), steps=1, seconds=seconds)

    def ages(self) -> Mapping[int, int]:
        """Return the output tokens that each row inside has, over all its sequences."""
        ages: Counter[int] = Counter()
        for sequence in (*self._running, *self._waiting):
            ages[sequence.work.request.row] += sequence.tokens - sequence.prompt_tokens
        return ages

    def abort(self) -> Aborted:
        """Drop all that is inside and say what came of it."""
        dropped = self.ages()
        for sequence in self._running:
            self._pool.release(sequence.blocks)
        refused, unheard = tuple(self._refused), tuple(self._unheard)
        self.close()
        last = self._report(_nothing(), refused, steps=0, seconds=0.0)
        return Aborted(total((*unheard, last)), dropped)

    def close(self) -> None:
        """Drop all that is inside."""
        self._waiting.clear()
        self._running.clear()
        self._refused.clear()
        self._unheard.clear()

    def _schedule_running(self, step: Step) -> None:
        block_tokens = self._capacity.block_tokens
        position = 0
        while position < len(self._running) and step.budget:
            sequence = self._running[position]
            position += 1
            if sequence.decoding and 0 < sequence.computed % block_tokens < block_tokens - 1:
                # Most of all work: one token inside a block, nothing to take or to publish.
                step.decode(sequence)
                continue
            tokens = self._share(sequence, step)
            if not tokens:
                continue
            if not self._make_room(sequence, tokens, step):
                break
            self._compute(sequence, tokens, step)

    def _make_room(self, sequence: Sequence, tokens: int, step: Step) -> bool:
        end = sequence.computed + tokens
        lacking = self._blocks_for(end) - len(sequence.blocks)
        while lacking > self._pool.free_blocks:
            newest = self._running.pop()
            self._preempt(newest)
            step.preemptions += 1
            if newest is sequence:
                return False
        if lacking > 0:
            sequence.blocks += self._pool.take(lacking)
        return True

    def _preempt(self, sequence: Sequence) -> None:
        self._pool.release(sequence.blocks)
        sequence.blocks = []
        sequence.computed = sequence.published = 0
        sequence.decoding = False
        self._waiting.appendleft(sequence)

    def _schedule_waiting(self, step: Step) -> None:
        while self._waiting and min(step.budget, step.prefill_budget) > 0:
            if len(self._running) >= self._capacity.max_sequences:
                break
            sequence = self._waiting[0]
            # The last token is always computed: its logits give the next one.
            usable = (sequence.tokens - 1) // self._capacity.block_tokens
            hits = self._pool.match(sequence.keys[:usable])
            lacking = self._blocks_for(sequence.tokens) - len(hits)
            if lacking + self._pool.unheld(hits) > self._pool.free_blocks:
                break
            self._running.append(self._waiting.popleft())
            self._admit(sequence, hits, step)

    def _admit(self, sequence: Sequence, hits: list[int], step: Step) -> None:
        self._pool.hold(hits)
        sequence.published = len(hits)
        sequence.computed = len(hits) * self._capacity.block_tokens
        if not sequence.admitted:
            sequence.admitted = True
            step.cached_tokens += sequence.computed
            sequence.work.admit(
                cached_tokens=sequence.computed if sequence.leads else 0, now_s=self.clock_s
            )
        tokens = self._share(sequence, step)
        lacking = self._blocks_for(sequence.computed + tokens) - len(hits)
        sequence.blocks = hits + self._pool.take(lacking)
        self._compute(sequence, tokens, step)

    def _share(self, sequence: Sequence, step: Step) -> int:
        """Return the tokens of a sequence that this step computes."""
        if sequence.decoding:
            return 1
        left = sequence.tokens - sequence.computed
        return min(left, step.threshold, step.budget, max(step.prefill_budget, 0))

    def _compute(self, sequence: Sequence, tokens: int, step: Step) -> None:
        if sequence.decoding:
            step.decode(sequence)
        else:
            step.prefill(sequence, tokens)
        while sequence.published < sequence.computed // self._capacity.block_tokens:
            self._publish(sequence)

    def _publish(self, sequence: Sequence) -> None:
        index = sequence.published
        if index == len(sequence.keys):
            # No other sequence goes on like this one does, but it may itself after a preemption.
            sequence.keys.append((sequence.number, index))
        self._pool.publish(sequence.blocks[index], sequence.keys[index])
        sequence.published += 1

    def _sample(self, step: Step) -> tuple[Completion, ...]:
        ended = []
        for sequence in step.sampling:
            step.prefilled += sequence.tokens == sequence.prompt_tokens
            sequence.tokens += 1
            if sequence.tokens == sequence.final_tokens:
                ended.append(sequence)
        if not ended:
            return ()
        self._running = [s for s in self._running if s.tokens < s.final_tokens]
        for sequence in ended:
            self._pool.release(sequence.blocks)
        done = [sequence.work for sequence in ended if sequence.work.finish()]
        return tuple(answer(work, now_s=self.clock_s) for work in done)

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self._capacity.block_tokens)

    def _report(
        self, step: Step, completions: tuple[Completion, ...], *, steps: int, seconds: float
    ) -> StepReport:
        held = self._pool.blocks - self._pool.free_blocks
        return StepReport(
            completions=completions,
            running=len(self._running),
            waiting=len(self._waiting),
            kv_tokens=held * self._capacity.block_tokens,
            steps=steps,
            prefill_tokens=step.prefill_tokens,
            decode_tokens=step.decode_tokens,
            cached_tokens=step.cached_tokens,
            preemptions=step.preemptions,
            seconds=seconds,
            prefilled=step.prefilled,
        )


def _nothing() -> Step:
    return Step(0, 0, 0)
