"""The KV cache in compiled form: the block pool of `blend.core.engines.blocks`, over arrays.

A shared key is the number of a prefix that ends with a full block of a prompt; equal numbers mean
equal prefixes. Free blocks form a ring through the sentinel, in the order in which they are taken.
"""

from typing import Any

import numpy as np

from blend.core.kernels.compiled import compiled

KEYLESS, PRIVATE, NONE = -1, -2, -1

BLOCK = np.dtype(
    [
        ("before", np.int32),  # in the free ring
        ("after", np.int32),
        ("holders", np.int32),
        ("key", np.int32),
        ("twin", np.int32),  # the next block with the same key
        ("owner", np.int32),  # the row that took it, and as which block of the row
        ("index", np.int32),
        ("previous", np.int32),  # in the chain of blocks that its owner took
        ("following", np.int32),
    ]
)


def new_blocks(count: int) -> Any:
    """Return *count* free blocks and the sentinel of their ring."""
    blocks = np.zeros(count + 1, BLOCK)
    ring = np.arange(count + 1)
    blocks["before"] = np.roll(ring, 1)
    blocks["after"] = np.roll(ring, -1)
    for field in ("key", "twin", "owner", "previous", "following"):
        blocks[field] = NONE
    return blocks


@compiled
def unlink(blocks: Any, block: int) -> None:
    """Take a block out of the free ring."""
    before, after = blocks[block].before, blocks[block].after
    blocks[before].after = after
    blocks[after].before = before


@compiled
def link(blocks: Any, block: int, before: int) -> None:
    """Put a block into the free ring, behind *before*."""
    after = blocks[before].after
    blocks[block].before = before
    blocks[block].after = after
    blocks[before].after = block
    blocks[after].before = block


@compiled
def forget(blocks: Any, served: Any, block: int) -> None:
    """Let a block serve no prefix any more."""
    key = blocks[block].key
    blocks[block].key = KEYLESS
    if key < 0:
        return
    if served[key] == block:
        served[key] = blocks[block].twin
        return
    other = served[key]
    while blocks[other].twin != block:
        other = blocks[other].twin
    blocks[other].twin = blocks[block].twin


@compiled
def take(blocks: Any, served: Any) -> int:
    """Take the free block that was released longest ago."""
    block = blocks[len(blocks) - 1].after
    unlink(blocks, block)
    forget(blocks, served, block)
    blocks[block].holders = 1
    return block


@compiled
def publish(blocks: Any, served: Any, block: int, key: int) -> None:
    """Let a full block serve later rows with the same prefix."""
    blocks[block].key = key
    blocks[block].twin = NONE
    if served[key] == NONE:
        served[key] = block
        return
    other = served[key]
    while blocks[other].twin != NONE:
        other = blocks[other].twin
    blocks[other].twin = block


@compiled
def release(blocks: Any, block: int) -> int:
    """Take away one holder; return 1 if the block is free now, 0 otherwise."""
    blocks[block].holders -= 1
    if blocks[block].holders:
        return 0
    sentinel = len(blocks) - 1
    link(blocks, block, sentinel if blocks[block].key == KEYLESS else blocks[sentinel].before)
    return 1


@compiled
def hold(blocks: Any, block: int) -> int:
    """Add a holder; return 1 if the block was free until now, 0 otherwise."""
    blocks[block].holders += 1
    if blocks[block].holders > 1:
        return 0
    unlink(blocks, block)
    return 1
