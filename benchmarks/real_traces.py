"""Public traces from files of lengths: which prefix tree do they have, and which answers?

A file is an npz of columns, one entry a request in trace order: ``p`` prompt tokens, ``d`` output
tokens, and where prompts share anything either ``prefix`` and ``subject`` (the tokens shared with
all of a subject) or ``hash_ids`` and ``offsets`` (the ids of each prompt's blocks of 512 tokens,
`hash_ids[offsets[i]:offsets[i + 1]]`, the last partly filled).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.traces import Ints
from blend.core.planning.tree import Tree, build_tree, tree_of
from blend.core.prompts import Prompts

BLOCK_TOKENS = 512


@dataclass(frozen=True, slots=True)
class RealTrace:
    """A trace as the planner and the simulator take it; ``output_tokens`` is (n,) by row."""

    tree: Tree
    output_tokens: Ints


def read_trace(path: Path, *, output_tokens: int | None = None) -> RealTrace:
    """Return the trace in *path*, every answer *output_tokens* long if given."""
    with np.load(path) as columns:
        prompt = columns["p"].astype(np.int64)
        output = np.maximum(columns["d"].astype(np.int64), 1)
        tree = _tree(prompt, columns)
    if output_tokens is not None:
        output = np.full(len(prompt), output_tokens, dtype=np.int64)
    return RealTrace(tree, output)


def _tree(prompt: Ints, columns: Mapping[str, Any]) -> Tree:
    if "hash_ids" in columns:
        return _tree_of_blocks(prompt, columns["hash_ids"], columns["offsets"].astype(np.int64))
    lcp = np.zeros(len(prompt), dtype=np.int64)
    if "prefix" not in columns:
        return tree_of(np.arange(len(prompt)), lengths=prompt, lcp=lcp)
    subject = columns["subject"].astype(np.int64)
    rows = np.argsort(subject, kind="stable")
    together = np.diff(subject[rows], prepend=-1) == 0
    lcp[together] = columns["prefix"].astype(np.int64)[rows][together]
    return tree_of(rows, lengths=prompt[rows], lcp=lcp)


def _tree_of_blocks(prompt: Ints, hash_ids: Any, offsets: Ints) -> Tree:
    """Return the tree of prompts whose blocks are known by number: sorted by them, then scaled."""
    sizes = np.zeros(len(prompt), dtype=np.int32)
    blocks = build_tree(Prompts(hash_ids.astype(np.uint32), offsets, sizes, sizes))
    lengths = prompt[blocks.rows]
    shared = blocks.lcp * BLOCK_TOKENS
    # A last block may be partly filled: no prompt shares more than all of itself.
    shared[1:] = np.minimum(shared[1:], np.minimum(lengths[1:], lengths[:-1]))
    return tree_of(blocks.rows, lengths=lengths, lcp=shared)
