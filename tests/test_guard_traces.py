"""Chosen by simulation, a job is hardly slower than in the file's or in depth-first order."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.real_traces import RealTrace, read_trace
from benchmarks.traces import PAPER_HARDWARE, PAPER_MODEL, TRACES, Ints
from benchmarks.workloads import mixture, one_trace
from blend.core.planning.engine_model import EngineModel, engine_model
from blend.core.planning.guard import guarded_plan, plain_schedule
from blend.core.planning.lengths import Observations, choose_sample
from blend.core.planning.simulate import simulate
from blend.core.planning.tree import Tree, shared_within, tree_of
from blend.core.prompts import Prompts
from blend.core.schedule import Schedule

# Compiling the kernels takes half a minute where that has not been done.
pytestmark = pytest.mark.slow

ROWS, VIDEO_ROWS, REAL_ROWS = 1_200, 120, 1_500
CACHES = (1.1, 5.0, 40.0)  # times the largest request
LEAST = 0.99
DRAWS = 5


def stand_in(name: str) -> tuple[Tree, Ints, np.ndarray]:
    workload = mixture(0.9, 0.05, n=2_000, seed=3) if name == "mixture" else None
    workload = workload or one_trace(name, VIDEO_ROWS if name == "openvid" else ROWS, seed=3)  # type: ignore[arg-type]
    return workload.tree(), workload.output_tokens, workload.max_tokens


def share_of_the_plain_orders(
    tree: Tree, output: Ints, max_tokens: np.ndarray, *, cache: float, mode
) -> float:
    """Time of the better of file order and DFS over that of the way that ``auto`` chooses."""
    lengths = np.empty(len(tree), np.int64)
    lengths[tree.rows] = tree.lengths
    starts = np.concatenate([[0], np.cumsum(lengths)])
    prompts = Prompts(
        np.empty(0, np.uint32), starts, max_tokens.astype(np.int32), np.ones(len(tree), np.int32)
    )
    engine = engine_model(PAPER_HARDWARE, PAPER_MODEL, mode=mode, step_tokens=2_048)
    largest = int((lengths + output).max()) + engine.capacity.block_tokens
    capacity = replace(engine.capacity, kv_tokens=int(cache * largest), pacing="step budget")
    engine = replace(engine, capacity=capacity)
    rows = choose_sample(tree, prompts, minimum=30, every_cohort=True, seed=1)
    tokens = np.full(len(tree), np.nan)
    tokens[rows] = output[rows]
    seen = Observations(tokens, ~np.isnan(tokens))
    plan = guarded_plan(prompts, tree, engine, observations=seen, draws=DRAWS)
    left = np.isnan(tokens)

    def seconds(schedule: Schedule, on: EngineModel) -> float:
        return simulate(tree, schedule.only(left), output_tokens=output, engine=on).seconds

    took = seconds(plan.schedule, plan.settings.way.engine(engine))
    in_file_order = plain_schedule(tree, "fcfs", np.arange(len(tree)))
    depth_first = plain_schedule(tree, "dfs", tree.rows)
    others = seconds(in_file_order, engine), seconds(depth_first, engine)
    return min(others) / took


@pytest.mark.parametrize("mode", ["overlapped", "sequential"])
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("name", [*TRACES, "mixture"])
def test_on_stand_in_traces(name: str, cache: float, mode) -> None:
    if name == "mixture" and cache < 2:
        pytest.skip("one video at a time: minutes of simulation")
    assert share_of_the_plain_orders(*stand_in(name), cache=cache, mode=mode) >= LEAST


REAL = Path(__file__).parent.parent.parent / "shared" / "traces"
REAL_TRACES = sorted(REAL.glob("*.npz"))


def first_rows(trace: RealTrace) -> RealTrace:
    """The first rows of a trace, as many as are simulated in a moment."""
    tree, count = trace.tree, min(REAL_ROWS, len(trace.tree))
    kept, shared = shared_within(tree, np.arange(len(tree)) < count)
    part = tree_of(tree.rows[kept], lengths=tree.lengths[kept], lcp=shared)
    return RealTrace(part, trace.output_tokens[:count])


@pytest.mark.skipif(not REAL_TRACES, reason="the public traces are not beside the project")
@pytest.mark.parametrize("mode", ["overlapped", "sequential"])
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("path", REAL_TRACES, ids=lambda path: path.stem)
def test_on_real_traces(path: Path, cache: float, mode) -> None:
    trace = first_rows(read_trace(path))
    # Any limit that holds all answers: the file does not say what was asked for.
    limit = np.full(len(trace.tree), 1 << int(trace.output_tokens.max()).bit_length(), np.int32)

    assert (
        share_of_the_plain_orders(trace.tree, trace.output_tokens, limit, cache=cache, mode=mode)
        >= LEAST
    )
