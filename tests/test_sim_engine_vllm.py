"""The simulated engine takes as many steps as a real one, end to end: no part of vLLM is left out.

Both get the same requests in the same order with the same options, all before the first step.
"""

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import pytest

from blend.core.engines import Engine, StepReport, total
from blend.core.engines.sim import SimEngine
from blend.core.planning.hardware import hardware_preset, model_preset
from blend.core.planning.lengths import Observations
from blend.core.planning.plan import make_plan
from blend.core.request import Request
from blend.core.running import executor
from blend.core.running.in_flight import WAITING_SEQUENCES
from blend.core.running.scan import open_scanner
from blend.core.schedule import Policy
from tests.prompt_sets import prompts_of
from tests.small_jobs import step_s
from tests.small_memory import SmallMemory
from tests.tiny_engine import TEXT

pytestmark = pytest.mark.vllm

ROWS = 160


def request(row: int, prompt: Sequence[int], output_tokens: int) -> Request:
    body = {
        "prompt": list(map(int, prompt)),
        "max_tokens": output_tokens,
        "temperature": 0,
        "ignore_eos": True,
    }
    tokens = np.asarray(prompt, np.uint32)
    return Request(row, f"id-{row}", TEXT, json.dumps(body).encode(), tokens, output_tokens)


def requests(seed: int) -> list[Request]:
    """Return prompts that share prefixes, most with short answers and some with long ones."""
    rng = np.random.default_rng(seed)
    heads = [rng.integers(5, 390, tokens) for tokens in rng.integers(60, 260, 24)]
    made = []
    for row in range(ROWS):
        prompt = np.concatenate([heads[row % 24], rng.integers(5, 390, rng.integers(5, 120))])
        output = rng.integers(80, 300) if rng.random() < 0.15 else rng.integers(1, 12)
        made.append(request(row, prompt.tolist(), int(output)))
    return made


def run_by(
    policy: Policy, rows: Sequence[Request], engine: Engine
) -> tuple[list[int], list[StepReport]]:
    """Run *rows* as the policy's scanner admits them; return their order and all reports."""
    lengths = np.array([one.max_tokens for one in rows], float)
    prompts = prompts_of(
        [one.prompt.tolist() for one in rows], max_tokens=[one.max_tokens for one in rows]
    )
    plan = make_plan(
        prompts,
        policy=policy,
        hardware=hardware_preset("a100-80g"),
        model=model_preset("llama-3-8b"),
        observations=Observations(lengths, np.ones(len(rows), np.bool_)),
        seed=1,
    )
    scanner = open_scanner(
        plan.schedule,
        prompt_tokens=prompts.lengths,
        sequences=prompts.sequences,
        capacity=engine.capacity,
    )
    order: list[int] = []
    ran = executor.run(scanner, lambda row: rows[row], engine, on_admit=order.extend)
    reports = list(ran)
    return order, reports


def fifo(
    engine: Engine,
    rows: Sequence[Request],
    *,
    pace: int | None,
    held: AbstractContextManager[None],
) -> StepReport:
    """Run all of *rows* in this order and return what it took."""
    engine.pace(pace)
    with held:
        for one in rows:
            engine.submit(one)
    reports: list[StepReport] = []
    while sum(len(report.completions) for report in reports) < len(rows):
        reports.append(engine.step())
    engine.pace(None)
    return total(reports)


@pytest.mark.parametrize(
    ("policy", "pace", "seed"),
    [("random", None, 1), ("dfs", None, 2), ("blend", None, 3), ("blend", 48, 4)],
)
def test_the_simulated_engine_takes_the_steps_of_the_real_one(
    small_memory: SmallMemory, policy: Policy, pace: int | None, seed: int
) -> None:
    """Other prompts each time: the real engine remembers those that it has seen."""

    def simulated() -> SimEngine:
        return SimEngine(
            small_memory.engine.capacity, step_s=step_s, output_tokens=lambda one: one.max_tokens
        )

    rows = requests(seed)
    order = [rows[row] for row in run_by(policy, rows, simulated())[0]]
    ours = fifo(simulated(), order, pace=pace, held=nullcontext())
    # All arrive before the first step: how fast they would has no part in it.
    theirs = fifo(small_memory.engine, order, pace=pace, held=small_memory.held(len(order)))

    assert len(order) == ROWS
    assert all(completion.status_code == 200 for completion in theirs.completions)
    assert pace or ours.preemptions > 5
    assert theirs.steps == pytest.approx(ours.steps, rel=0.01)
    assert theirs.cached_tokens == pytest.approx(ours.cached_tokens, rel=0.01)
    assert theirs.preemptions == pytest.approx(ours.preemptions, rel=0.05, abs=2)
    assert theirs.prefill_tokens == pytest.approx(ours.prefill_tokens, rel=0.01)
    assert theirs.decode_tokens == pytest.approx(ours.decode_tokens, rel=0.01)


@pytest.mark.parametrize("policy", ["fcfs", "dfs", "paper", "memory-first", "blend"])
def test_few_requests_wait_inside_the_engine(small_memory: SmallMemory, policy: Policy) -> None:
    """A few to bridge the lag of reports, or as many as end together, and those with a slot."""
    rows = requests(seed=5)
    order, reports = run_by(policy, rows, small_memory.engine)
    slots = small_memory.engine.capacity.max_sequences

    assert sorted(order) == list(range(ROWS))
    waiting = max(WAITING_SEQUENCES, *(len(report.completions) for report in reports))
    assert all(r.running + r.waiting <= slots + waiting for r in reports)
    assert {c.status_code for report in reports for c in report.completions} == {200}
