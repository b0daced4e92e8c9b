import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blend.core.planning.demand import Demand, demand_of, fair_comp_s, leaf_seconds, subtree_seconds
from blend.core.planning.hardware import hardware_preset, model_preset
from blend.core.planning.lengths import Lengths
from blend.core.planning.merge import LARGEST_SHARE, merged_density, node_starts
from blend.core.planning.reorder import reorder, sort_layers
from blend.core.planning.split import split_outliers
from blend.core.planning.tree import Tree, build_tree, tree_of
from blend.core.prompts import Prompts
from tests.prompt_sets import prompts_of, shared_prefixes, token_lists
from tests.test_tree import assert_is_a_tree, common_prefix

ON = {"hardware": hardware_preset("a100-80g"), "model": model_preset("llama-3-8b")}


def demand_for(prompts: Prompts, expected: list[float] | np.ndarray) -> Demand:
    lengths = Lengths(np.asarray(expected, dtype=float), np.zeros(len(prompts), dtype=np.int8))
    return demand_of(prompts, lengths, **ON)


def ancestors(tree: Tree, position: int) -> list[tuple[int, int]]:
    """Return depth and number of the nodes above a position."""
    return [(int(tree.depth[node]), node) for node in tree.path(int(tree.rows[position]))]


def subtree_by_hand(token_ids, rows, above: int, demand: Demand) -> tuple[float, float]:
    """Return the seconds of *rows*, every distinct prefix longer than *above* computed once."""
    prefixes = {
        tuple(token_ids[row][:end])
        for row in rows
        for end in range(above + 1, len(token_ids[row]) + 1)
    }
    prefill = sum(float(demand.prefill_s(len(p) - 1, len(p))) for p in prefixes)
    return prefill + float(demand.decode_comp_s[rows].sum()), float(demand.mem_s[rows].sum())


@st.composite
def jobs(draw):
    token_ids = draw(token_lists)
    n = len(token_ids)
    # Lengths far apart, so that these tiny prompts lie on both sides of the balance.
    return token_ids, draw(
        st.lists(st.sampled_from([1.0, 300.0, 90_000.0]), min_size=n, max_size=n)
    )


@given(jobs())
def test_a_subtree_costs_its_distinct_prefixes_once(job) -> None:
    token_ids, expected = job
    prompts = prompts_of(token_ids)
    tree, demand = build_tree(prompts), demand_for(prompts, expected)

    comp, mem = subtree_seconds(tree, demand)

    for node, (lo, hi) in enumerate(zip(tree.lo, tree.hi, strict=True)):
        above = int(tree.depth[tree.parent[node]])
        by_hand = subtree_by_hand(token_ids, tree.rows[lo:hi], above, demand)
        assert (comp[node], mem[node]) == pytest.approx(by_hand)
    assert fair_comp_s(tree, demand).sum() == pytest.approx(comp[0])


@given(jobs())
def test_the_sort_moves_siblings_only_and_puts_the_densest_first(job) -> None:
    token_ids, expected = job
    prompts = prompts_of(token_ids)
    tree, demand = build_tree(prompts), demand_for(prompts, expected)

    ordered = sort_layers(tree, demand)

    assert_is_a_tree(ordered)
    assert ordered.parent.tolist() == tree.parent.tolist()
    assert ordered.unique_tokens == tree.unique_tokens
    before = {int(row): int(node) for row, node in zip(tree.rows, tree.leaf_parent, strict=True)}
    after = {int(r): int(node) for r, node in zip(ordered.rows, ordered.leaf_parent, strict=True)}
    assert before == after
    rows = ordered.rows.tolist()
    for i in range(1, len(rows)):
        assert ordered.lcp[i] == common_prefix(token_ids[rows[i - 1]], token_ids[rows[i]])
    assert_children_descend(ordered, demand)


