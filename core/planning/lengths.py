"""How long the answers will be: a small sample run for real, and what it tells (paper §5.1).

Rows are alike when they share a subtree and their `max_tokens` lie in the same octave. A row
takes the mean of the smallest subtree with samples of its octave, pulled towards the mean of the
subtree above by one pseudo-sample; so a subtree without a sample takes its relatives' mean.

Differs from the paper: besides 1 % of the rows, a few of every large subtree are sampled, because
a uniform sample holds hardly any of the few rows that make most of the work; and the mean counts
unfinished answers, because leaving them out would favour the short ones.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from blend.core.planning.tree import ROOT, Floats, Ints, Tree
from blend.core.prompts import Prompts

# How an expected length is known, as stored in Lengths.source.
OBSERVED, SUBTREE, SIBLING, PRIOR, KNOWN = range(5)
LengthSource = Literal["observed", "subtree", "sibling", "prior", "known"]
SOURCES: tuple[LengthSource, ...] = ("observed", "subtree", "sibling", "prior", "known")

KNOWN_TOKENS = 8  # answers this short are as good as known: they cost next to nothing to decode
LEAST_PROBES = 5  # of a cohort, when every cohort is sampled
MATTERS_SHARE = 1 / 200  # of the output the job may produce at most


@dataclass(frozen=True, slots=True)
class Observations:
    """What the sample showed, by row.

    ``tokens`` (n,): output of one sequence, NaN where the row was not sampled; ``finished`` (n,):
    whether that is the whole answer, and not the age it had reached when it was stopped.
    """

    tokens: Floats
    finished: npt.NDArray[np.bool_]

    @property
    def sampled(self) -> npt.NDArray[np.bool_]:
        """Which rows anything was seen of, (n,)."""
        return ~np.isnan(self.tokens)

    @property
    def answered(self) -> npt.NDArray[np.bool_]:
        """Which rows the whole answer was seen of, (n,)."""
        return self.sampled & self.finished

    def at(self, rows: npt.NDArray[np.int64]) -> "Observations":
        """Return what was seen of these *rows*, which may stand there more than once."""
        return Observations(self.tokens[rows], self.finished[rows])


@dataclass(frozen=True, slots=True)
class Lengths:
    """Output tokens to expect of one sequence of each row, by row.

    ``source`` (n,) says where ``expected`` (n,) comes from, as an index into SOURCES.
    """

    expected: Floats
    source: npt.NDArray[np.int8]


def known_of(prompts: Prompts) -> Floats:
    """Return the answer lengths that the requests themselves say, (n,), NaN where they do not."""
    if prompts.known_tokens is None:
        return np.full(len(prompts), np.nan)
    return prompts.known_tokens


def limited_of(prompts: Prompts) -> npt.NDArray[np.bool_]:
    """Return which answers are known by nothing but a tiny limit, (n,)."""
    limited: npt.NDArray[np.bool_] = np.isnan(known_of(prompts))
    return limited & (prompts.max_tokens <= KNOWN_TOKENS)


def prior_tokens(max_tokens: npt.NDArray[np.int32]) -> Floats:
    """Return the answer lengths to expect from the limits alone, (n,).

    All of a small limit, a quarter of 1,024, a seventh of 16,384.
    """
    limit = np.asarray(max_tokens, dtype=np.float64)
    beyond = np.maximum(limit - KNOWN_TOKENS, 0.0) ** 0.8
    prior: Floats = np.minimum(limit, KNOWN_TOKENS + beyond)
    return prior


def cohorts(tree: Tree, max_tokens: npt.NDArray[np.int32], *, minimum_rows: int) -> Ints:
    """Return for each row the number of its cohort, (n,): large subtree and octave of max_tokens.

    The large subtrees are the highest ones with at least *minimum_rows* and at most half of all
    rows; the rows of smaller ones stay with the node above.
    """
    rows_below = (tree.hi - tree.lo).tolist()
    parent = tree.parent.tolist()
    group = list(range(len(parent)))
    for node in range(1, len(group)):
        above = parent[node]
        small = rows_below[node] < minimum_rows
        if small or 2 * rows_below[above] <= len(tree):
            group[node] = group[above]
    by_row = np.empty(len(tree), dtype=np.int64)
    by_row[tree.rows] = np.array(group, dtype=np.int64)[tree.leaf_parent]
    _, number = np.unique(by_row * 64 + octave_of(max_tokens), return_inverse=True)
    return np.asarray(number, dtype=np.int64).reshape(-1)


def choose_sample(
    tree: Tree,
    prompts: Prompts,
    *,
    probability: float = 0.01,
    minimum: int = 8,
    every_cohort: bool = False,
    seed: int,
) -> Ints:
    """Return the rows to run ahead, ascending: each with *probability*, and a few where it matters.

    A cohort that may produce more than one part in two hundred of the output gets at least
    *minimum* rows, or an eighth of its rows when that is less. Rows whose length is known, or as
    good as known from `max_tokens`, are never sampled. With *every_cohort* the small ones get some
    too: *minimum*, half of their rows, or what makes no more than *probability* of all rows, the
    least of the three.
    """
    unknown = (prompts.max_tokens > KNOWN_TOKENS) & np.isnan(known_of(prompts))
    cohort = cohorts(tree, prompts.max_tokens, minimum_rows=minimum)
    draw = np.where(unknown, np.random.default_rng(seed).random(len(prompts)), 1.0)
    possible = np.where(unknown, prompts.sequences.astype(np.float64) * prompts.max_tokens, 0.0)
    output = np.bincount(cohort, weights=possible)
    size = np.bincount(cohort, weights=unknown)
    matters = output >= MATTERS_SHARE * output.sum()
    quota = np.where(matters, np.minimum(minimum, np.ceil(size / 8)), 0)
    if every_cohort and len(size):
        # The few rows that make most of the work can be a handful among thousands.
        each = min(minimum, max(LEAST_PROBES, int(probability * len(prompts) / len(size))))
        quota = np.maximum(quota, np.minimum(each, np.ceil(size / 2)))
    chosen = unknown & ((draw < probability) | (_rank_within(cohort, draw) < quota[cohort]))
    return np.flatnonzero(chosen)


def estimate(tree: Tree, prompts: Prompts, observations: Observations | None = None) -> Lengths:
    """Return the expected length of every answer, never above its max_tokens, at least 1."""
    limit = prompts.max_tokens.astype(np.float64)
    known = known_of(prompts)
    certain = ~np.isnan(known)
    expected = np.where(certain, known, prior_tokens(prompts.max_tokens))
    source = np.where(certain, KNOWN, PRIOR).astype(np.int8)
    if observations is not None:
        octave = np.where(certain, -1, octave_of(prompts.max_tokens))
        for alike in np.unique(octave[~certain & observations.sampled]):
            _estimate_octave(tree, octave == alike, observations, expected, source)
        _keep_observed(observations, expected, source)
    return Lengths(np.clip(expected, 1.0, np.maximum(limit, 1.0)), source)


def _estimate_octave(
    tree: Tree,
    alike: npt.NDArray[np.bool_],
    observations: Observations,
    expected: Floats,
    source: npt.NDArray[np.int8],
) -> None:
    """Overwrite *expected* and *source* of the rows in *alike* with what their relatives showed."""
    sampled = (alike & observations.sampled)[tree.rows]
    tokens = np.where(sampled, observations.tokens[tree.rows], 0.0)
    samples = tree.sums(sampled)
    mean = _node_means(
        tree,
        tokens=tree.sums(tokens),
        finished=tree.sums(sampled & observations.finished[tree.rows]),
    )
    rows = tree.rows[alike[tree.rows]]
    node = tree.leaf_parent[alike[tree.rows]]
    expected[rows] = mean[node]
    source[rows] = np.where((samples[node] > 0) & (node != ROOT), SUBTREE, SIBLING)


def _node_means(tree: Tree, *, tokens: Floats, finished: Floats) -> Floats:
    # Σ tokens / finished is the mean of a memoryless answer when some are cut off at their age.
    means = [float(tokens[ROOT] / max(finished[ROOT], 1.0))] * len(tree.parent)
    total, events, parent = tokens.tolist(), finished.tolist(), tree.parent.tolist()
    for node in range(1, len(means)):
        above = means[parent[node]]
        means[node] = (total[node] + above) / (events[node] + 1.0) if total[node] else above
    return np.array(means)


def _keep_observed(
    observations: Observations, expected: Floats, source: npt.NDArray[np.int8]
) -> None:
    ended = observations.answered
    running = observations.sampled & ~ended & (source != KNOWN)
    expected[ended] = observations.tokens[ended]
    source[ended] = OBSERVED
    expected[running] += observations.tokens[running]


def octave_of(max_tokens: npt.NDArray[np.int32]) -> Ints:
    """Return the octave of each limit, (n,)."""
    octave: Ints = np.log2(np.maximum(max_tokens, 1)).astype(np.int64)
    return octave


def _rank_within(cohort: Ints, draw: Floats) -> Ints:
    order = np.lexsort((draw, cohort))
    starts = np.searchsorted(cohort[order], np.arange(int(cohort.max(initial=-1)) + 1))
    rank = np.empty(len(cohort), dtype=np.int64)
    rank[order] = np.arange(len(cohort)) - starts[cohort[order]]
    return rank
