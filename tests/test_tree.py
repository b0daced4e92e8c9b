from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blend.core.planning.tree import ROOT, Tree, build_tree, tree_of, uncached_tokens
from tests.prompt_sets import Trie, computed_in_order, prompts_of, token_lists


def assert_is_a_tree(tree: Tree) -> None:
    """Hold the invariant that the module states."""
    nodes = np.arange(len(tree.parent))
    assert (tree.lo[ROOT], tree.hi[ROOT], tree.depth[ROOT]) == (0, len(tree), 0)
    assert (tree.parent[1:] < nodes[1:]).all()
    assert (tree.depth[1:] > tree.depth[tree.parent[1:]]).all()
    assert (tree.lo[1:] >= tree.lo[tree.parent[1:]]).all()
    assert (tree.hi[1:] <= tree.hi[tree.parent[1:]]).all()
    children = np.bincount(tree.parent[1:], minlength=len(nodes)) + np.bincount(
        tree.leaf_parent, minlength=len(nodes)
    )
    assert (children[1:] >= 2).all()
    position = np.arange(len(tree))
    assert (tree.lo[tree.leaf_parent] <= position).all()
    assert (position < tree.hi[tree.leaf_parent]).all()
    assert (tree.depth[tree.leaf_parent] <= tree.lengths).all()


def common_prefix(left: list[int], right: list[int]) -> int:
    length = 0
    while length < min(len(left), len(right)) and left[length] == right[length]:
        length += 1
    return length


@given(token_lists)
def test_a_depth_first_order_computes_each_node_of_the_trie_once(
    token_ids: list[list[int]],
) -> None:
    tree = build_tree(prompts_of(token_ids))

    assert_is_a_tree(tree)
    assert tree.unique_tokens == Trie.of(token_ids).tokens()
    assert sorted(tree.rows.tolist()) == list(range(len(token_ids)))


@given(token_lists)
def test_nodes_are_the_shared_prefixes_of_the_trie(token_ids: list[list[int]]) -> None:
    tree = build_tree(prompts_of(token_ids))

    expected = {
        tuple(ids[:depth])
        for ids in token_ids
        for other in token_ids
        if other is not ids and (depth := common_prefix(ids, other))
    }
    found = {
        tuple(token_ids[tree.rows[lo]][:depth])
        for lo, depth in zip(tree.lo[1:], tree.depth[1:], strict=True)
    }
    assert found == expected
    for lo, hi, depth in zip(tree.lo[1:], tree.hi[1:], tree.depth[1:], strict=True):
        prefix = token_ids[tree.rows[lo]][:depth]
        inside = {row for row, ids in enumerate(token_ids) if ids[:depth] == prefix}
        assert set(tree.rows[lo:hi].tolist()) == inside


@given(token_lists)
def test_rows_share_with_the_row_before_what_lcp_says(token_ids: list[list[int]]) -> None:
    tree = build_tree(prompts_of(token_ids))

    rows = tree.rows.tolist()
    assert tree.lcp.tolist() == [
        0,
        *(common_prefix(token_ids[above], token_ids[below]) for above, below in pairwise(rows)),
    ]


@given(token_lists, st.randoms(use_true_random=False))
def test_an_unbounded_cache_computes_what_the_trie_lacks(token_ids, random) -> None:
    tree = build_tree(prompts_of(token_ids))
    order = list(range(len(token_ids)))
    random.shuffle(order)

    computed = uncached_tokens(tree, np.array(order, dtype=np.int64))

    assert computed.tolist() == computed_in_order(token_ids, order)
    assert computed.sum() == tree.unique_tokens


def test_token_ids_are_ordered_as_numbers() -> None:
    tree = build_tree(prompts_of([[256], [1], [2**32 - 1], [255, 0], [255]]))

    assert tree.rows.tolist() == [1, 4, 3, 0, 2]


def test_a_chain_of_ten_thousand_prefixes_needs_no_recursion() -> None:
    n = 10_000
    tree = tree_of(np.arange(n), lengths=np.arange(1, n + 1), lcp=np.arange(n))

    assert_is_a_tree(tree)
    assert tree.unique_tokens == n
    assert len(tree.path(n - 1)) == n


def test_the_path_of_a_row_leads_from_the_root_to_its_node() -> None:
    tree = build_tree(prompts_of([[1, 2, 3], [1, 2, 4], [1, 5], [9]]))

    assert tree.depth[tree.path(1)].tolist() == [0, 1, 2]
    assert tree.path(3) == [ROOT]


@pytest.mark.parametrize("token_ids", [[], [[]], [[], []]])
def test_nothing_to_share_is_a_root_alone(token_ids: list[list[int]]) -> None:
    tree = build_tree(prompts_of(token_ids))

    assert (len(tree), len(tree.parent)) == (len(token_ids), 1)
    assert (tree.sharing, tree.unique_tokens) == (0.0, 0)
