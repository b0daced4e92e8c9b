"""A schedule that begins while the engine is at work: what is inside is not begun again."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blend.core.engines import Pacing, StepReport
from blend.core.engines.sim import SimEngine
from blend.core.planning.classes import Mode
from blend.core.request import Request
from blend.core.running.blend_scan import BlendScanner
from blend.core.running.carried import Carried, open_carrying
from blend.core.running.dual_scan import DualScanner
from blend.core.running.executor import run
from blend.core.running.scan import Scanner, open_scanner
from blend.core.schedule import POLICIES, Policy, Schedule
from tests.small_jobs import capacity, grouped, scanner_of, schedule
from tests.test_scan import LaggingEngine, plans


def begun(
    requests: list[Request], engine: SimEngine, steps: int
) -> tuple[set[int], list[int], StepReport | None]:
    """Run requests in their order for some steps; return what is inside, what ended, the last."""
    first = scanner_of(requests, schedule(requests), engine.capacity)
    inside: set[int] = set()
    reports = list(islice(run(first, requests.__getitem__, engine, inside=inside), steps))
    done = [completion.row for report in reports for completion in report.completions]
    return inside, done, reports[-1] if reports else None


def going_on(
    requests: list[Request],
    plan: Schedule,
    engine: SimEngine,
    inside: set[int],
    done: Sequence[int],
    last: StepReport | None,
) -> Scanner:
    """Return the scanner of a plan that finds these rows inside, and those done."""
    pending = np.ones(len(requests), np.bool_)
    pending[list(done)] = False
    told, sequences = engine.ages(), np.array([one.sequences for one in requests])
    ages = {row: told.get(row, 1) for row in inside}
    return open_carrying(
        plan.only(pending),
        prompt_tokens=np.array([len(one.prompt) for one in requests]),
        sequences=sequences,
        capacity=engine.capacity,
        carried=Carried(ages, sequences, last),
    )


@settings(max_examples=150, deadline=None)
@given(plans(), st.integers(14, 40), st.integers(1, 12), st.integers(0, 4), st.integers(0, 40))
def test_what_is_inside_is_never_submitted_again_and_every_row_ends_once(
    job: tuple[list[Request], Schedule], blocks: int, slots: int, lag_steps: int, steps: int
) -> None:
    requests, plan = job
    limits = capacity(16 * blocks, max_sequences=slots, step_tokens=128)
    engine = LaggingEngine(limits, lag_steps=lag_steps)
    inside, done, last = begun(requests, engine, steps)
    carried, submitted = set(inside), list[int]()
    scanner = going_on(requests, plan, engine, inside, done, last)

    for report in run(
        scanner, requests.__getitem__, engine, on_admit=submitted.extend, inside=inside
    ):
        done += [completion.row for completion in report.completions]

    assert scanner.done
    assert sorted(done) == list(range(len(requests)))
    assert sorted([*submitted, *carried]) == sorted(set(submitted) | carried)


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_inside_takes_its_room_from_what_enters(policy: Policy) -> None:
    requests = grouped(8, size=8, shared=32, own=32, max_tokens=40)
    engine = SimEngine(capacity(64 * 20), step_s=lambda *_: 1e-3, output_tokens=lambda _: 40)
    inside, done, last = begun(requests, engine, 5)
    scanner = going_on(requests, schedule(requests, policy=policy), engine, inside, done, last)

    assert len(inside) > 4
    # Were they not counted, as many could enter again.
    assert len(scanner.admit()) <= len(inside) // 2


@pytest.mark.parametrize("policy", POLICIES)
def test_a_schedule_begins_with_what_is_inside_at_the_end_where_it_belongs(policy: Policy) -> None:
    requests = grouped(2, size=3, shared=16, own=4, max_tokens=8)
    plan = schedule(requests, policy=policy, density=[9, 8, 7, 0.3, 0.2, 0.1])
    inside = np.isin(np.arange(6), [2, 3])

    order = plan.beginning_with(inside).order.tolist()

    assert order == ([2, 0, 1, 4, 5, 3] if policy in ("paper", "blend") else [2, 3, 0, 1, 4, 5])


@pytest.mark.slow  # compiles the kernels
@pytest.mark.parametrize("pacing", ["step budget", "none"])
def test_a_blending_scanner_knows_how_old_the_answers_are_that_it_finds(pacing: Pacing) -> None:
    requests = grouped(2, size=4, shared=16, own=4, max_tokens=4_000)
    limits = replace(capacity(16 * 4_000), pacing=pacing)
    sequences = np.ones(8, np.int64)
    ages = {0: 300, 1: 0, 7: 2_000}
    scanner = open_carrying(
        schedule(requests, policy="blend", density=[9] * 4 + [0.1] * 4),
        prompt_tokens=np.full(8, 20),
        sequences=sequences,
        capacity=limits,
        carried=Carried(ages, sequences, None),
    )
    assert isinstance(scanner, BlendScanner)
    state, inside = scanner.state.state[0], scanner.state.inside

    assert int(state["inside"]) == 3
    # The second still waits for its prompt to be computed.
    assert float(state["decoders"]) == 2.0
    assert float(state["reading"]) == 20 + 300 + 20 + 2_000
    records = inside.records[:3]
    assert dict(zip(records["row"].tolist(), records["memory_side"].tolist(), strict=True)) == {
        0: 0,
        1: 0,
        7: 1,
    }
    # What is computed next is the prompt that waits, and those of rows to come.
    assert not set(scanner.admit()) & set(ages)


@pytest.mark.parametrize("policy", ["paper", pytest.param("blend", marks=pytest.mark.slow)])
def test_where_all_is_inside_each_row_counts_on_its_side(policy: Policy) -> None:
    requests = grouped(6, size=1, shared=0, own=20, max_tokens=400)
    sequences = np.ones(6, np.int64)
    scanner = open_carrying(
        schedule(requests, policy=policy, density=[9] * 2 + [0.1] * 4),
        prompt_tokens=np.full(6, 20),
        sequences=sequences,
        capacity=capacity(16 * 400),
        carried=Carried(dict.fromkeys(range(6), 30), sequences, None),
    )

    assert scanner.done
    if isinstance(scanner, BlendScanner):
        assert scanner.state.inside.records["memory_side"][:6].sum() == 4
    else:
        assert isinstance(scanner, DualScanner)
        assert scanner.used_tokens == (2 * 220, 4 * 220)


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_inside_counts_even_where_it_would_never_be_let_in(policy: Policy) -> None:
    requests = grouped(1, size=12, shared=16, own=48, max_tokens=400)
    sequences = np.ones(12, np.int64)
    scanner = open_carrying(
        schedule(requests, policy=policy),
        prompt_tokens=np.full(12, 64),
        sequences=sequences,
        capacity=capacity(64, max_sequences=2),
        carried=Carried(dict.fromkeys(range(11), 10), sequences, None),
    )

    assert list(scanner.admit()) == []
    assert not scanner.done


@pytest.mark.slow  # compiles the kernels
@pytest.mark.parametrize("mode", ["overlapped", "sequential"])
def test_fewer_begin_where_a_class_is_known_by_the_few_that_ended_before_the_bound(
    mode: Mode,
) -> None:
    requests = grouped(60, size=1, shared=0, own=10, max_tokens=400)
    plan = schedule(requests, policy="blend", density=[0.1] * 60)
    assert plan.blending is not None
    one_class = replace(plan.blending.classes, label=np.ones(60, np.int32))
    blending = replace(plan.blending, classes=one_class, mode=mode, weights_s=0.0, read_s=1e-3)
    told = replace(plan, blending=blending)
    admitted = []
    for cut_off in (False, True):
        scanner = open_scanner(
            told,
            prompt_tokens=np.full(60, 10),
            sequences=np.ones(60, np.int64),
            capacity=replace(capacity(1_600, max_sequences=60), pacing="step budget"),
        )
        assert isinstance(scanner, BlendScanner)
        scanner.state.beliefs.doubted[:] = cut_off
        admitted.append(len(scanner.admit()))

    assert 0 < admitted[0] < 60
    assert (admitted[1] < admitted[0]) == (mode == "overlapped")
