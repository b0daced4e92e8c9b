"""How far was a run from its plan? In time, tokens, sharing, lengths, and in which subtree most?

Lengths are judged on the rows that have an answer; time against the moment at which the plan saw as
many rows answered, so that a run can be judged before it ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from blend.core.planning.cost import decode_comp_s, mem_s
from blend.core.planning.hardware import Hardware, ModelShape
from blend.core.planning.tree import Floats, Ints

MOST = 0.8
"""Share of a subtree's misjudged seconds that one below it must have, to be named instead."""


@dataclass(frozen=True, slots=True)
class Against:
    """What was predicted of a figure, and what it came to; ``ratio`` is None where 0 was seen."""

    predicted: float
    actual: float

    @property
    def ratio(self) -> float | None:
        """Return how many times as large as predicted it was."""
        return self.actual / self.predicted if self.predicted else None


@dataclass(frozen=True, slots=True)
class AnsweredRows:
    """The rows with an answer, arrays (k,): what was expected of each, and what it took.

    ``expected_tokens`` and ``output_tokens`` are of all ``sequences`` of the row together;
    ``subtree`` is the index of the deepest subtree of the outline that holds it.
    """

    prompt_tokens: Ints
    cached_tokens: Ints
    expected_tokens: Floats
    output_tokens: Ints
    sequences: npt.NDArray[np.integer]
    subtree: npt.NDArray[np.integer]


@dataclass(frozen=True, slots=True)
class SubtreeJudgement:
    """Of one subtree: answered rows, and the means of an answer's tokens.

    ``misjudged_s``: seconds of decoding, computing and reading, beyond those expected; negative
    where answers were shorter.
    """

    rows: int
    expected_tokens: float
    output_tokens: float
    misjudged_s: float


@dataclass(frozen=True, slots=True)
class Judgement:
    """A plan against its run.

    ``seconds`` is None without a predicted timeline or before an execution. ``factor``: answers
    were typically so many times longer or shorter than expected (the geometric mean of the greater
    over the lesser), 1 when all were right. ``subtrees`` are those of the outline, in its order;
    ``worst`` is the index of the one misjudged most, None where nothing was.
    """

    rows: int
    seconds: Against | None
    output_tokens: Against
    sharing: Against
    factor: float
    subtrees: tuple[SubtreeJudgement, ...]
    worst: int | None


def judge(
    rows: AnsweredRows,
    parents: Sequence[int],
    *,
    sharing: float,
    seconds: Against | None,
    hardware: Hardware,
    model: ModelShape,
) -> Judgement:
    """Return how far the answered *rows* are from what was expected of them.

    ``parents`` (m,): the node above each of the outline, a node's number being greater than its
    parent's; the root is its own. ``sharing``: the share predicted of prompt tokens.
    """
    subtrees = _subtrees(rows, parents, hardware=hardware, model=model)
    prompt_tokens = max(int(rows.prompt_tokens.sum()), 1)
    return Judgement(
        len(rows.subtree),
        seconds,
        Against(float(rows.expected_tokens.sum()), float(rows.output_tokens.sum())),
        Against(sharing, float(rows.cached_tokens.sum() / prompt_tokens)),
        _typical_factor(rows),
        subtrees,
        worst_of([one.misjudged_s for one in subtrees], parents),
    )


def worst_of(misjudged_s: Sequence[float], parents: Sequence[int]) -> int | None:
    """Return the subtree that is misjudged most, the deepest that has most of it; None for none."""
    below: list[list[int]] = [[] for _ in parents]
    for node in range(1, len(parents)):
        below[parents[node]].append(node)
    # The whole job says nothing about where, unless it is all there is.
    candidates = range(1, len(parents)) if len(parents) > 1 else range(len(parents))
    worst = max(candidates, key=lambda node: abs(misjudged_s[node]), default=None)
    if worst is None or not misjudged_s[worst]:
        return None
    while deeper := [
        node for node in below[worst] if misjudged_s[node] / misjudged_s[worst] >= MOST
    ]:
        worst = max(deeper, key=lambda node: abs(misjudged_s[node]))
    return worst


def _subtrees(
    rows: AnsweredRows, parents: Sequence[int], *, hardware: Hardware, model: ModelShape
) -> tuple[SubtreeJudgement, ...]:
    def seconds(tokens: Floats) -> Floats:
        each = tokens / rows.sequences
        read = rows.sequences * mem_s(rows.prompt_tokens, each, hardware=hardware, model=model)
        return read + decode_comp_s(tokens, hardware=hardware, model=model)

    beyond_s = seconds(rows.output_tokens.astype(np.float64)) - seconds(rows.expected_tokens)
    count, sequences, expected, output, misjudged = (
        _summed_up(np.bincount(rows.subtree, column, len(parents)).tolist(), parents)
        for column in (
            np.ones(len(rows.subtree)),
            rows.sequences,
            rows.expected_tokens,
            rows.output_tokens,
            beyond_s,
        )
    )
    answers = np.maximum(sequences, 1.0)
    return tuple(
        SubtreeJudgement(int(count[one]), *(float(x) for x in columns))
        for one, columns in enumerate(
            zip(expected / answers, output / answers, misjudged, strict=True)
        )
    )


def _summed_up(own: list[float], parents: Sequence[int]) -> Floats:
    """Return the sum over each subtree of what its nodes have of their own."""
    total = [float(x) for x in own]
    for node in range(len(parents) - 1, 0, -1):
        total[parents[node]] += total[node]
    return np.array(total, np.float64)


def _typical_factor(rows: AnsweredRows) -> float:
    if not len(rows.subtree):
        return 1.0
    expected = np.maximum(rows.expected_tokens, rows.sequences)
    actual = np.maximum(rows.output_tokens, rows.sequences)
    return float(np.exp(np.abs(np.log(actual / expected)).mean()))
