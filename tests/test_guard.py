"""The guard keeps the fastest candidate, and the file order where nothing is faster."""

from dataclasses import replace

import numpy as np
import pytest

from blend.core.planning.blending import blended_schedule
from blend.core.planning.classes import find_classes
from blend.core.planning.engine_model import EngineModel, StepCosts, engine_model
from blend.core.planning.guard import (
    best_of,
    candidates_of,
    choose,
    draw_lengths,
    drawing,
    guarded_plan,
    plain_schedule,
)
from blend.core.planning.hardware import hardware_preset, model_preset
from blend.core.planning.outlook import Contender, look_ahead
from blend.core.planning.profile import with_costs
from blend.core.planning.simulate import simulate
from blend.core.planning.tree import Tree, build_tree
from blend.core.planning.ways import PacingName, Reach
from tests.prompt_sets import prompts_of
from tests.test_blending import classes_of, mixed_job, sampled

# Compiling the kernels takes half a minute where that has not been done.
pytestmark = pytest.mark.slow

ON = {"hardware": hardware_preset("a100-80g"), "model": model_preset("llama-3-8b")}


@pytest.mark.parametrize("mode", ["overlapped", "sequential"])
def test_the_chosen_way_is_as_fast_as_the_best_candidate_really_is(mode) -> None:
    prompts, lengths = mixed_job()
    tree = build_tree(prompts)
    classes = classes_of(prompts, tree, lengths)
    engine = engine_model(**ON, mode=mode, step_tokens=2048)
    contenders = candidates_of(tree, classes, engine)
    choice = choose(tree, classes, engine, contenders, draws=2)
    took = {name: took_s(tree, one, lengths, engine) for name, one in contenders.items()}
    kept = took_s(tree, Contender(choice.schedule, choice.way), lengths, engine)

    assert kept <= 1.03 * min(took.values())
    assert kept < took["fcfs"]
    assert len(choice.candidates) >= len(contenders)
    seconds = [one.seconds for one in choice.candidates]
    assert seconds == sorted(seconds)
    assert all(one.low_s <= one.seconds <= one.high_s for one in choice.candidates)


def took_s(tree: Tree, one: Contender, lengths: np.ndarray, engine: EngineModel) -> float:
    on = one.way.engine(engine)
    return simulate(tree, one.schedule, output_tokens=lengths, engine=on).seconds


def test_the_file_order_stays_where_nothing_is_faster() -> None:
    prompts = prompts_of([[row] * 20 for row in range(200)], max_tokens=4)
    tree = build_tree(prompts)
    classes = find_classes(tree, prompts.max_tokens)
    engine = engine_model(**ON)

    assert (
        choose(tree, classes, engine, candidates_of(tree, classes, engine)).schedule.policy
        == "fcfs"
    )


def test_nothing_more_is_simulated_than_is_wanted() -> None:
    prompts, lengths = mixed_job(300)
    tree = build_tree(prompts)
    classes = classes_of(prompts, tree, lengths)
    engine = engine_model(**ON)
    choice = choose(
        tree, classes, engine, candidates_of(tree, classes, engine), wanted=lambda: False
    )

    assert [one.name for one in choice.candidates] == ["fcfs"]


@pytest.mark.parametrize("pacing", ["step-budget", "gate"])
def test_a_gpu_whose_steps_read_large_weights_is_paced(pacing: PacingName) -> None:
    """A prompt token rides free on the weights there: the long answers' steps should carry them."""
    prompts, lengths = mixed_job()
    tree = build_tree(prompts)
    classes = classes_of(prompts, tree, lengths)
    engine = engine_model(hardware_preset("h200"), model_preset("llama-3-8b"))
    reach = Reach((pacing, "none"), started=True)
    choice = choose(tree, classes, engine, candidates_of(tree, classes, engine, reach=reach))

    assert choice.way.pacing == pacing
    assert choice.schedule.policy == "blend"


def test_a_plan_of_requests_with_several_answers_is_of_whole_requests() -> None:
    prompts, lengths = mixed_job(600)
    prompts = replace(prompts, sequences=np.full(len(prompts), 2, np.int32))
    tree = build_tree(prompts)
    engine = engine_model(hardware_preset("h200"), model_preset("llama-3-8b"))
    plan = guarded_plan(
        prompts,
        tree,
        engine,
        observations=sampled(prompts, tree, lengths),
        reach=Reach(("step-budget", "none"), started=True),
    )

    assert sorted(plan.schedule.order.tolist()) == list(range(600))
    assert plan.schedule.blending is not None
    assert len(plan.schedule.blending.classes.label) == 600


@pytest.mark.parametrize("seed", range(3))
def test_a_machine_on_which_nothing_rides_free_is_not_paced(seed: int) -> None:
    """As measured on two CPU cores: a step costs 85 ms and 3.2 ms a token."""
    prompts, lengths = mixed_job(300, seed=seed)
    tree = build_tree(prompts)
    classes = classes_of(prompts, tree, lengths)
    costs = StepCosts(0.085, 3.2e-3, 3.2e-3, 0.0, weights_s=0.0)
    engine = engine_model(
        hardware_preset("cpu"), model_preset("llama-3-8b"), max_sequences=64, step_tokens=2048
    )
    capacity = replace(engine.capacity, kv_tokens=100_000)
    engine = with_costs(replace(engine, capacity=capacity), costs)
    choice = choose(tree, classes, engine, candidates_of(tree, classes, engine))

    assert choice.way.pacing == "none"
    assert choice.way.step_tokens == 0
    assert any("gate" in one.name for one in choice.candidates)


