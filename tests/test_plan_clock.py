"""A plan is thought about for a small part of the run that it is for."""

import numpy as np
import pytest

from blend.cli import plan_clock
from blend.cli.plan_clock import PlanClock, part_of_run_s
from blend.core.planning.engine_model import EngineModel, engine_model
from blend.core.planning.hardware import hardware_preset, model_preset
from blend.core.planning.lengths import Observations
from blend.core.planning.tree import build_tree
from tests.prompt_sets import prompts_of

ENGINE = engine_model(hardware_preset("h200"), model_preset("llama-3-8b"))


def planning_s(rows: int, *, answer: int, engine: EngineModel = ENGINE, answered: int = 0) -> float:
    prompts = prompts_of([[row, 1, 2, 3] for row in range(rows)], max_tokens=answer)
    tokens = np.full(rows, np.nan)
    tokens[:answered] = answer
    seen = Observations(tokens, ~np.isnan(tokens))
    return part_of_run_s(prompts, build_tree(prompts), seen, engine)


def test_planning_may_take_a_twentieth_of_the_fastest_run() -> None:
    # What every request may answer is known from so small a limit: each step reads all weights.
    found = planning_s(100, answer=8)
    fastest_s = 8 * ENGINE.weights_s

    assert 0.05 * fastest_s <= found <= 0.06 * fastest_s


def test_only_what_is_left_to_run_counts() -> None:
    assert planning_s(4_000, answer=8, answered=3_990) < 0.5 * planning_s(4_000, answer=8)


def test_no_plan_is_thought_about_for_more_than_two_minutes() -> None:
    slow = engine_model(hardware_preset("cpu"), model_preset("llama-3-70b"))

    assert planning_s(400, answer=8, engine=slow) == plan_clock.MOST_S == 120.0


@pytest.mark.parametrize(
    ("limit_s", "spent_s", "left"), [(0, 0, False), (5, 9, False), (1e9, 5, True)]
)
def test_what_was_spent_before_counts(limit_s: float, spent_s: float, left: bool) -> None:
    assert PlanClock(limit_s, spent_s=spent_s).left() is left
