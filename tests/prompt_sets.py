"""Prompt sets for the tests of the planner, and a trie that is stupid on purpose."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from blend.core.prompts import Prompts

# Few token ids and short prompts: many shared prefixes, duplicates, and prompts inside others.
token_lists = st.lists(st.lists(st.integers(0, 2), max_size=6), min_size=1, max_size=14)


def prompts_of(
    token_ids: Sequence[Sequence[int]], *, max_tokens: int | Sequence[int] = 16
) -> Prompts:
    """Return the prompts with these token ids, one sequence each."""
    n = len(token_ids)
    starts = np.zeros(n + 1, dtype=np.int64)
    starts[1:] = np.cumsum([len(ids) for ids in token_ids])
    flat = [np.asarray(ids, dtype=np.uint32) for ids in token_ids]
    tokens = np.concatenate(flat) if flat else np.empty(0, dtype=np.uint32)
    limits = np.broadcast_to(np.asarray(max_tokens, dtype=np.int32), n).copy()
    return Prompts(tokens, starts, limits, np.ones(n, dtype=np.int32))


def shared_prefixes(
    prefix: Sequence[int], lengths: Sequence[int], groups: Sequence[int]
) -> list[np.ndarray]:
    """Return token ids of the given lengths, the first *prefix* of which a group shares."""
    found, fresh = [], 1_000_000_000
    for shared, length, group in zip(prefix, lengths, groups, strict=True):
        head = np.arange(shared) + 1_000_000 * (group + 1)
        found.append(np.concatenate([head, np.arange(fresh, fresh + length - shared)]))
        fresh += length - shared
    return found


@dataclass
class Trie:
    """One dictionary a token."""

    children: dict[int, "Trie"] = field(default_factory=dict)
    rows: int = 0

    @staticmethod
    def of(token_ids: Sequence[Sequence[int]]) -> "Trie":
        root = Trie()
        for ids in token_ids:
            node = root
            node.rows += 1
            for token in ids:
                node = node.children.setdefault(token, Trie())
                node.rows += 1
        return root

    def tokens(self) -> int:
        """Return the number of nodes below the root: the tokens that must be computed."""
        return sum(1 + child.tokens() for child in self.children.values())


def computed_in_order(token_ids: Sequence[Sequence[int]], order: Sequence[int]) -> list[int]:
    """Return by row the tokens not in the prompts that came before, the whole trie kept."""
    root, computed = Trie(), [0] * len(token_ids)
    for row in order:
        node = root
        for token in token_ids[row]:
            computed[row] += token not in node.children
            node = node.children.setdefault(token, Trie())
    return computed
