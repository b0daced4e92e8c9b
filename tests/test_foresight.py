"""A plan foresees a timeline, and every timeline adds up to its run."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blend.core.planning import foresight
from blend.core.planning.engine_model import EngineModel, engine_model
from blend.core.planning.foresight import drawn_lengths, foreseen_timeline
from blend.core.planning.hardware import hardware_preset, model_preset
from blend.core.planning.lengths import OBSERVED, PRIOR, Lengths
from blend.core.planning.plan import make_plan
from blend.core.planning.timeline import (
    Stretches,
    TimelineBuckets,
    bucketed,
    measured_timeline,
    resampled,
)
from blend.core.planning.tree import build_tree
from blend.core.schedule import Policy
from tests.prompt_sets import prompts_of

HARDWARE, MODEL = hardware_preset("a100-80g"), model_preset("llama-3-8b")


def engine() -> EngineModel:
    return engine_model(HARDWARE, MODEL, max_sequences=16)


@st.composite
def stretches(draw: st.DrawFn) -> Stretches:
    n = draw(st.integers(1, 30))

    def counts(most: int) -> np.ndarray:
        return np.array(draw(st.lists(st.integers(0, most), min_size=n, max_size=n)))

    gaps = np.array(draw(st.lists(st.floats(0.01, 10), min_size=n, max_size=n)))
    return Stretches(np.cumsum(gaps), counts(9), counts(999), counts(999), counts(9), counts(5))


@given(run=stretches(), buckets=st.integers(1, 40))
def test_buckets_add_up_to_the_run(run: Stretches, buckets: int) -> None:
    model = engine()
    found = measured_timeline(run, model, buckets=buckets)

    assert len(found.seconds) == min(buckets, len(run.seconds))
    assert found.seconds[-1] == pytest.approx(run.seconds[-1])
    assert np.allclose(np.diff(found.seconds, prepend=0), found.seconds[0])
    assert found.compute_s.sum() == pytest.approx(model.token_s * run.computed_tokens.sum())
    assert found.memory_s.sum() == pytest.approx(model.read_s * (run.kv_tokens * run.steps).sum())
    assert found.answered[-1] == run.answered.sum()
    assert found.kv_tokens[-1] == run.kv_tokens[-1]
    assert (np.diff(found.answered) >= 0).all()


def test_answers_within_one_long_stretch_come_evenly_in_finer_buckets() -> None:
    one = np.array([7])
    whole = measured_timeline(Stretches(np.array([10.0]), one, one, one, one, one), engine())

    assert resampled(whole, np.array([0.1, 5.0, 9.9, 11.0])).answered.tolist() == [0, 4, 7, 7]


@given(run=stretches(), longer=st.floats(1, 3))
def test_a_timeline_on_a_longer_axis_loses_nothing_and_ends_where_it_ended(
    run: Stretches, longer: float
) -> None:
    whole = measured_timeline(run, engine())
    found = resampled(whole, np.linspace(0, longer * whole.seconds[-1], 9)[1:])

    assert found.compute_s.sum() == pytest.approx(whole.compute_s.sum())
    assert found.answered[-1] == whole.answered[-1]
    assert (found.running[found.seconds > whole.seconds[-1] * 1.001] == 0).all()


def test_the_time_of_a_number_of_answers_is_the_first_moment_with_so_many() -> None:
    nothing = np.zeros(4, np.int64)
    found = TimelineBuckets(
        np.array([1.0, 2.0, 3.0, 4.0]),
        nothing,
        nothing,
        nothing,
        nothing,
        np.array([0, 10, 10, 20]),
    )

    assert found.seconds_until(0) == 0
    assert found.seconds_until(10) == 2
    assert found.seconds_until(15) == pytest.approx(3.0)
    assert found.seconds_until(99) == 4


def test_nothing_run_is_a_timeline_without_buckets() -> None:
    none, nothing = np.zeros(0, np.int64), np.zeros(0)
    found = bucketed(
        nothing, compute_s=nothing, memory_s=nothing, kv_tokens=none, running=none, answered=none
    )

    assert {len(getattr(found, field.name)) for field in fields(found)} == {0}
    assert found.seconds_until(5) == 0


def job(rows: int = 60):
    rng = np.random.default_rng(3)
    shared = list(range(200))
    token_ids = [[*shared[: 200 * (row % 2)], *rng.integers(0, 999, 30)] for row in range(rows)]
    return prompts_of(token_ids, max_tokens=[40 if row % 2 else 200 for row in range(rows)])


def timeline(policy: Policy = "paper", *, sequences: int = 1) -> TimelineBuckets | None:
    prompts = job()
    prompts.sequences[:] = sequences
    tree = build_tree(prompts)
    plan = make_plan(prompts, policy=policy, hardware=HARDWARE, model=MODEL, tree=tree)
    return foreseen_timeline(prompts, tree, plan.schedule, plan.lengths, engine())


@pytest.mark.parametrize("policy", ["paper", "dfs", "fcfs"])
def test_a_plan_foresees_the_end_of_every_row(policy: Policy) -> None:
    found = timeline(policy)

    assert found is not None
    assert found.answered[-1] == 60
    assert found.running.max() <= 16
    assert found.kv_tokens[-1] == 0
    # A sequential engine does one after the other, and reads the weights.
    assert found.compute_s.sum() + found.memory_s.sum() < found.seconds[-1]


def test_every_answer_of_a_request_is_foreseen() -> None:
    one, three = timeline(), timeline(sequences=3)

    assert one is not None
    assert three is not None
    assert three.answered[-1] == one.answered[-1]
    assert three.seconds[-1] > one.seconds[-1]


@pytest.mark.slow  # compiles the kernels where that has not been done
@pytest.mark.parametrize("policy", ["paper", "dfs"])
def test_the_kernels_foresee_what_the_objects_do(policy: Policy, monkeypatch) -> None:
    objects = timeline(policy)
    monkeypatch.setattr(foresight, "SMALL_STEPS", 0)
    kernels = timeline(policy)

    assert objects is not None
    assert kernels is not None
    # The objects leave out the attention of prefill.
    assert kernels.seconds[-1] == pytest.approx(objects.seconds[-1], rel=0.02)
    assert kernels.answered[-1] == objects.answered[-1]
    assert kernels.compute_s.sum() == pytest.approx(objects.compute_s.sum(), rel=0.02)
    assert timeline(policy, sequences=2) is None


@pytest.mark.parametrize(
    "small_steps", [10**6, pytest.param(0, marks=pytest.mark.slow)], ids=["objects", "kernels"]
)
def test_a_boundless_cache_is_simulated_with_as_many_blocks_as_are_needed(
    small_steps: int, monkeypatch
) -> None:
    monkeypatch.setattr(foresight, "SMALL_STEPS", small_steps)
    prompts = job()
    tree = build_tree(prompts)
    plan = make_plan(prompts, policy="dfs", hardware=HARDWARE, model=MODEL, tree=tree)
    large, boundless = (
        replace(engine(), capacity=replace(engine().capacity, kv_tokens=tokens))
        for tokens in (10**6, 2**50)
    )
    found = [
        foreseen_timeline(prompts, tree, plan.schedule, plan.lengths, one)
        for one in (large, boundless)
    ]

    assert found[0] is not None
    assert found[1] is not None
    assert found[0].seconds.tolist() == found[1].seconds.tolist()
    assert found[0].kv_tokens.tolist() == found[1].kv_tokens.tolist()


def test_lengths_are_drawn_around_what_is_expected_and_known_ones_kept() -> None:
    prompts = prompts_of([[1]] * 4000, max_tokens=[8] * 1000 + [4096] * 3000)
    expected = np.array([5.0] * 1000 + [100.0] * 3000)
    source = np.full(4000, PRIOR, np.int8)
    source[-1000:] = OBSERVED
    drawn = drawn_lengths(prompts, Lengths(expected, source), seed=1)

    assert set(drawn[:1000]) == {5}
    assert set(drawn[-1000:]) == {100}
    assert drawn[1000:3000].std() > 30
    assert drawn[1000:3000].mean() == pytest.approx(100, rel=0.1)
    assert drawn.min() >= 1


def test_where_a_prompt_does_not_fit_nothing_is_foreseen() -> None:
    prompts = job()
    tree = build_tree(prompts)
    plan = make_plan(prompts, policy="dfs", hardware=HARDWARE, model=MODEL, tree=tree)
    small = engine_model(hardware_preset("cpu"), MODEL)

    assert foreseen_timeline(prompts, tree, plan.schedule, plan.lengths, small) is None
