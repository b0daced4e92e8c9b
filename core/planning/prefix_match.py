"""In which order would SGLang take a job whose requests all wait at once?

In file order as long as more than 128 wait: its scheduler matches prefixes only in a shorter queue.
Then always the row that finds the longest prefix in the cache, of equal ones the first in the file.

Differs from SGLang: the cache forgets nothing and holds a row as soon as it was taken, so that the
order is known beforehand; SGLang looks at its cache, and sorts once a step.
"""

import numpy as np

from blend.core.planning.tree import Ints, Tree

MATCHED_ROWS = 128
"""Rows that wait at most when prefixes are matched."""


def sglang_order(tree: Tree) -> Ints:
    """Return the rows in the order in which SGLang would take them, (n,)."""
    first = max(len(tree) - MATCHED_ROWS, 0)
    position = np.empty(len(tree), np.int64)
    position[tree.rows] = np.arange(len(tree))
    waiting = np.sort(position[first:])
    match = _in_cache(tree, waiting)
    shared = _pairwise(tree, waiting)
    file_order = tree.rows[waiting]
    left = list(np.argsort(file_order))
    taken: list[int] = []
    while left:
        # `max` keeps the first of equals.
        one = max(left, key=match.__getitem__)
        left.remove(one)
        taken.append(int(file_order[one]))
        match = np.maximum(match, shared[one])
    return np.concatenate([np.arange(first), np.array(taken, np.int64)])


def _in_cache(tree: Tree, waiting: Ints) -> Ints:
    """Return the tokens that each waiting position shares with any position that does not wait."""
    waits = np.zeros(len(tree) + 2, np.bool_)
    waits[waiting + 1] = True
    match = np.zeros(len(waiting), np.int64)
    for i, position in enumerate(waiting.tolist()):
        left, right = position, position + 1
        while waits[left]:
            left -= 1
        while waits[right + 1]:
            right += 1
        before = tree.lcp[left : position + 1].min() if left else 0
        behind = tree.lcp[position + 1 : right + 1].min() if right < len(tree) else 0
        match[i] = max(before, behind)
    return match


def _pairwise(tree: Tree, waiting: Ints) -> Ints:
    """Return the tokens that each two of the waiting positions share, (k, k), all of one's own."""
    k = len(waiting)
    between = [int(tree.lcp[waiting[i - 1] + 1 : waiting[i] + 1].min()) for i in range(1, k)]
    shared = np.zeros((k, k), np.int64)
    for i in range(k):
        shared[i, i] = tree.lengths[waiting[i]]
        if i + 1 < k:
            shared[i, i + 1 :] = np.minimum.accumulate(between[i:])
    return np.maximum(shared, shared.T)
