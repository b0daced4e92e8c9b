"""A gate before a real engine that keeps no pace of its own holds the pace of its steps."""

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from blend.core.engines import StepReport, total
from blend.core.request import Request
from blend.core.running.blend_scan import BlendScanner
from blend.core.running.executor import run
from tests.small_jobs import scanner_of, schedule
from tests.small_memory import THRESHOLD, SmallMemory
from tests.stepped_scheduler import ALLOWED, ARRIVED, TAKEN, TOKENS
from tests.tiny_engine import TEXT, text, wait_until

pytestmark = pytest.mark.vllm

LONG, LONG_PROMPT, LONG_TOKENS = 4, 2, 120
SHORT, SHORT_PROMPT, SHORT_TOKENS = 34, 500, 2
FREE_TOKENS = 200
"""What rides free on a step; the pace is that without the decodes."""


def job() -> list[Request]:
    """Few long answers, and many of two tokens to prompts of nearly eight pieces each."""
    requests = []
    for row in range(LONG + SHORT):
        long = row < LONG
        prompt = [5 + row] + [(7 * row + 3 * place) % 390 + 5 for place in range(1, SHORT_PROMPT)]
        prompt = prompt[:LONG_PROMPT] if long else prompt
        answer = LONG_TOKENS if long else SHORT_TOKENS
        body = json.dumps(text(prompt, max_tokens=answer, temperature=0, ignore_eos=True)).encode()
        tokens = np.array(prompt, np.uint32)
        requests.append(Request(row, f"id-{row}", TEXT, body, tokens, answer, 1))
    return requests


def gated_scanner(requests: list[Request], engine: SmallMemory) -> BlendScanner:
    """Return a scanner that knows the lengths, before an engine without a pace."""
    order = [*range(LONG, LONG + SHORT), *range(LONG)]
    density = [10.0] * SHORT + [0.1] * LONG
    plan = schedule(requests, policy="blend", order=order, density=density)
    assert plan.blending is not None
    classes = replace(
        plan.blending.classes,
        label=(np.arange(len(requests)) < LONG).astype(np.int32),
        known=np.array([float(one.max_tokens) for one in requests]),
    )
    blending = replace(
        plan.blending,
        classes=classes,
        mode="sequential",
        # Slow enough for the long answers to be the memory side.
        read_s=0.1 * plan.blending.token_s,
        weights_s=FREE_TOKENS * plan.blending.token_s,
        calibrated=True,
    )
    limits = replace(engine.engine.capacity, pacing="none")
    scanner = scanner_of(requests, replace(plan, blending=blending), limits)
    assert isinstance(scanner, BlendScanner)
    return scanner


class Stepped:
    """The real engine, which takes its next steps when all that is on its way has arrived.

    As reports lag, so here: what is submitted after one reaches the engine behind the step that
    follows. ``folded`` steps come with each report, of which ``seen`` keeps every one.
    """

    def __init__(self, small: SmallMemory, *, folded: int):
        self._engine, self._cells = small.engine, small.steps.cells
        self._folded = folded
        self._unsent: list[Request] = []
        self._first_tokens = self._cells[TOKENS]
        self._inside = 0
        self._told = 0
        self.seen: list[StepReport] = []
        small.hold()

    def submit(self, request: Request) -> None:
        self._unsent.append(request)

    def pace(self, prefill_tokens: int | None) -> None:
        assert prefill_tokens is None
        self._engine.pace(None)

    def step(self) -> StepReport:
        if not self._inside:
            self._send()
        reports = [self._one_step()]
        self._send()
        reports += [self._one_step() for _ in range(1, self._folded) if self._inside]
        self.seen += reports
        return total(reports)

    def _send(self) -> None:
        before = self._cells[ARRIVED]
        for request in self._unsent:
            self._engine.submit(request)
        sent, self._unsent = len(self._unsent), []
        self._inside += sent
        assert wait_until(lambda: self._cells[ARRIVED] == before + sent)

    def _one_step(self) -> StepReport:
        self._cells[ALLOWED] += 1
        assert wait_until(lambda: self._cells[TAKEN] == self._cells[ALLOWED])
        computed = self._cells[TOKENS] - self._first_tokens
        reports = []
        while self._told < computed:
            reports.append(self._engine.step())
            self._told += reports[-1].prefill_tokens + reports[-1].decode_tokens
        report = replace(total(reports), steps=1)
        self._inside -= len(report.completions)
        return report


def prefill_by_step(small: SmallMemory, *, folded: int) -> Sequence[int]:
    """Run the job; return the prompt tokens of the steps in which both kinds were there."""
    requests = job()
    scanner = gated_scanner(requests, small)
    stepped = Stepped(small, folded=folded)
    both: list[bool] = []
    try:
        for _ in run(scanner, requests.__getitem__, stepped):
            both += [not scanner.done] * (len(stepped.seen) - len(both))
    finally:
        small.let_go()
    assert sum(len(report.completions) for report in stepped.seen) == len(requests)
    return [one.prefill_tokens for one, there in zip(stepped.seen, both, strict=True) if there]


@pytest.mark.parametrize("folded", [1, 3])
def test_the_steps_of_a_real_engine_follow_the_pace_of_the_gate(
    small_memory: SmallMemory, folded: int
) -> None:
    """On average within a tenth of it, and in no step more than one and a half pieces beyond."""
    pace = FREE_TOKENS - LONG
    prefill = prefill_by_step(small_memory, folded=folded)
    begun = prefill[2 * folded :]

    assert len(begun) >= 60
    assert max(prefill) <= pace + 1.5 * THRESHOLD + LONG * LONG_PROMPT
    assert np.mean(begun) == pytest.approx(pace, rel=0.1)
