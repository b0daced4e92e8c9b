"""Workloads of the paper's evaluation: traces mixed to a target density and sharing (paper §6).

A workload is columns, one entry a request in file order; its prefix tree has two levels below the
root, the system prompt of each trace and the prefixes of its groups. Token ids are made only when
asked for. The same seed gives the same workload.

Density is the paper's, (1 - s)·ΣComp / ΣMem for Llama-3-8B on an A100-80G without the attention
term, with s the shared part of the prompt tokens in depth-first order.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from benchmarks.traces import (
    PAPER_HARDWARE,
    PAPER_MODEL,
    TRACES,
    Ints,
    Requests,
    Trace,
    TraceName,
    density_of,
    draw,
)
from blend.core.planning.cost import comp_s, mem_s
from blend.core.planning.tree import Tree, tree_of
from blend.core.prompts import Prompts

# Density and sharing of the traces of Table 2, and the axes of the grids (Figs. 11, 13, 14, 15).
TABLE_2 = {"trace 1": (1.4, 0.35), "trace 2": (0.9, 0.35), "trace 3": (1.4, 0.05),
           "trace 4": (0.9, 0.05)}  # fmt: skip
GRID_DENSITIES = tuple(round(0.80 + 0.05 * row, 2) for row in range(13))
GRID_SHARINGS = (0.05, 0.15, 0.25, 0.35, 0.45)

_CHUNK_ROWS = 1 << 14
_TOKEN_IDS = 1 << 31


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests of several traces in file order.

    By row (n,): ``trace`` as an index into ``traces``, ``prompt_tokens``, ``output_tokens``,
    ``max_tokens`` (the limit of the row's trace) and ``group``, -1 outside any. By group (g,):
    ``group_tokens``, those of its prefix after the system prompt; no group spans two traces.
    """

    traces: tuple[Trace, ...]
    trace: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    max_tokens: npt.NDArray[np.int32]
    group: Ints
    group_tokens: Ints

    def __len__(self) -> int:
        return len(self.trace)

    @property
    def system_tokens(self) -> Ints:
        """Return the tokens of each row's system prompt, (n,)."""
        return np.array([trace.system_tokens for trace in self.traces], dtype=np.int64)[self.trace]

    @property
    def shared_tokens(self) -> Ints:
        """Return the prompt tokens that each row has in common with its group or trace, (n,)."""
        if not len(self.group_tokens):
            return self.system_tokens
        prefix: Ints = np.where(self.group >= 0, self.group_tokens[self.group], 0)
        return self.system_tokens + prefix

    @property
    def sharing(self) -> float:
        """Return the part of the prompt tokens that a depth-first order need not compute."""
        first = sum(trace.system_tokens for trace in _present(self))
        first += int(self.group_tokens[np.unique(self.group[self.group >= 0])].sum())
        return (int(self.shared_tokens.sum()) - first) / int(self.prompt_tokens.sum())

    @property
    def density(self) -> float:
        """Return the compute density of the whole workload, sharing counted."""
        return density_of(self.prompt_tokens, self.output_tokens, sharing=self.sharing)

    def tree(self) -> Tree:
        """Return the prefix tree, without making any token."""
        rows = np.lexsort((self.group, self.trace))
        trace, group = self.trace[rows], self.group[rows]
        lcp = np.where(np.diff(trace, prepend=-1) == 0, self.system_tokens[rows], 0)
        together = (np.diff(group, prepend=-2) == 0) & (group >= 0)
        lcp = np.where(together, self.shared_tokens[rows], lcp)
        return tree_of(rows, lengths=self.prompt_tokens[rows], lcp=lcp)

    def sizes(self) -> Prompts:
        """Return the prompts without their token ids, for what asks for lengths and limits only."""
        starts = np.concatenate([[0], np.cumsum(self.prompt_tokens)])
        sequences = np.ones(len(self), dtype=np.int32)
        return Prompts(np.empty(0, dtype=np.uint32), starts, self.max_tokens, sequences)

    def prompts(self, *, seed: int = 0, vocabulary: int = _TOKEN_IDS) -> Prompts:
        """Return the prompts as token ids, at random but for what rows share.

        Takes four bytes a token. With a small ``vocabulary`` unrelated prompts may begin alike.
        """
        sizes = self.sizes()
        starts = sizes.starts
        tokens = np.empty(int(starts[-1]), dtype=np.uint32)
        rng = np.random.default_rng([seed, 1])
        for lo in range(0, len(self), _CHUNK_ROWS):
            hi = min(lo + _CHUNK_ROWS, len(self))
            chunk = rng.integers(0, vocabulary, starts[hi] - starts[lo], dtype=np.uint32)
            self._write_shared(chunk, starts[lo : hi + 1] - starts[lo], slice(lo, hi), vocabulary)
            tokens[starts[lo] : starts[hi]] = chunk
        return replace(sizes, tokens=tokens)

    def _write_shared(
        self, chunk: npt.NDArray[np.uint32], starts: Ints, rows: slice, vocabulary: int
    ) -> None:
        lengths = np.diff(starts)
        position = np.arange(len(chunk)) - np.repeat(starts[:-1], lengths)
        in_system = position < np.repeat(self.system_tokens[rows], lengths)
        owner = np.where(
            in_system,
            np.repeat(self.trace[rows], lengths),
            len(self.traces) + np.repeat(self.group[rows], lengths),
        )
        shared = position < np.repeat(self.shared_tokens[rows], lengths)
        # Any fixed ids will do that differ from one prefix to the next.
        ids = (owner[shared] * 1_000_003 + position[shared] * 7_919 + 12_345) % vocabulary
        chunk[shared] = ids