def assert_children_descend(tree: Tree, demand: Demand) -> None:
    node_comp, node_mem = subtree_seconds(tree, demand)
    leaf_comp, leaf_mem = leaf_seconds(tree, demand)
    for node in range(len(tree.parent)):
        children = [
            (int(tree.lo[c]), node_comp[c] / node_mem[c])
            for c in range(1, len(tree.parent))
            if tree.parent[c] == node
        ] + [(int(i), leaf_comp[i] / leaf_mem[i]) for i in np.flatnonzero(tree.leaf_parent == node)]
        densities = np.array([density for _, density in sorted(children)])
        assert (np.diff(densities) <= 1e-9 * np.abs(densities[:-1])).all()


@given(jobs(), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_a_split_keeps_the_sharing_it_promises_and_moves_each_row_at_most_once(job, kept) -> None:
    token_ids, expected = job
    prompts = prompts_of(token_ids)
    tree, demand = build_tree(prompts), demand_for(prompts, expected)

    divided, split = split_outliers(tree, demand, kept_sharing=kept)

    assert_is_a_tree(divided)
    assert sorted(divided.rows.tolist()) == list(range(len(prompts)))
    assert divided.unique_tokens == tree.unique_tokens + split.recomputed_tokens
    assert divided.lcp.sum() >= kept * tree.lcp.sum() - 1e-9
    assert split.cuts <= split.rows_moved <= len(prompts)
    assert split.stopped in ("ordered", "unaffordable")
    rows = divided.rows.tolist()
    for i in range(1, len(rows)):
        assert divided.lcp[i] <= common_prefix(token_ids[rows[i - 1]], token_ids[rows[i]])


@given(jobs())
def test_when_all_sharing_is_to_stay_nothing_is_computed_again(job) -> None:
    token_ids, expected = job
    prompts = prompts_of(token_ids)
    tree, demand = build_tree(prompts), demand_for(prompts, expected)

    ordered, split = reorder(tree, demand, kept_sharing=1.0)

    assert split.recomputed_tokens == 0
    assert sorted(ordered.rows.tolist()) == list(range(len(prompts)))
    assert ordered.unique_tokens == tree.unique_tokens


def group_job(*, rows: int, outliers: dict[int, float], expected: float, prompt: int = 800):
    """Return two groups of *rows* rows, alternating, with a prefix of 700 tokens each."""
    groups = [row % 2 for row in range(2 * rows)]
    prompts = prompts_of(shared_prefixes([700] * 2 * rows, [prompt] * 2 * rows, groups))
    lengths = np.full(len(prompts), expected)
    lengths[list(outliers)] = list(outliers.values())
    return prompts, lengths


def test_long_answers_leave_a_group_of_short_ones_for_the_right_end() -> None:
    outliers = dict.fromkeys(range(0, 1000, 125), 8000.0)
    prompts, lengths = group_job(rows=500, outliers=outliers, expected=2.0)
    tree, demand = build_tree(prompts), demand_for(prompts, lengths)

    ordered, split = reorder(tree, demand)

    assert set(ordered.rows[-8:].tolist()) == set(outliers)
    assert (split.cuts, split.rows_moved, split.stopped) == (2, 8, "ordered")
    assert split.recomputed_tokens == 2 * 700
    assert ordered.unique_tokens - tree.unique_tokens <= 0.01 * tree.lcp.sum()


def test_without_the_split_they_run_in_the_middle() -> None:
    outliers = dict.fromkeys(range(0, 1000, 125), 8000.0)
    prompts, lengths = group_job(rows=500, outliers=outliers, expected=2.0)
    tree, demand = build_tree(prompts), demand_for(prompts, lengths)

    ordered = sort_layers(tree, demand)

    assert set(ordered.rows[-8:].tolist()) != set(outliers)


def test_short_answers_leave_a_group_of_long_ones_for_the_left_end() -> None:
    outliers = dict.fromkeys(range(1, 1000, 10), 2.0)
    prompts, lengths = group_job(rows=500, outliers=outliers, expected=3000.0)
    tree, demand = build_tree(prompts), demand_for(prompts, lengths)

    ordered, split = reorder(tree, demand)

    assert set(ordered.rows[:100].tolist()) == set(outliers)
    assert split.rows_moved == 100
    assert split.recomputed_tokens == 700


def test_a_row_whose_move_costs_more_than_it_brings_stays() -> None:
    prompts, lengths = group_job(rows=500, outliers={0: 2.0}, expected=3000.0)
    tree, demand = build_tree(prompts), demand_for(prompts, lengths)

    _, split = split_outliers(tree, demand, kept_sharing=0.99)

    assert (split.cuts, split.stopped) == (0, "unaffordable")


def test_rows_that_are_all_limited_by_compute_are_never_split() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(50, 900, 2000)
    groups = rng.integers(0, 57, 2000)
    prompts = prompts_of(shared_prefixes([700] * 2000, 700 + lengths, groups))
    tree, demand = build_tree(prompts), demand_for(prompts, np.full(2000, 2.0))

    _, split = split_outliers(tree, demand, kept_sharing=0.99)

    assert (split.cuts, split.stopped) == (0, "ordered")


def test_rows_that_share_more_are_cut_off_together_and_go_on_sharing() -> None:
    """Half of a group has a further common segment and long answers: one cut, one prefix again."""
    heads = [[0] * 300 + ([1] * 200 if row % 2 else [2 + row] * 200) for row in range(200)]
    prompts = prompts_of([[*head, row] for row, head in enumerate(heads)] + [[9], [8]])
    lengths = np.array([20_000.0 if row % 2 else 2.0 for row in range(200)] + [2.0, 2.0])
    tree, demand = build_tree(prompts), demand_for(prompts, lengths)

    ordered, split = reorder(tree, demand)

    assert (split.cuts, split.rows_moved, split.recomputed_tokens) == (1, 100, 300)
    assert set(ordered.rows[-100:].tolist()) == set(range(1, 200, 2))


def test_a_prefix_that_all_rows_share_is_free_to_split_below() -> None:
    token_ids = [[7] * 500 + [row % 3] * 50 + [row] for row in range(300)]
    prompts = prompts_of(token_ids)
    lengths = np.where(np.arange(300) % 30 == 0, 20_000.0, 2.0)
    tree, demand = build_tree(prompts), demand_for(prompts, lengths)

    ordered, split = reorder(tree, demand)

    assert set(ordered.rows[-10:].tolist()) == set(range(0, 300, 30))
    assert split.recomputed_tokens == 50


@given(jobs())
def test_merged_nodes_have_one_density_and_at_most_a_sixty_fourth_of_the_work(job) -> None:
    token_ids, expected = job
    prompts = prompts_of(token_ids)
    demand = demand_for(prompts, expected)
    tree, _ = reorder(build_tree(prompts), demand)

    starts, density = node_starts(tree, demand), merged_density(tree, demand)

    comp = demand.prefill_s(tree.lcp, tree.lengths) + demand.decode_comp_s[tree.rows]
    mem = demand.mem_s[tree.rows]
    total = comp.sum() + mem.sum()
    assert starts[0] == 0
    for lo, hi in zip(starts, [*starts[1:], len(tree)], strict=True):
        assert hi > lo
        assert density[lo:hi] == pytest.approx(comp[lo:hi].sum() / mem[lo:hi].sum())
        assert hi - lo == 1 or comp[lo:hi].sum() + mem[lo:hi].sum() <= LARGEST_SHARE * total * 1.01


def test_many_like_rows_merge_into_about_sixty_four_nodes() -> None:
    prompts, lengths = group_job(rows=2000, outliers={}, expected=100.0)
    demand = demand_for(prompts, lengths)
    tree, _ = reorder(build_tree(prompts), demand)

    assert 64 <= len(node_starts(tree, demand)) <= 80


def test_deep_chains_are_sorted_and_split_without_recursion() -> None:
    n = 5000
    prompts = prompts_of([[1]] * n)
    tree = tree_of(np.arange(n), lengths=np.arange(1, n + 1), lcp=np.arange(n))
    demand = demand_for(prompts, np.where(np.arange(n) % 2, 2.0, 9000.0))

    ordered, split = reorder(tree, demand)

    assert sorted(ordered.rows.tolist()) == list(range(n))
    assert split.recomputed_tokens <= split.threshold_tokens
