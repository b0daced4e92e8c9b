"""A real engine computes the prompt tokens a step that it is asked for, and reports each step."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from blend.core.completion import Completion
from blend.core.engines import StepReport
from blend.core.engines.vllm import VllmEngine
from tests.tiny_engine import TEXT, Body, request, settings, text

pytestmark = pytest.mark.vllm

PACES = (32, 64, 128)
STEPS_A_PACE = 40
DECODERS = 6
PROMPT_TOKENS = 320
# Longer than all prompts take, and the reports that lag.
ANSWER_TOKENS = 3 * STEPS_A_PACE + 180
KV_TOKENS = 8192


@pytest.fixture(scope="module")
def engine(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmEngine]:
    """An engine that keeps a pace, with little memory."""
    log_path = tmp_path_factory.mktemp("paced") / "engine.log"
    asked = settings(
        tiny_model_dir,
        log_path,
        kv_cache_memory_bytes=str(2048 * (KV_TOKENS + 32)),
        **{"max-num-seqs": "32"},
    )
    engine = VllmEngine.start(replace(asked, pacing="step budget", seeded=False))
    engine.wait_ready()
    yield engine
    engine.close()


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
    engine: VllmEngine, *, paced: bool
) -> tuple[list[Any], dict[int, list[StepReport]]]:
    """Let long prompts wait beside long answers, at one pace after another.

    Returns the choices of all rows, and by pace the reports while prompts were computed.
    """
    observed = Observed(engine)
    rows = observed.submit([long_answer(number) for number in range(DECODERS)])
    while observed.step().decode_tokens < DECODERS:
        pass
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
    engine: VllmEngine,
) -> None:
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
        assert all(report.prefill_tokens <= pace * report.steps for report in computing)
        # No answer waits for a prompt.
        assert all(report.decode_tokens == DECODERS * report.steps for report in computing)
    assert paced == unpaced