def test_drawn_lengths_are_like_the_sample_and_known_ones_are_kept() -> None:
    prompts, lengths = mixed_job()
    tree = build_tree(prompts)
    classes = classes_of(prompts, tree, lengths)
    drawn = draw_lengths(classes, np.random.default_rng(3))

    for one in range(len(classes)):
        of_class = classes.label == one
        assert np.median(drawn[of_class]) == pytest.approx(
            np.median(lengths[of_class]), rel=0.5, abs=1
        )
    tiny = find_classes(tree, np.full(len(tree), 3, np.int32))
    assert set(draw_lengths(tiny, np.random.default_rng(3)).tolist()) == {3}


def test_a_length_known_by_a_tiny_limit_alone_is_drawn_up_to_it() -> None:
    prompts = prompts_of([[row] * 20 for row in range(400)], max_tokens=4)
    classes = find_classes(build_tree(prompts), prompts.max_tokens)
    limited = np.arange(400) < 300
    draw = drawing(classes, limited=limited, seed=2)
    first, second, third = (draw(number) for number in range(3))

    assert set(first.tolist()) == {4}
    assert set(second[limited].tolist()) == {1, 2, 3, 4}
    assert set(second[~limited].tolist()) == {4}
    assert (second != third).any()


@pytest.mark.parametrize(
    ("drawn_s", "kept"),
    [
        ([(100, 90, 110), (95, 85, 105)], "other"),  # 5 on every draw
        ([(100, 90, 110), (101, 91, 90)], "fcfs"),  # 6 on the average, all of it from one
        ([(100, 90, 110), (99.9, 89.9, 109.9)], "fcfs"),  # sure, and not worth it
        ([(100,), (95,)], "other"),  # one draw tells nothing of what draws scatter
    ],
)
def test_a_gain_counts_where_it_is_more_than_the_draws_scatter(
    drawn_s: list[tuple[float, ...]], kept: str
) -> None:
    prompts, lengths = mixed_job(60)
    tree = build_tree(prompts)
    contenders = {
        "fcfs": Contender(plain_schedule(tree, "fcfs", np.arange(len(tree)))),
        "other": Contender(plain_schedule(tree, "dfs", tree.rows)),
    }
    outlook = look_ahead(tree, engine_model(**ON), contenders, lambda _: lengths, draws=1)
    found = {one.name: one for one in outlook.candidates}
    candidates = [
        replace(found[name], drawn_s=drawn, seconds=float(np.mean(drawn)))
        for name, drawn in zip(contenders, drawn_s, strict=True)
    ]

    assert best_of(contenders, candidates).name == kept


def test_of_ways_that_surely_beat_a_plain_order_the_fastest_is_taken() -> None:
    prompts, lengths = mixed_job(60)
    tree = build_tree(prompts)
    order = Contender(plain_schedule(tree, "random", tree.rows))
    contenders = {
        "fcfs": Contender(plain_schedule(tree, "fcfs", np.arange(len(tree)))),
        "steady": order,
        "fast": order,
        "lucky": order,
    }
    outlook = look_ahead(tree, engine_model(**ON), contenders, lambda _: lengths, draws=1)
    drawn_s = {"fcfs": (100, 90, 110), "steady": (97, 87, 107), "fast": (97, 70, 100)}
    drawn_s["lucky"] = (101, 91, 40)
    candidates = [
        replace(one, drawn_s=drawn_s[one.name], seconds=float(np.mean(drawn_s[one.name])))
        for one in outlook.candidates
    ]

    assert best_of(contenders, candidates).name == "fast"


def test_the_same_seed_draws_and_orders_the_same() -> None:
    prompts, lengths = mixed_job(500)
    tree = build_tree(prompts)
    classes = classes_of(prompts, tree, lengths)
    engine = engine_model(**ON, mode="overlapped")
    runs = [
        simulate(
            tree,
            blended_schedule(tree, classes, **ON, mode="overlapped", seed=4),
            output_tokens=draw_lengths(classes, np.random.default_rng(4)),
            engine=engine,
        )
        for _ in range(2)
    ]

    assert runs[0].seconds == runs[1].seconds
    assert runs[0].finished_s.tolist() == runs[1].finished_s.tolist()


def test_the_same_seed_chooses_and_predicts_the_same_and_another_draws_anew() -> None:
    prompts, lengths = mixed_job(300)
    tree = build_tree(prompts)
    seen, engine = sampled(prompts, tree, lengths), engine_model(**ON, mode="overlapped")
    one, same, other = (
        guarded_plan(prompts, tree, engine, observations=seen, seed=seed, draws=2)
        for seed in (4, 4, 5)
    )

    assert one.outlook == same.outlook
    assert one.schedule.order.tolist() == same.schedule.order.tolist()
    assert one.outlook != other.outlook


def test_no_answer_is_drawn_beyond_its_limit() -> None:
    prompts = prompts_of([[row] * 20 for row in range(400)], max_tokens=777)
    classes = find_classes(build_tree(prompts), prompts.max_tokens)
    drawn = draw_lengths(replace(classes, centre=classes.centre + 3.0), np.random.default_rng(3))

    assert drawn.max() == 777
