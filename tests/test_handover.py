"""What runs while a plan is made goes on in a simulated run as it does in an execution."""

from dataclasses import replace

import numpy as np
import pytest

from blend.core.engines.sim import SimEngine
from blend.core.planning.tree import build_tree
from blend.core.planning.virtual_run import Run, world_of
from blend.core.running.carried import Carried, open_carrying
from blend.core.running.executor import run
from blend.core.schedule import Schedule
from tests.prompt_sets import prompts_of
from tests.small_jobs import scanner_of
from tests.test_simulate import Case, drawn_case

# Compiling the kernels takes half a minute where that has not been done.
pytestmark = pytest.mark.slow


def in_file_order(case: Case) -> Schedule:
    return replace(case.plan, policy="fcfs", blending=None)


def through_objects(case: Case, steps: int) -> tuple[int, dict[int, int], int, int]:
    """Run in file order for some steps, then by the plan.

    Returns the steps in which the first part ended (the next without a completion), what was
    inside then, and all steps and tokens computed.
    """
    engine = SimEngine(
        case.engine.capacity,
        step_s=case.engine.step_s,
        output_tokens=lambda one: int(case.outputs[one.row]),
    )
    first = scanner_of(case.requests, in_file_order(case), engine.capacity)
    pending = np.ones(len(case.requests), np.bool_)
    inside: set[int] = set()
    reports = []
    for report in run(first, case.requests.__getitem__, engine, inside=inside):
        reports.append(report)
        pending[[one.row for one in report.completions]] = False
        # Where rows have ended others have entered since, which the other loop does next.
        if len(reports) >= steps and not report.completions:
            break
    told, begun = engine.ages(), len(reports)
    ages = {row: told.get(row, 1) for row in inside}
    ones = np.ones(len(pending), np.int64)
    scanner = open_carrying(
        case.plan.only(pending),
        prompt_tokens=np.array([len(one.prompt) for one in case.requests]),
        sequences=ones,
        capacity=engine.capacity,
        carried=Carried(ages, ones, reports[-1]),
    )
    reports += run(scanner, case.requests.__getitem__, engine, inside=inside)
    return begun, ages, len(reports), sum(one.prefill_tokens for one in reports)


@pytest.mark.parametrize("steps", [1, 4, 20])
@pytest.mark.parametrize("seed", range(12))
def test_a_simulated_run_hands_over_as_an_execution_does(seed: int, steps: int) -> None:
    case = drawn_case(seed, policy="blend")
    begun, ages, taken, prefilled = through_objects(case, steps)
    tree = build_tree(prompts_of([one.prompt for one in case.requests]))
    world = world_of(tree, output_tokens=case.outputs, engine=case.engine)

    going = Run(world, in_file_order(case), line_steps=64)
    while going.steps < begun:
        going.advance(np.nextafter(going.seconds, np.inf))
    found = going.ages
    going.go_on(case.plan)
    going.advance()

    assert found == ages
    assert going.steps == taken
    assert going.simulated().prefill_tokens == prefilled
    assert not np.isnan(world.finished_s).any()
