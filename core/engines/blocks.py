"""The KV cache of the simulated engine: a fixed pool of blocks that doubles as prefix cache.

Follows vLLM's block pool: a block is known by the chained key of all tokens up to its end as soon
as it is full; released blocks stay reusable until they are taken, the least recently released
first, and of one release the tail first; blocks without a key are taken before all others. Two
blocks may hold the same key; the first published serves the hits.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

Key = Hashable


def prefix_keys(prompt: npt.NDArray[np.uint32], *, block_tokens: int) -> list[Key]:
    """Return the key of each full block of a prompt; equal keys mean equal prefixes."""
    ids = prompt.tobytes()
    block_bytes = block_tokens * prompt.itemsize
    keys: list[Key] = []
    parent = 0
    for end in range(block_bytes, len(ids) + 1, block_bytes):
        # 64 bits, so that a prompt's keys cost little memory.
        parent = hash((parent, ids[end - block_bytes : end]))
        keys.append(parent)
    return keys


class BlockPool:
    """Blocks numbered from zero, each free or held by one or more sequences."""

    def __init__(self, blocks: int):
        self.blocks = blocks
        # In the order in which they are taken.
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(blocks))
        self._holders = [0] * blocks
        self._key: list[Key | None] = [None] * blocks
        self._cached: dict[Key, list[int]] = {}

    @property
    def free_blocks(self) -> int:
        """Return how many blocks nobody holds, those with a usable prefix included."""
        return len(self._free)

    def match(self, keys: Sequence[Key]) -> list[int]:
        """Return the blocks of the longest prefix of the keys that is cached."""
        hits = []
        for key in keys:
            blocks = self._cached.get(key)
            if blocks is None:
                break
            hits.append(blocks[0])
        return hits

    def unheld(self, blocks: Sequence[int]) -> int:
        """Return how many of the blocks are free, so that holding them uses up free blocks."""
        return sum(not self._holders[block] for block in blocks)

    def hold(self, blocks: Sequence[int]) -> None:
        """Add a holder to each of the blocks."""
        for block in blocks:
            if not self._holders[block]:
                del self._free[block]
            self._holders[block] += 1

    def take(self, count: int) -> list[int]:
        """Take free blocks, forgetting what they held; there must be so many."""
        taken = [self._free.popitem(last=False)[0] for _ in range(count)]
        for block in taken:
            self._forget(block)
            self._holders[block] = 1
        return taken

    def publish(self, block: int, key: Key) -> None:
        """Let a full block serve later sequences with the same prefix."""
        self._key[block] = key
        self._cached.setdefault(key, []).append(block)

    def release(self, blocks: Sequence[int]) -> None:
        """Take away one holder from each of a sequence's blocks, given in prefix order."""
        keyless = []
        for block in reversed(blocks):
            self._holders[block] -= 1
            if self._holders[block]:
                continue
            self._free[block] = None
            if self._key[block] is None:
                keyless.append(block)
        for block in reversed(keyless):
            self._free.move_to_end(block, last=False)

    def _forget(self, block: int) -> None:
        key = self._key[block]
        if key is None:
            return
        self._key[block] = None
        same = self._cached[key]
        same.remove(block)
        if not same:
            del self._cached[key]
