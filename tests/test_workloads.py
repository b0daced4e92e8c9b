"""The stand-in traces keep what is published about them, and the mixtures meet their targets."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.traces import TRACES, TraceName
from benchmarks.workloads import (
    GRID_DENSITIES,
    GRID_SHARINGS,
    TABLE_2,
    Workload,
    mixture,
    one_trace,
    table_2,
)
from blend.core.planning.tree import build_tree

NAMES = tuple(TRACES)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_a_stand_in_has_the_published_means_density_and_sharing(name: TraceName, seed: int) -> None:
    trace = TRACES[name]

    workload = one_trace(name, 14_000, seed=seed)

    assert workload.prompt_tokens.mean() == pytest.approx(trace.prompt_tokens, rel=0.01)
    assert workload.output_tokens.mean() == pytest.approx(trace.output_tokens, rel=0.01)
    assert workload.sharing == pytest.approx(trace.sharing, abs=0.015)
    assert workload.density == pytest.approx(trace.density, rel=0.06 if name == "mmlu" else 0.01)


@pytest.mark.parametrize("seed", range(5))
def test_a_handful_of_videos_weighs_what_many_do(seed: int) -> None:
    few = one_trace("openvid", 20, seed=seed)

    assert few.density == pytest.approx(0.05, rel=0.03)
    assert few.output_tokens.mean() == pytest.approx(16_384, rel=0.01)


def test_videos_come_in_whole_frames_up_to_a_limit() -> None:
    output = one_trace("openvid", 5_000, seed=3).output_tokens

    assert not (output % 256).any()
    assert output.min() >= 256
    assert output.max() <= 131_072


@pytest.mark.parametrize("name", TABLE_2)
def test_the_traces_of_table_2_meet_density_and_sharing(name: str) -> None:
    density, sharing = TABLE_2[name]

    small = table_2(name, n=40_000, seed=5)
    large = table_2(name, n=400_000, seed=5)

    assert (len(small), len(large)) == (40_000, 400_000)
    assert small.density == pytest.approx(density, rel=0.03)
    assert large.density == pytest.approx(density, rel=0.01)
    assert small.sharing == pytest.approx(sharing, abs=0.005)
    assert large.sharing == pytest.approx(sharing, abs=0.005)


def test_all_65_cells_of_the_grid_exist() -> None:
    cells = [(density, sharing) for density in GRID_DENSITIES for sharing in GRID_SHARINGS]

    found = [mixture(density, sharing, n=40_000, seed=1) for density, sharing in cells]

    assert len(cells) == 65
    assert [w.density for w in found] == pytest.approx([rho for rho, _ in cells], rel=0.04)
    assert [w.sharing for w in found] == pytest.approx([s for _, s in cells], abs=0.008)


@pytest.mark.parametrize(
    ("compute", "density", "sharing"),
    [("azure", 1.2, 0.45), ("sharegpt", 0.8, 0.05), ("wildchat", 1.6, 0.2)],
)
def test_other_traces_take_the_compute_side(
    compute: TraceName, density: float, sharing: float
) -> None:
    workload = mixture(density, sharing, n=40_000, seed=2, compute=compute)

    assert workload.density == pytest.approx(density, rel=0.06)
    assert workload.sharing == pytest.approx(sharing, abs=0.008)
    assert workload.traces[0].name == compute


@pytest.mark.parametrize("target", [(100.0, 0.05), (1.0, 0.95)])
def test_a_target_out_of_reach_is_refused(target: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="no mixture of 40000"):
        mixture(*target, n=40_000, seed=0)


def test_the_seed_decides_everything() -> None:
    first, again, other = (table_2("trace 1", n=2_000, seed=seed) for seed in (7, 7, 8))

    assert np.array_equal(first.prompt_tokens, again.prompt_tokens)
    assert np.array_equal(first.output_tokens, again.output_tokens)
    assert np.array_equal(first.prompts().tokens, again.prompts().tokens)
    assert not np.array_equal(first.prompt_tokens, other.prompt_tokens)


@settings(max_examples=20, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    rows=st.integers(1, 60),
    seed=st.integers(0, 99),
    mixed=st.booleans(),
)
def test_the_tree_is_that_of_the_tokens(name: TraceName, rows: int, seed: int, mixed: bool) -> None:
    workload = one_trace(name, rows, seed=seed)
    if mixed:
        workload = mixture(5.0, 0.2, n=rows + 2_000, seed=seed)

    known, built = workload.tree(), build_tree(workload.prompts(seed=seed))

    assert sorted(known.rows) == list(range(len(workload)))
    assert known.sharing == pytest.approx(workload.sharing)
    assert built.unique_tokens == known.unique_tokens
    assert sorted(built.depth) == sorted(known.depth)


def test_token_ids_stay_inside_a_vocabulary() -> None:
    prompts = table_2("trace 3", n=2_000, seed=0).prompts(vocabulary=1_000)

    assert prompts.tokens.max() < 1_000


def test_every_request_has_a_prompt_of_its_own_and_an_answer() -> None:
    workload = table_2("trace 2", n=5_000, seed=4)

    assert (workload.prompt_tokens > workload.shared_tokens).all()
    assert (workload.output_tokens >= 1).all()
    assert (workload.output_tokens <= workload.max_tokens).all()
    assert traces_of_groups(workload) == [{1}] * 57


def traces_of_groups(workload: Workload) -> list[set[int]]:
    groups = np.unique(workload.group[workload.group >= 0])
    return [set(workload.trace[workload.group == group].tolist()) for group in groups]