def one_trace(name: TraceName, n: int, *, seed: int) -> Workload:
    """Return *n* requests of one trace alone."""
    return _mixed([(TRACES[name], n)], seed=seed)


def mixture(
    density: float, sharing: float, *, n: int, seed: int, compute: TraceName = "burstgpt"
) -> Workload:
    """Return *n* requests of *compute*, MMLU and OpenVid in the parts that meet the target.

    ValueError when no mixture of the three does. Whole requests come only so near: OpenVid is a
    thousandth of the requests, so 40,000 requests meet a density within about two per cent.
    """
    parts = [TRACES[compute], TRACES["mmlu"], TRACES["openvid"]]
    counts = _counts(parts, density=density, sharing=sharing, n=n)
    if counts.min() < 0 or not np.isfinite(counts).all():
        raise ValueError(f"no mixture of {n} has density {density}, sharing {sharing}: {counts}")
    whole = np.rint(counts).astype(np.int64)
    whole[0] = n - whole[1:].sum()
    return _mixed(list(zip(parts, whole.tolist(), strict=True)), seed=seed)


def table_2(name: str, *, n: int, seed: int) -> Workload:
    """Return one of the four traces of Table 2, ``trace 1`` to ``trace 4``."""
    density, sharing = TABLE_2[name]
    return mixture(density, sharing, n=n, seed=seed)


def _counts(
    parts: Sequence[Trace], *, density: float, sharing: float, n: int
) -> npt.NDArray[np.float64]:
    """Return how many requests of each part give n in all, the sharing and the density."""
    prompt = np.array([part.prompt_tokens for part in parts])
    output = np.array([part.output_tokens for part in parts])
    comp = comp_s(prompt, output, attention=False, hardware=PAPER_HARDWARE, model=PAPER_MODEL)
    own = np.array([_own_sharing(part) for part in parts])
    memory = (1.0 - own) * comp / np.array([part.density for part in parts])
    constant = np.array([part.output_shape == "constant" for part in parts])
    exact = mem_s(prompt, output, hardware=PAPER_HARDWARE, model=PAPER_MODEL)
    memory = np.where(constant, exact, memory)
    first = sum(part.system_tokens + part.groups * part.group_tokens for part in parts)
    equations = np.array(
        [np.ones(len(parts)), (own - sharing) * prompt, (1.0 - sharing) * comp - density * memory]
    )
    return np.linalg.solve(equations, np.array([n, first, 0.0]))


def _own_sharing(part: Trace) -> float:
    """Return the sharing of endless requests of a trace, the first of each prefix forgotten."""
    return (part.system_tokens + part.grouped * part.group_tokens) / part.prompt_tokens


def _mixed(parts: Sequence[tuple[Trace, int]], *, seed: int) -> Workload:
    drawn = [draw(trace, count, seed=seed) for trace, count in parts]
    groups = np.cumsum([0, *(len(part.group_tokens) for part in drawn)])
    order = np.random.default_rng([seed, 0]).permutation(sum(count for _, count in parts))
    of_row = np.repeat(np.arange(len(parts)), [count for _, count in parts])[order]
    limits = np.array([trace.output_limit for trace, _ in parts], dtype=np.int32)
    return Workload(
        tuple(trace for trace, _ in parts),
        of_row,
        np.concatenate([part.prompt_tokens for part in drawn])[order],
        np.concatenate([part.output_tokens for part in drawn])[order],
        limits[of_row],
        np.concatenate(_renumbered(drawn, groups))[order],
        np.concatenate([part.group_tokens for part in drawn]),
    )


def _renumbered(drawn: Sequence[Requests], first: Ints) -> list[Ints]:
    pairs = zip(drawn, first, strict=False)
    return [np.where(part.group >= 0, part.group + offset, -1) for part, offset in pairs]


def _present(workload: Workload) -> list[Trace]:
    return [workload.traces[index] for index in np.unique(workload.trace)]
