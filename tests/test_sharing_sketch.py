"""The sketch counts shared prefixes exactly while it is small, and closely when it is not."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blend.core.sharing_sketch import BLOCK_TOKENS, KEPT, SharingSketch, block_hashes

Prompt = npt.NDArray[np.uint32]

# Few distinct tokens and whole blocks often, so that prefixes really meet.
PROMPTS = st.lists(
    st.lists(st.integers(0, 1), max_size=4).map(
        lambda blocks: np.repeat(np.array(blocks, np.uint32), BLOCK_TOKENS)
    ),
    max_size=12,
)


def naive_shared_tokens(prompts: list[Prompt]) -> int:
    """Count block by block, with the prefixes themselves in a set."""
    seen: set[bytes] = set()
    shared = 0
    for prompt in prompts:
        for end in range(BLOCK_TOKENS, len(prompt) + 1, BLOCK_TOKENS):
            prefix = prompt[:end].tobytes()
            shared += BLOCK_TOKENS * (prefix in seen)
            seen.add(prefix)
    return shared


def random_prompts(count: int, *, tokens: int, seed: int) -> list[Prompt]:
    generator = np.random.default_rng(seed)
    return [generator.integers(0, 50_000, tokens).astype(np.uint32) for _ in range(count)]


@given(PROMPTS)
def test_a_small_sketch_counts_like_a_set_of_prefixes(prompts: list[Prompt]) -> None:
    sketch = SharingSketch().seen(prompts)

    assert sketch.shared_tokens == naive_shared_tokens(prompts)
    assert sketch.tokens == sum(map(len, prompts))
    assert sketch.prompts == len(prompts)


@given(PROMPTS, st.integers(0, 12))
def test_batches_merging_and_storing_change_nothing(prompts: list[Prompt], cut: int) -> None:
    whole = SharingSketch().seen(prompts)
    stored = SharingSketch.from_bytes(SharingSketch().seen(prompts[:cut]).to_bytes())
    merged = SharingSketch().seen(prompts[cut:]).merged(stored)

    for other in (stored.seen(prompts[cut:]), merged):
        assert other.to_bytes() == whole.to_bytes()


@given(st.lists(st.integers(0, 3), min_size=1, max_size=70))
def test_tokens_beyond_the_last_whole_block_make_no_block(tokens: list[int]) -> None:
    prompt = np.array(tokens, np.uint32)

    assert len(block_hashes([prompt])) == len(tokens) // BLOCK_TOKENS


def test_equal_blocks_after_different_beginnings_differ() -> None:
    ends = np.ones(BLOCK_TOKENS, np.uint32)
    first, second = (np.full(BLOCK_TOKENS, token, np.uint32) for token in (2, 3))
    hashes = block_hashes([np.concatenate([first, ends]), np.concatenate([second, ends])])

    assert len(np.unique(hashes)) == 4


def test_beyond_its_size_the_sketch_stays_small_and_within_three_percent() -> None:
    once = random_prompts(1500, tokens=64 * BLOCK_TOKENS, seed=7)
    prompts = [*once, *once[:750]]
    sketch = SharingSketch()
    for start in range(0, len(prompts), 200):
        sketch = sketch.seen(prompts[start : start + 200])

    assert len(sketch.smallest) == KEPT
    assert sketch.distinct_blocks == pytest.approx(1500 * 64, rel=0.03)


def test_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="format"):
        SharingSketch.from_bytes(bytes(64))
