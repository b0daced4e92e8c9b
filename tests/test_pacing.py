"""The blending scanner keeps its pace on any engine, and believes what the engine says."""

from dataclasses import replace

import numpy as np
import pytest

from blend.core.engines import Capacity, StepReport, total
from blend.core.engines.sim import SimEngine
from blend.core.request import Request
from blend.core.running.executor import run
from blend.core.schedule import Schedule
from tests.small_jobs import capacity, grouped, request, scanner_of, schedule, step_s

# Compiling the kernels takes half a minute where that has not been done.
pytestmark = pytest.mark.slow

LONG, SHORT = 600, 2


def long_and_short(short: int = 120) -> list[Request]:
    """Return a few long answers to short prompts, and many of two tokens to longer prompts."""
    few = [request(row, [row] * 20, max_tokens=LONG) for row in range(4)]
    return few + [request(4 + row, [1000 + row] * 200, max_tokens=SHORT) for row in range(short)]


def blended(
    requests: list[Request], *, uncached: float = 1.0, mode: str = "sequential"
) -> Schedule:
    """Return a schedule that knows the lengths, the short answers first."""
    order = sorted(range(len(requests)), key=lambda row: requests[row].max_tokens)
    density = [0.1 if requests[row].max_tokens == LONG else 10.0 for row in order]
    plan = schedule(requests, policy="blend", order=order, density=density)
    assert plan.blending is not None
    known = np.array([float(one.max_tokens) for one in requests])
    classes = replace(
        plan.blending.classes,
        label=np.array([int(one.max_tokens == LONG) for one in requests], np.int32),
        known=known,
    )
    blending = replace(plan.blending, classes=classes, mode=mode, weights_s=5e-3, calibrated=True)
    tokens = np.maximum(uncached * plan.uncached_tokens, 1).astype(np.int64)
    return replace(plan, blending=blending, uncached_tokens=tokens)


def reports_of(requests: list[Request], plan: Schedule, limits: Capacity) -> list[StepReport]:
    engine = SimEngine(limits, step_s=step_s, output_tokens=lambda one: one.max_tokens)
    scanner = scanner_of(requests, plan, limits)
    return list(run(scanner, requests.__getitem__, engine))


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize(
    ("pacing", "threshold"), [("step budget", 0), ("none", 12)], ids=["step budget", "gate"]
)
def test_prefill_follows_the_pace_while_long_answers_run(pacing, threshold: int, lag: int) -> None:
    """50 tokens ride free on a step: those are computed, and the long answers are not late."""
    requests = long_and_short()
    limits = replace(capacity(1 << 14), pacing=pacing, prefill_threshold=threshold, report_lag=lag)
    reports = reports_of(requests, blended(requests), limits)
    prefill = np.array([report.prefill_tokens for report in reports])
    paced = prefill[10:400]

    assert paced.mean() + 4 == pytest.approx(50, rel=0.1)
    assert prefill.sum() == sum(len(one.prompt) for one in requests)
    assert len(reports) <= LONG + 5 + 2 * lag
    # Apart from its first steps the engine has few rows that wait.
    assert max(report.waiting for report in reports[5:]) <= 8


@pytest.mark.parametrize("max_tokens", [LONG, SHORT], ids=["memory side", "compute side"])
def test_a_gate_computes_a_prefix_once_from_either_end(max_tokens: int) -> None:
    """Prompts are computed in pieces, side by side: each row would compute the prefix."""
    requests = grouped(6, size=5, shared=320, own=12, max_tokens=max_tokens)
    few = [request(30 + row, [row] * 20, max_tokens=LONG + SHORT - max_tokens) for row in range(2)]
    requests += few
    plan = blended(requests)
    pays = 4 if max_tokens == LONG else 0  # The memory side is taken from its end.
    uncached = np.array([12 if row < 30 and row % 5 != pays else 1 << 10 for row in plan.order])
    plan = replace(plan, uncached_tokens=np.minimum(uncached, plan.uncached_tokens))
    limits = replace(capacity(1 << 15), pacing="none", prefill_threshold=12)
    reports = reports_of(requests, plan, limits)

    assert sum(one.prefill_tokens for one in reports) == 6 * 320 + 30 * 12 + 2 * 20


class FoldingEngine(SimEngine):
    """Is heard of every few steps alone, as by a parent that is slower; ``seen`` is every step."""

    def __init__(self, capacity: Capacity, *, folded: int):
        super().__init__(capacity, step_s=step_s, output_tokens=lambda one: one.max_tokens)
        self.seen: list[StepReport] = []
        self._folded = folded

    def step(self) -> StepReport:
        reports = [super().step()]
        while len(reports) < self._folded and (self._running or self._waiting or self._unheard):
            reports.append(super().step())
        self.seen += reports
        return total(reports)


