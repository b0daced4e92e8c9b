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
# Longer than all prompts take, and the reports that lag.
ANSWER_TOKENS = 3 * STEPS_A_PACE + 180


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

    def until_all_decode(self) -> None:
        # Both: reports of an earlier test may still be unread, when nothing ran any more.
        while (report := self.step()).running < DECODERS or report.decode_tokens < DECODERS:
            pass

    def finish(self, rows: range) -> list[StepReport]:
        reports = []
        while not all(row in self.completions for row in rows):
            reports.append(self.step())
        return reports

    def choices(self) -> list[Any]:
        return [json.loads(self.completions[row].body)["choices"] for row in range(self._rows)]


def answers_beside_prompts(
    engine: VllmEngine, *, paced: bool
) -> tuple[list[Any], dict[int, list[StepReport]]]:
    """Let long prompts wait beside long answers, at one pace after another.

    Returns the choices of all rows, and by pace the reports while prompts were computed.
    """
    observed = Observed(engine)
    rows = observed.submit([long_answer(number) for number in range(DECODERS)])
    observed.until_all_decode()
    reports = {}
    for pace in PACES:
        engine.pace(pace if paced else None)
        first = rows.stop
        count = pace * STEPS_A_PACE // PROMPT_TOKENS
        rows = observed.submit([long_prompt(first + number) for number in range(count)])
        reports[pace] = observed.finish(rows)
    engine.pace(None)
    observed.finish(range(rows.stop))
    return observed.choices(), reports


def test_each_step_computes_the_prompt_tokens_asked_for_and_the_answers_stay_the_same(
    small_memory: SmallMemory,
) -> None:
    engine = small_memory.engine
    paced, reports = answers_beside_prompts(engine, paced=True)
    unpaced, _ = answers_beside_prompts(engine, paced=False)

    assert engine.capacity.pacing == "step budget"
    for pace in PACES:
        computing = [report for report in reports[pace] if report.prefill_tokens]
        # What a first or last report sums up may reach beyond the prompts.
        whole = computing[1:-1]
        steps = sum(report.steps for report in whole)
        tokens = sum(report.prefill_tokens for report in whole)

        assert sum(report.prefill_tokens for report in computing) == pace * STEPS_A_PACE
        assert tokens / steps == pytest.approx(pace, rel=0.1)
        assert [r for r in computing if r.prefill_tokens > pace * r.steps] == []
        # No answer waits for a prompt.
        assert [r for r in computing if r.decode_tokens != DECODERS * r.steps] == []
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
    answers = observed.submit([long_answer(number) for number in range(DECODERS)])
    observed.until_all_decode()
    for count in (1, 2, 4):
        with small_memory.held(count):
            prompts = observed.submit([long_prompt(200 + 10 * count + n) for n in range(count)])
        reports = observed.finish(prompts)

        assert all(report.prefill_tokens <= count * THRESHOLD * report.steps for report in reports)
        assert sum(report.prefill_tokens for report in reports) == count * PROMPT_TOKENS
    observed.finish(answers)
