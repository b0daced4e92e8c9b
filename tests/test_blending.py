"""The blending policy finds classes without labels, and an order that keeps prefixes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blend.core.planning.blending import blended_schedule, memory_first_schedule, shuffled_places
from blend.core.planning.classes import LengthClasses, find_classes
from blend.core.planning.engine_model import engine_model
from blend.core.planning.guard import plain_schedule
from blend.core.planning.hardware import hardware_preset, model_preset
from blend.core.planning.lengths import Observations, choose_sample
from blend.core.planning.simulate import Simulated, simulate
from blend.core.planning.tree import Tree, build_tree, uncached_tokens
from blend.core.prompts import Prompts
from blend.core.schedule import LEFT, Schedule
from tests.prompt_sets import prompts_of, shared_prefixes, token_lists

# Compiling the kernels takes half a minute where that has not been done.
pytestmark = pytest.mark.slow

ON = {"hardware": hardware_preset("a100-80g"), "model": model_preset("llama-3-8b")}


def mixed_job(rows: int = 3000, *, seed: int = 0) -> tuple[Prompts, np.ndarray]:
    """Return prompts of three kinds with one `max_tokens`, and the lengths of their answers."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(3, rows, p=[0.6, 0.37, 0.03])
    own = np.array([400, 500, 150])[kind] + rng.integers(0, 60, rows)
    token_ids = shared_prefixes([64] * rows, 64 + own, kind)
    typical = np.array([40, 2, 6000])[kind]
    lengths = np.clip(rng.lognormal(np.log(typical), 0.5), 1, 30_000).astype(np.int64)
    return prompts_of(token_ids, max_tokens=32_768), lengths


def sampled(prompts: Prompts, tree: Tree, lengths: np.ndarray) -> Observations:
    rows = choose_sample(tree, prompts, minimum=30, every_cohort=True, seed=1)
    tokens = np.full(len(prompts), np.nan)
    tokens[rows] = lengths[rows]
    return Observations(tokens, ~np.isnan(tokens))


def classes_of(prompts: Prompts, tree: Tree, lengths: np.ndarray) -> LengthClasses:
    return find_classes(tree, prompts.max_tokens, sampled(prompts, tree, lengths))


def test_kinds_that_differ_become_classes_without_labels() -> None:
    prompts, lengths = mixed_job()
    tree = build_tree(prompts)
    classes = classes_of(prompts, tree, lengths)

    assert len(classes) == 3
    for one in range(3):
        assert np.std(np.log(lengths[classes.label == one])) < 0.7
    assert sorted(np.exp(classes.centre)) == pytest.approx([2, 40, 6000], rel=0.5)


def test_kinds_that_are_alike_become_one_class() -> None:
    prompts, _ = mixed_job()
    lengths = np.random.default_rng(2).lognormal(np.log(100), 0.5, len(prompts)).astype(np.int64)
    tree = build_tree(prompts)

    assert len(classes_of(prompts, tree, lengths)) == 1


def test_rows_of_tiny_limits_are_known() -> None:
    prompts = prompts_of([[1, row] for row in range(20)], max_tokens=[2] * 10 + [500] * 10)
    classes = find_classes(build_tree(prompts), prompts.max_tokens)

    assert classes.known.tolist() == [2.0] * 10 + [0.0] * 10
    assert set(classes.label[:10]).isdisjoint(classes.label[10:])


@given(token_lists, st.integers(0, 5))
def test_shuffled_places_keep_every_subtree_in_one_piece(token_ids, seed: int) -> None:
    tree = build_tree(prompts_of(token_ids))
    places = shuffled_places(tree, np.random.default_rng(seed))

    assert sorted(places.tolist()) == list(range(len(tree)))
    for lo, hi in zip(tree.lo, tree.hi, strict=True):
        inside = places[tree.rows[lo:hi]]
        assert inside.max() - inside.min() == hi - lo - 1


def test_compute_bound_classes_come_first_and_sharing_is_kept() -> None:
    prompts, lengths = mixed_job()
    tree = build_tree(prompts)
    found = blended_schedule(tree, classes_of(prompts, tree, lengths), **ON, mode="overlapped")

    assert sorted(found.order.tolist()) == list(range(len(prompts)))
    assert (np.diff(found.density) <= 1e-12).all()
    assert lengths[found.order[found.side == LEFT]].max() < 1000
    assert found.uncached_tokens.sum() <= 1.01 * tree.unique_tokens


@pytest.mark.parametrize(("mode", "gain"), [("overlapped", 1.1), ("sequential", 1.1)])
def test_blending_beats_the_plain_orders(mode, gain: float) -> None:
    prompts, lengths = mixed_job()
    tree = build_tree(prompts)
    engine = engine_model(**ON, mode=mode, step_tokens=2048)
    classes = classes_of(prompts, tree, lengths)

    def seconds(schedule: Schedule) -> float:
        return simulate(tree, schedule, output_tokens=lengths, engine=engine).seconds

    plain = memory_first_schedule(tree, classes, **ON)
    rows = np.arange(len(tree))
    file_order = Schedule(
        "fcfs",
        rows,
        plain.side,
        plain.expected_tokens,
        uncached_tokens(tree, rows),
        plain.density,
        plain.root_density,
    )
    ours = seconds(blended_schedule(tree, classes, **ON, mode=mode))

    assert seconds(plain) > ours
    assert seconds(file_order) > gain * ours


@pytest.mark.parametrize("mode", ["overlapped", "sequential"])
def test_a_cache_of_few_requests_is_filled_as_a_depth_first_order_fills_it(mode) -> None:
    """Steps that read little but the weights: memory kept free there is lost."""
    prompts, lengths = mixed_job(400)
    lengths = np.minimum(lengths, 2_000)
    tree = build_tree(prompts)
    engine = engine_model(**ON, mode=mode, step_tokens=2048)
    engine = replace(engine, capacity=replace(engine.capacity, kv_tokens=8_000))
    classes = classes_of(prompts, tree, lengths)
    ours = blended_schedule(tree, classes, **ON, mode=mode)
    depth_first = plain_schedule(tree, "dfs", tree.rows)

    def run(schedule: Schedule) -> Simulated:
        return simulate(tree, schedule, output_tokens=lengths, engine=engine)

    assert run(depth_first).seconds > 0.9 * run(ours).seconds
    assert run(ours).cached_tokens > 0.97 * run(depth_first).cached_tokens


def test_a_replica_risks_no_memory_for_a_row_that_another_may_take() -> None:
    prompts, lengths = mixed_job(400)
    lengths = np.minimum(lengths, 2_000)
    tree = build_tree(prompts)
    engine = engine_model(**ON, mode="overlapped", step_tokens=2048)
    engine = replace(engine, capacity=replace(engine.capacity, kv_tokens=8_000))
    alone = blended_schedule(tree, classes_of(prompts, tree, lengths), **ON, mode="overlapped")
    assert alone.blending is not None
    beside = replace(alone, blending=replace(alone.blending, movable=True))
    bold, careful = (
        simulate(tree, schedule, output_tokens=lengths, engine=engine)
        for schedule in (alone, beside)
    )

    assert bold.preemptions > 0
    assert careful.preemptions < bold.preemptions / 2
    assert careful.seconds > bold.seconds
