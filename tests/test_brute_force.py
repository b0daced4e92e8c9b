"""Every order of a handful of requests, one by one: none beats what is promised."""

from dataclasses import replace
from itertools import pairwise, permutations
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings

from blend.core.planning.engine_model import MODES, EngineModel
from blend.core.planning.guard import GAIN, guarded_plan, plain_schedule
from blend.core.planning.hardware import hardware_preset, model_preset
from blend.core.planning.optimum import bound_s, practical_optimum_s, work_of
from blend.core.planning.simulate import simulate
from blend.core.planning.tree import Tree, build_tree
from blend.core.prompts import Prompts
from blend.core.schedule import Schedule
from tests.prompt_sets import prompts_of, token_lists
from tests.small_jobs import capacity
from tests.test_tree import common_prefix


@settings(max_examples=30, deadline=None)
@given(token_lists.filter(lambda token_ids: len(token_ids) <= 7))
def test_no_order_has_neighbours_that_share_more_than_in_depth_first_order(token_ids) -> None:
    n = len(token_ids)
    shared = [[common_prefix(left, right) for right in token_ids] for left in token_ids]

    most = max(sum(shared[a][b] for a, b in pairwise(order)) for order in permutations(range(n)))

    assert build_tree(prompts_of(token_ids)).lcp.sum() == most


class Job(NamedTuple):
    prompts: Prompts
    tree: Tree
    lengths: np.ndarray
    engine: EngineModel

    def took_s(self, schedule: Schedule, engine: EngineModel | None = None) -> float:
        on = engine or self.engine
        return simulate(self.tree, schedule, output_tokens=self.lengths, engine=on).seconds

    def in_order_s(self, order: tuple[int, ...]) -> float:
        return self.took_s(plain_schedule(self.tree, "fcfs", np.array(order)))


def drawn_job(seed: int, n: int) -> Job:
    """Return requests of known lengths, some of them alike, for a cache that holds a few."""
    rng = np.random.default_rng(seed)
    own = [rng.integers(5, 9, int(rng.integers(1, 300))).tolist() for _ in range(n)]
    token_ids = [[int(rng.integers(0, 2))] * int(rng.integers(0, 200)) + one for one in own]
    lengths = np.where(rng.random(n) < 0.5, rng.integers(1, 6, n), rng.integers(40, 300, n))
    prompts = replace(prompts_of(token_ids, max_tokens=400), known_tokens=lengths.astype(float))
    limits = capacity(16 * int(rng.integers(50, 90)), max_sequences=4, step_tokens=256)
    device, model = hardware_preset("a100-80g"), model_preset("llama-3-8b")
    engine = EngineModel(limits, device, model, MODES[seed % 2], overhead_s=1e-3, attention=False)
    return Job(prompts, build_tree(prompts), lengths, engine)


@pytest.mark.slow  # Compiling the kernels takes half a minute where that has not been done.
@pytest.mark.parametrize(
    ("seed", "n"), [(0, 7), (1, 5), (3, 6), (4, 6), (5, 6), (6, 5), (7, 6), (11, 4)]
)
def test_no_order_beats_the_bound_and_auto_is_near_the_best_of_all(seed: int, n: int) -> None:
    job = drawn_job(seed, n)
    engine = job.engine
    took = {order: job.in_order_s(order) for order in permutations(range(n))}
    best = min(took.values())
    work = work_of(
        job.tree, job.lengths, hardware=engine.hardware, model=engine.model, attention=False
    )
    plan = guarded_plan(job.prompts, job.tree, engine)
    chosen = job.took_s(plan.schedule, plan.settings.way.engine(engine))

    assert bound_s(work, engine) <= best * (1 + 1e-9)
    assert practical_optimum_s(work, interference=engine.interference) <= best * (1 + 1e-9)
    plain = min(took[tuple(range(n))], took[tuple(job.tree.rows.tolist())])
    assert chosen <= GAIN * plain
    assert chosen <= 1.25 * best
