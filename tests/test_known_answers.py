"""Figures that others published, or that are known for public traces, through tree and cost model.

All for Llama-3-8B on an A100-80G without the attention term, as the paper has them.
"""

from pathlib import Path

import numpy as np
import pytest

from blend.core.planning.cost import comp_s, mem_s, set_density
from blend.core.planning.hardware import hardware_preset, model_preset
from blend.core.planning.tree import build_tree
from tests.prompt_sets import prompts_of, shared_prefixes

ON = {"hardware": hardware_preset("a100-80g"), "model": model_preset("llama-3-8b")}
TRACES = Path(__file__).parent.parent.parent / "shared" / "traces"

with_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="the public traces are not at hand")


def density(prompt: np.ndarray, output: np.ndarray, *, sharing: float = 0.0) -> float:
    comp = comp_s(prompt, output, attention=False, **ON)
    return set_density(comp.sum(), mem_s(prompt, output, **ON).sum(), sharing=sharing)


def expanded(hash_ids: np.ndarray, offsets: np.ndarray, lengths: np.ndarray, block: int) -> list:
    """Return prompts whose blocks are runs of *block* tokens, the same for the same hash."""
    blocks = hash_ids.astype(np.int64)[:, None] * block + np.arange(block)
    ranges = zip(offsets[:-1], offsets[1:], lengths, strict=True)
    return [blocks[lo:hi].reshape(-1)[:length] for lo, hi, length in ranges]


def test_five_shot_questions_share_their_subject() -> None:
    """57 subjects of about 246 questions, 680 of about 806 prompt tokens shared: s is 0.84."""
    rng = np.random.default_rng(0)
    subject = rng.integers(0, 57, 14_000)
    prefix = rng.integers(300, 1060, 57)[subject]
    prompt = prefix + rng.integers(40, 210, 14_000)
    output = np.full(14_000, 2)

    sharing = build_tree(prompts_of(shared_prefixes(prefix, prompt, subject))).sharing

    first = np.unique(subject, return_index=True)[1]
    assert sharing == (prefix.sum() - prefix[first].sum()) / prompt.sum()
    assert sharing == pytest.approx(0.84, abs=0.02)
    assert density(prompt, output) == pytest.approx(401, rel=0.01)
    assert density(prompt, output, sharing=sharing) == pytest.approx(62.6, rel=0.1)


def test_conversations_share_whole_turns() -> None:
    """Every turn repeats the blocks of the turns before it and adds some of its own."""
    turns, blocks_each = 6, 3
    hashes = np.concatenate(
        [np.arange(turns * blocks_each)[: blocks_each * (turn + 1)] for turn in range(turns)]
    )
    counts = blocks_each * np.arange(1, turns + 1)
    offsets = np.concatenate([[0], np.cumsum(counts)])

    sharing = build_tree(prompts_of(expanded(hashes, offsets, 16 * counts, 16))).sharing

    assert sharing == 1 - turns * blocks_each / counts.sum()


@with_traces
@pytest.mark.parametrize(
    ("trace", "known"), [("azure2023_conv", 4.222), ("azure2023_code", 27.975)]
)
def test_azure_densities(trace: str, known: float) -> None:
    arrays = np.load(TRACES / f"{trace}.npz")

    assert density(arrays["p"], arrays["d"]) == pytest.approx(known, abs=0.001)


@with_traces
def test_mmlu_sharing_and_density() -> None:
    arrays = np.load(TRACES / "mmlu_5shot.npz")
    prompt, output = arrays["p"].astype(np.int64), np.full(len(arrays["p"]), 2)
    token_ids = shared_prefixes(
        arrays["prefix"].tolist(), prompt.tolist(), arrays["subject"].tolist()
    )

    sharing = build_tree(prompts_of(token_ids)).sharing

    assert sharing == pytest.approx(0.8439, abs=0.0001)
    assert density(prompt, output) == pytest.approx(400.96, abs=0.01)
    assert density(prompt, output, sharing=sharing) == pytest.approx(62.58, abs=0.01)


@with_traces
def test_mooncake_conversation_sharing() -> None:
    arrays = np.load(TRACES / "mooncake_conversation.npz")
    # Blocks of 32 tokens instead of 512 give the same tree; the last block may be partly filled.
    lengths = -(-arrays["p"].astype(np.int64) * 32 // 512)

    token_ids = expanded(arrays["hash_ids"], arrays["offsets"], lengths, 32)
    sharing = build_tree(prompts_of(token_ids)).sharing

    assert sharing == pytest.approx(0.3736, abs=0.0005)
    assert density(arrays["p"], arrays["d"]) == pytest.approx(2.20, abs=0.005)
    assert density(arrays["p"], arrays["d"], sharing=sharing) == pytest.approx(1.38, abs=0.005)
