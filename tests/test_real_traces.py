"""Files of public traces give the tree that their prompts have."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.real_traces import BLOCK_TOKENS, read_trace
from blend.core.planning.tree import build_tree
from tests.prompt_sets import prompts_of, shared_prefixes

TRACES = Path(__file__).parent.parent.parent / "shared" / "traces"

with_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="the public traces are not at hand")


def saved(path: Path, **columns: list[int]) -> Path:
    np.savez(path, **{name: np.array(values) for name, values in columns.items()})
    return path


def test_blocks_of_a_prompt_are_runs_of_tokens(tmp_path: Path) -> None:
    ids = [[1, 2, 3], [1, 2], [4], [1, 2, 3, 5], [1, 2]]
    lengths = [1_300, 900, 100, 2_000, 900]
    file = saved(
        tmp_path / "trace.npz",
        p=lengths,
        d=[5, 0, 7, 8, 9],
        hash_ids=[block for blocks in ids for block in blocks],
        offsets=np.concatenate([[0], np.cumsum([len(blocks) for blocks in ids])]).tolist(),
    )

    trace = read_trace(file)

    tokens = [
        [block * BLOCK_TOKENS + i for block in blocks for i in range(BLOCK_TOKENS)][:length]
        for blocks, length in zip(ids, lengths, strict=True)
    ]
    assert trace.tree.unique_tokens == build_tree(prompts_of(tokens)).unique_tokens
    assert trace.output_tokens.tolist() == [5, 1, 7, 8, 9]


def test_a_subject_shares_its_prefix(tmp_path: Path) -> None:
    prefix, lengths, subject = [30, 50, 30, 50], [40, 60, 90, 70], [0, 1, 0, 1]
    file = saved(tmp_path / "trace.npz", p=lengths, d=[1] * 4, prefix=prefix, subject=subject)

    trace = read_trace(file, output_tokens=2)

    token_ids = shared_prefixes(prefix, lengths, subject)
    assert trace.tree.unique_tokens == build_tree(prompts_of(token_ids)).unique_tokens
    assert trace.output_tokens.tolist() == [2] * 4


def test_a_trace_of_lengths_alone_shares_nothing(tmp_path: Path) -> None:
    assert read_trace(saved(tmp_path / "trace.npz", p=[5, 6], d=[1, 2])).tree.sharing == 0.0


@with_traces
@pytest.mark.parametrize(
    ("name", "sharing"),
    [("mooncake_conversation", 0.3736), ("mmlu_5shot", 0.8439), ("azure2023_conv", 0.0)],
)
def test_the_sharing_of_public_traces(name: str, sharing: float) -> None:
    trace = read_trace(TRACES / f"{name}.npz")

    assert trace.tree.sharing == pytest.approx(sharing, abs=0.0005)