@pytest.mark.parametrize("lag", [0, 1, 2])
@pytest.mark.parametrize("folded", [2, 4, 8])
@pytest.mark.parametrize("prompt_tokens", [24, 100, 400])
def test_a_gate_lets_nobody_in_for_steps_that_were_not_heard_of(
    prompt_tokens: int, folded: int, lag: int
) -> None:
    """Steps stay at the pace, and on average there where prompts are longer than reports are late.

    A prompt of 24 tokens is computed in two steps: of those that were not heard of most are empty.
    """
    threshold, pace = 12, 46
    requests = long_and_short(0)
    requests += [
        request(4 + row, [1000 + row] * prompt_tokens, max_tokens=SHORT)
        for row in range(pace * 420 // prompt_tokens)
    ]
    limits = replace(capacity(1 << 14), prefill_threshold=threshold, report_lag=lag)
    engine = FoldingEngine(limits, folded=folded)
    for _ in run(scanner_of(requests, blended(requests), limits), requests.__getitem__, engine):
        pass
    prefill = np.array([report.prefill_tokens for report in engine.seen])[20:380]

    assert prefill.max() <= pace + 1.5 * threshold
    if prompt_tokens >= folded * threshold:
        assert prefill.mean() == pytest.approx(pace, rel=0.1)


def test_without_a_pace_the_prefill_is_done_at_once() -> None:
    requests = long_and_short()
    plan = blended(requests)
    assert plan.blending is not None
    unpaced = replace(plan, blending=replace(plan.blending, paced=False))
    reports = reports_of(requests, unpaced, capacity(1 << 14))

    assert sum(report.prefill_tokens for report in reports[:60]) == sum(
        len(one.prompt) for one in requests
    )


@pytest.mark.parametrize("short", [120, 400], ids=["more to read", "more to compute"])
def test_where_operators_overlap_a_step_computes_as_long_as_it_reads(short: int) -> None:
    """Whatever is left of either: nothing is lost while compute keeps up with the reads."""
    requests = long_and_short(short)
    plan = blended(requests, mode="overlapped")
    assert plan.blending is not None
    speed = replace(plan.blending, token_s=1e-4, read_s=4e-6, weights_s=1e-7)
    limits = replace(capacity(1 << 14), pacing="step budget")
    reports = reports_of(requests, replace(plan, blending=speed), limits)
    step = np.arange(200, 400)
    prefill = np.array([reports[i].prefill_tokens for i in step])
    decodes = np.array([reports[i].decode_tokens for i in step])
    reads = 4e-6 * (4 * (20 + step) + 201 * (decodes - 4))
    computes = 1e-4 * (prefill + decodes)

    assert computes.sum() / reads.sum() == pytest.approx(0.9 if short == 120 else 1.0, abs=0.05)


def test_without_a_memory_side_an_engine_that_overlaps_is_not_paced() -> None:
    requests = [request(row, [row] * 200, max_tokens=SHORT) for row in range(120)]
    limits = capacity(1 << 14)
    reports = reports_of(requests, blended(requests, mode="overlapped"), limits)

    assert max(report.prefill_tokens for report in reports) >= 0.9 * limits.step_tokens


def test_once_only_compute_is_left_as_many_steps_are_taken_as_the_last_answer_needs() -> None:
    """Where operators overlap: a step of fewer tokens costs nothing, and answers end sooner."""
    answer = 80
    requests = [request(row, [row] * 200, max_tokens=answer) for row in range(60)]
    plan = blended(requests, mode="overlapped")
    assert plan.blending is not None
    limits = replace(capacity(1 << 15), pacing="step budget")
    whole = sum(len(one.prompt) + answer for one in requests)
    speed = replace(plan.blending, token_s=1e-4, read_s=1e-9, weights_s=1e-2)
    reports = reports_of(requests, replace(plan, blending=speed), limits)
    computed = [report.prefill_tokens + report.decode_tokens for report in reports]

    assert max(computed[:answer]) <= 1.1 * whole / answer < limits.step_tokens
    assert len(reports) < 3 * answer


@pytest.mark.parametrize("pacing", ["step budget", "none"])
def test_a_cache_that_is_fuller_than_believed_is_believed(pacing) -> None:
    """A tenth of each prompt is taken to be new, as if the rest were shared, and none is."""
    requests = [request(row, [row] * 300, max_tokens=60 if row % 2 else 61) for row in range(400)]
    limits = replace(capacity(8192), pacing=pacing)
    reports = reports_of(requests, blended(requests, uncached=0.1, mode="overlapped"), limits)

    later = reports[len(reports) // 2 :]
    # At first nothing is known. The forecast alone would go on to let in a hundred too many.
    assert max(report.waiting for report in later) <= 25
    assert sum(report.preemptions for report in later) <= 20
    assert np.mean([report.kv_tokens for report in reports]) > 0.7 * limits.kv_tokens
