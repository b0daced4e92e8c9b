"""How many prompt tokens stand in a prefix that came before, in memory that does not grow?

A prompt is cut into blocks of BLOCK_TOKENS; a block counts as shared when the prompt up to its end
has been seen. That is what a prefix cache without bounds would save. Blocks are told apart by a
64-bit hash of everything up to their end. Only the KEPT smallest hashes stay: up to KEPT distinct
blocks the count is exact, beyond it the density of the kept hashes estimates it within about
1 / sqrt(KEPT) = 0.8 % (k minimum values).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

BLOCK_TOKENS = 16
KEPT = 16_384
FORMAT = 1

Hashes = npt.NDArray[np.uint64]


def _no_hashes() -> Hashes:
    return np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True)
class SharingSketch:
    """What is known of the prompts seen so far.

    ``smallest`` holds the smallest hashes of distinct blocks, sorted; ``prompts``, ``blocks`` and
    ``tokens`` count everything seen.
    """

    prompts: int = 0
    tokens: int = 0
    blocks: int = 0
    smallest: Hashes = field(default_factory=_no_hashes)

    def seen(self, prompts: Sequence[npt.NDArray[np.uint32]]) -> "SharingSketch":
        """Return the sketch after *prompts*."""
        hashes = block_hashes(prompts)
        return SharingSketch(
            prompts=self.prompts + len(prompts),
            tokens=self.tokens + sum(len(prompt) for prompt in prompts),
            blocks=self.blocks + len(hashes),
            smallest=_smallest(self.smallest, hashes),
        )

    def merged(self, other: "SharingSketch") -> "SharingSketch":
        """Return the sketch of what either has seen, as if one had seen it all."""
        return SharingSketch(
            prompts=self.prompts + other.prompts,
            tokens=self.tokens + other.tokens,
            blocks=self.blocks + other.blocks,
            smallest=_smallest(self.smallest, other.smallest),
        )

    @property
    def distinct_blocks(self) -> int:
        """Return how many different blocks there were; an estimate beyond KEPT."""
        if len(self.smallest) < KEPT:
            return len(self.smallest)
        share = (float(self.smallest[-1]) + 1.0) / 2.0**64
        return min(round((KEPT - 1) / share), self.blocks)

    @property
    def shared_tokens(self) -> int:
        """Return how many tokens stood in a prefix seen before."""
        return BLOCK_TOKENS * (self.blocks - self.distinct_blocks)

    def to_bytes(self) -> bytes:
        """Return the sketch as bytes, for another process to go on from."""
        head = np.array([FORMAT, self.prompts, self.tokens, self.blocks], "<u8")
        return head.tobytes() + self.smallest.astype("<u8").tobytes()

    @classmethod
    def from_bytes(cls, stored: bytes) -> "SharingSketch":
        """Return the sketch that ``to_bytes`` wrote; raise ValueError for another format."""
        numbers = np.frombuffer(stored, "<u8")
        if len(numbers) < 4 or numbers[0] != FORMAT:
            raise ValueError(f"not a sharing sketch of format {FORMAT}")
        prompts, tokens, blocks = (int(number) for number in numbers[1:4])
        return cls(prompts, tokens, blocks, numbers[4:].astype(np.uint64))


def block_hashes(prompts: Sequence[npt.NDArray[np.uint32]]) -> Hashes:
    """Return one hash for every whole block of every prompt, of all tokens up to its end.

    A sum of well-mixed (token, position) pairs is enough to tell prefixes of one length apart,
    and all prefix sums of a batch are one cumulative sum.
    """
    lengths = np.array([len(prompt) for prompt in prompts], np.int64)
    if not lengths.sum():
        return _no_hashes()
    tokens = np.concatenate(prompts).astype(np.uint64)
    starts = np.cumsum(lengths) - lengths
    position = (np.arange(len(tokens)) - np.repeat(starts, lengths)).astype(np.uint64)
    sums = np.cumsum(_mixed(tokens << np.uint64(32) | position), dtype=np.uint64)
    before = np.repeat(np.where(starts > 0, sums[starts - 1], np.uint64(0)), lengths)
    ends = (position + np.uint64(1)) % np.uint64(BLOCK_TOKENS) == 0
    return _mixed((sums - before)[ends] ^ position[ends])


def _mixed(values: npt.NDArray[np.uint64]) -> Hashes:
    """Return every value scrambled (the finaliser of SplitMix64, Steele et al. 2014)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ values >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ values >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return values ^ values >> np.uint64(31)


def _smallest(kept: Hashes, new: Hashes) -> Hashes:
    if len(kept) == KEPT:
        new = new[new < kept[-1]]
    return np.union1d(kept, new)[:KEPT]
