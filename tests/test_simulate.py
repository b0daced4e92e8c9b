"""The compiled simulation runs a job exactly as the object loop does, step for step."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from blend.core.engines import StepReport
from blend.core.engines.sim import SimEngine
from blend.core.planning.engine_model import MODES, EngineModel
from blend.core.planning.hardware import Parallel, hardware_preset, model_preset, several
from blend.core.planning.interference import Interference
from blend.core.planning.simulate import Simulated, simulate
from blend.core.planning.tree import build_tree
from blend.core.request import Request
from blend.core.running.executor import run
from blend.core.schedule import Policy, Schedule
from tests.prompt_sets import prompts_of
from tests.small_jobs import capacity, request, scanner_of, schedule

# Compiling the kernels takes half a minute where that has not been done.
pytestmark = pytest.mark.slow

DEVICE, MODEL = hardware_preset("a100-80g"), model_preset("llama-3-8b")


@dataclass
class Case:
    requests: list[Request]
    outputs: np.ndarray
    plan: Schedule
    engine: EngineModel


def drawn_case(seed: int, *, policy: Policy = "fcfs", **limited: Any) -> Case:
    """Return a job with shared prefixes and too little cache, and an engine for it.

    ``limited``: what is changed of the engine's capacity.
    """
    rng = np.random.default_rng(seed)
    requests = []
    for row in range(int(rng.integers(1, 120))):
        shared = [int(rng.integers(0, 5))] * int(rng.integers(0, 120))
        own = rng.integers(5, 8, rng.integers(1, 60)).tolist()
        requests.append(request(row, shared + own, max_tokens=int(rng.integers(1, 200))))
    outputs = np.array([rng.integers(1, one.max_tokens + 1) for one in requests])
    limits = capacity(
        16 * int(rng.integers(26, 120)),
        max_sequences=int(rng.integers(1, 40)),
        step_tokens=int(rng.integers(40, 300)),
    )
    limits = replace(limits, **{"pacing": "step budget"} | limited)
    order = rng.permutation(len(requests)).tolist()
    density = sorted(rng.lognormal(0.0, 2.0, len(requests)))[::-1]
    expected = rng.integers(1, 100, len(requests)).tolist()
    plan = schedule(requests, policy=policy, order=order, expected=expected, density=density)
    if plan.blending is not None:
        plan = replace(plan, blending=replace(plan.blending, mode=MODES[seed % 2]))
    mode = MODES[seed % 2]
    engine = EngineModel(limits, DEVICE, MODEL, mode, overhead_s=1e-3, attention=False)
    return Case(requests, outputs, plan, engine)


def run_objects(case: Case) -> tuple[list[StepReport], np.ndarray]:
    """Return the reports of the object loop, and when each row's end was reported."""
    engine = SimEngine(
        case.engine.capacity,
        step_s=case.engine.step_s,
        output_tokens=lambda one: int(case.outputs[one.row]),
    )
    reports, finished_s = [], np.full(len(case.requests), np.nan)
    scanner = scanner_of(case.requests, case.plan, case.engine.capacity)
    for report in run(scanner, case.requests.__getitem__, engine):
        reports.append(report)
        finished_s[[completion.row for completion in report.completions]] = engine.clock_s
    return reports, finished_s


def run_compiled(case: Case, **options: int) -> Simulated:
    tree = build_tree(prompts_of([one.prompt for one in case.requests]))
    return simulate(tree, case.plan, output_tokens=case.outputs, engine=case.engine, **options)


def assert_same_steps(found: Simulated, reports: Sequence[StepReport]) -> None:
    assert found.steps == len(reports)
    assert found.prefill_tokens == sum(report.prefill_tokens for report in reports)
    assert found.decode_tokens == sum(report.decode_tokens for report in reports)
    assert found.cached_tokens == sum(report.cached_tokens for report in reports)
    assert found.preemptions == sum(report.preemptions for report in reports)
    assert found.seconds == pytest.approx(sum(report.seconds for report in reports))


@pytest.mark.parametrize("policy", ["fcfs", "paper", "blend"])
@pytest.mark.parametrize("seed", range(40))
def test_the_compiled_loop_takes_the_steps_of_the_object_loop(seed: int, policy: Policy) -> None:
    case = drawn_case(seed, policy=policy)
    reports, finished_s = run_objects(case)
    found = run_compiled(case)

    assert_same_steps(found, reports)
    assert found.finished_s == pytest.approx(finished_s)


@pytest.mark.parametrize("seed", range(2))
def test_both_loops_take_as_long_where_devices_talk_to_each_other(seed: int) -> None:
    case = drawn_case(seed)
    hardware = several(DEVICE, Parallel(4, 2))
    together = replace(case, engine=replace(case.engine, hardware=hardware))
    silent = replace(case.engine, hardware=replace(hardware, link_bytes_s=None))
    reports, finished_s = run_objects(together)
    found = run_compiled(together)

    assert_same_steps(found, reports)
    assert found.finished_s == pytest.approx(finished_s)
    assert found.seconds > run_compiled(replace(case, engine=silent)).seconds


