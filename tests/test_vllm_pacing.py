"""A real engine computes the prompt tokens a step that it is asked for, and reports each step."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from blend.core.completion import Completion
from blend.core.engines import StepReport
from blend.core.engines.vllm import VllmEngine
from tests.small_memory import KV_TOKENS, STEP_TOKENS, THRESHOLD, SmallMemory
from tests.tiny_engine import TEXT, Body, request, text

pytestmark = pytest.mark.vllm

PACES = (32, 64, 128)
STEPS_A_PACE = 40
DECODERS = 6
PROMPT_TOKENS = 320
ANSWERED_TOKENS = 2  # the prompt of a long answer
# Longer than the prompts beside them take.
ANSWER_TOKENS = 2 * STEPS_A_PACE


def long_answer(number: int) -> Body:
    return text([5 + number, 6], max_tokens=ANSWER_TOKENS, temperature=0, ignore_eos=True)


def long_prompt(number: int) -> Body:
    """A prompt that shares nothing with another; its answer ends with the step that computes it."""
    tokens = [5 + number] + [
        (7 * number + 3 * place) % 390 + 5 for place in range(1, PROMPT_TOKENS)
    ]
    return text(tokens, max_tokens=1, temperature=0, ignore_eos=True)


class Observed:
    """What goes into an engine and what comes out of it."""

    def __init__(self, engine: VllmEngine):
        self.engine = engine
        self.completions: dict[int, Completion] = {}
        self._rows = 0

    def submit(self, bodies: Sequence[Body]) -> range:
        rows = range(self._rows, self._rows + len(bodies))
        for row, body in zip(rows, bodies, strict=True):
            self.engine.submit(request(row, TEXT, body))
        self._rows = rows.stop
        return rows

    def step(self) -> StepReport:
        # Reports that were not read yet are not summed up: on a slow machine those are many.
        report = self.engine._receive().report
        self.completions |= {completion.row: completion for completion in report.completions}
        return report

    def finish(self, rows: range) -> list[StepReport]:
        reports = []
        while not all(row in self.completions for row in rows):
            reports.append(self.step())
        return reports

    def choices(self) -> list[Any]:
        return [json.loads(self.completions[row].body)["choices"] for row in range(self._rows)]


def answers_beside_prompts(
    small_memory: SmallMemory, *, paced: bool
) -> tuple[list[Any], dict[int, list[StepReport]]]:
    """Let long prompts wait beside long answers, at one pace after another.

    Returns the choices of all rows, and by pace the reports while prompts were computed.
    """
    observed = Observed(small_memory.engine)
    reports = {}
    for pace in PACES:
        small_memory.engine.pace(pace if paced else None)
        count = pace * STEPS_A_PACE // PROMPT_TOKENS
        # All arrive before the first step: how fast they would has no part in it.
        with small_memory.held(DECODERS + count):
            answers = observed.submit([long_answer(number) for number in range(DECODERS)])
            prompts = observed.submit([long_prompt(answers.stop + n) for n in range(count)])
        reports[pace] = observed.finish(prompts)
        observed.finish(answers)
    small_memory.engine.pace(None)
    return observed.choices(), reports


def test_each_step_computes_the_prompt_tokens_asked_for_and_the_answers_stay_the_same(
    small_memory: SmallMemory,
) -> None:
    paced, reports = answers_beside_prompts(small_memory, paced=True)
    unpaced, _ = answers_beside_prompts(small_memory, paced=False)

    assert small_memory.engine.capacity.pacing == "step budget"
    for pace in PACES:
        computing = [report for report in reports[pace] if report.prefill_tokens]
        # What a first or last report sums up may reach beyond the prompts.
        whole = computing[1:-1]
        steps = sum(report.steps for report in whole)
        tokens = sum(report.prefill_tokens for report in whole)
        all_decode = [report.decode_tokens == DECODERS * report.steps for report in computing]

        expected = pace * STEPS_A_PACE + DECODERS * ANSWERED_TOKENS
        assert sum(report.prefill_tokens for report in computing) == expected
        assert tokens / steps == pytest.approx(pace, rel=0.1)
        assert [r for r in computing if r.prefill_tokens > pace * r.steps] == []
        # Once an answer has begun it waits for no prompt.
        assert all_decode == sorted(all_decode)
        assert any(all_decode)
    assert paced == unpaced


def test_the_capacity_tells_what_a_step_really_computes(small_memory: SmallMemory) -> None:
    capacity = small_memory.engine.capacity

    assert capacity.step_tokens == STEP_TOKENS
    assert capacity.prefill_threshold == THRESHOLD
    # A CPU's engine schedules synchronously.
    assert capacity.report_lag == 1
    assert capacity.context_tokens == capacity.kv_tokens == KV_TOKENS


def test_no_step_computes_more_of_a_prompt_than_the_threshold(small_memory: SmallMemory) -> None:
    """With nobody else inside a prompt is computed whole: answers go on beside it."""
    observed = Observed(small_memory.engine)
    own = DECODERS * ANSWERED_TOKENS
    for count in (1, 2, 4):
        with small_memory.held(DECODERS + count):
            answers = observed.submit([long_answer(number) for number in range(DECODERS)])
            prompts = observed.submit([long_prompt(200 + 10 * count + n) for n in range(count)])
        reports = observed.finish(prompts)
        observed.finish(answers)

        assert all(r.prefill_tokens <= (count * THRESHOLD + own) * r.steps for r in reports)
        assert sum(report.prefill_tokens for report in reports) == count * PROMPT_TOKENS + own