@pytest.mark.parametrize("policy", ["fcfs", "paper", "blend"])
@pytest.mark.parametrize(
    "limited",
    [
        {"pacing": "none"},
        {"pacing": "none", "prefill_threshold": 24},
        {"pacing": "none", "prefill_threshold": 24, "report_lag": 1},
        {"pacing": "step budget", "prefill_threshold": 40, "report_lag": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", range(8))
def test_both_loops_take_the_same_steps_however_the_engine_is_paced(
    seed: int, limited: dict[str, Any], policy: Policy
) -> None:
    case = drawn_case(seed, policy=policy, **limited)
    reports, _ = run_objects(case)
    found = run_compiled(case)

    assert_same_steps(found, reports)
    assert not np.isnan(found.finished_s).any()


def test_the_cases_preempt_and_share() -> None:
    found = [run_compiled(drawn_case(seed)) for seed in range(40)]

    assert sum(one.preemptions for one in found) > 100
    assert sum(one.cached_tokens for one in found) > 1000
    assert sum(one.recomputed_tokens for one in found) > 1000


@pytest.mark.parametrize("seed", range(10))
def test_every_token_is_computed_or_cached_once(seed: int) -> None:
    case = drawn_case(seed)
    found = run_compiled(case)
    # The last token of an answer is never computed.
    final = sum(len(one.prompt) for one in case.requests) + int(case.outputs.sum())
    needed = final - len(case.requests)

    computed = found.prefill_tokens + found.decode_tokens - found.recomputed_tokens
    assert computed + found.cached_tokens == needed
    assert not np.isnan(found.finished_s).any()
    assert found.peak_kv_tokens <= case.engine.capacity.kv_tokens
    assert found.peak_running <= case.engine.capacity.max_sequences


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shared_bandwidth", [True, False])
def test_steps_take_between_the_larger_and_the_sum_of_their_parts(mode, shared_bandwidth) -> None:
    case = drawn_case(3)
    bent = Interference(0.05, 0.2, 0.05)
    engine = replace(case.engine, mode=mode, shared_bandwidth=shared_bandwidth, interference=bent)
    found = run_compiled(Case(case.requests, case.outputs, case.plan, engine), line_steps=1)
    took = np.diff(found.timeline.seconds, prepend=0.0)
    compute, memory = found.timeline.compute_s, found.timeline.memory_s

    assert len(took) == found.steps
    # Reads of weights and cache share the bandwidth, or each has all of it.
    honest = mode == "overlapped" and shared_bandwidth
    read = memory + engine.weights_s if honest else memory
    worked = compute if honest else np.maximum(compute, engine.weights_s)
    assert (took >= (np.maximum(worked, read) + engine.overhead_s) * (1 - 1e-9)).all()
    assert (took <= (worked + read + engine.overhead_s) * (1 + 1e-9)).all()


def test_a_step_hides_compute_behind_weights_and_overlapped_reads_behind_compute() -> None:
    case = drawn_case(3)
    one = replace(case.engine, overhead_s=0.0, mode="sequential")
    both = replace(one, mode="overlapped", interference=Interference(0.0))
    busy = int(3 * one.weights_s / one.token_s)

    assert one.step_s(0, 0, 0) == both.step_s(0, 0, 0) == one.weights_s
    assert one.step_s(1, 1, 5000) == pytest.approx(one.weights_s + 5000 * one.read_s)
    assert one.step_s(busy, 0, 5000) == pytest.approx(busy * one.token_s + 5000 * one.read_s)
    assert both.step_s(busy, 0, 5000) == pytest.approx(busy * one.token_s)
    apart = replace(both, shared_bandwidth=False)
    assert apart.step_s(1, 1, 5000) == one.weights_s
    assert both.step_s(1, 1, 5000) == pytest.approx(one.weights_s + 5000 * one.read_s)


def test_a_row_that_the_cache_can_never_hold_is_refused() -> None:
    case = drawn_case(3)
    case.outputs[0] = case.engine.capacity.kv_tokens
    found = run_compiled(case)

    assert found.refused == 1
    assert np.flatnonzero(np.isnan(found.finished_s)).tolist() == [0]


def test_attention_of_long_prompts_takes_time() -> None:
    requests = [request(row, range(row, row + 1500), max_tokens=2) for row in range(4)]
    limits = capacity(8192, step_tokens=400)
    with_pairs = EngineModel(limits, DEVICE, MODEL)
    plan = schedule(requests)
    cases = [
        Case(requests, np.ones(4, np.int64), plan, engine)
        for engine in (with_pairs, replace(with_pairs, attention=False))
    ]
    seconds, without = (run_compiled(case).compute_s for case in cases)

    assert seconds - without == pytest.approx(4 * 1500**2 * with_pairs.pair_s)
