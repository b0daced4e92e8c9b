"""What in the prompts keeps work from being shared, and which limits say nothing?

A prefix cache shares what prompts begin with. Prompts that differ early and are alike again after
it compute the same tokens each for itself: putting what varies last would share them. How much that
is comes from a sample of rows in depth-first order. Every run of WINDOW tokens is hashed; a token
that a row computes, in a window that a row before it has too, need not have been computed. The
sample sees less of a rare repetition than there is, so the saving is rather too low. Linear in its
tokens, but for one sort.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from blend.core.planning.lengths import KNOWN_TOKENS, Observations, octave_of
from blend.core.planning.tree import ROOT, Ints, Tree
from blend.core.prompts import Prompts

WINDOW = 16
"""The shortest run of equal tokens that counts: a block of the prefix cache."""

SAMPLED_TOKENS = 1_000_000
LEAST_SHARE = 0.01
"""Of the prefill of the job: what saves less is not worth a word."""

NAMED = 3
FULL = 0.9
"""Share of the context from which on a prompt leaves hardly room to answer."""

LOOSE, LEAST_SAMPLES = 4.0, 20
"""A limit so many times the longest answer of so many samples never binds."""

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class LateSharing:
    """Rows that differ from a token on and have so many equal tokens after it, the median row's.

    ``saved_tokens`` of the job would be shared if they stood before what varies; ``saved_share`` is
    their part of the prompt tokens that the job computes. ``example_row`` is one of the rows.
    """

    rows: int
    common_tokens: int
    equal_tokens: int
    saved_tokens: int
    saved_share: float
    example_row: int


@dataclass(frozen=True, slots=True)
class LooseLimits:
    """Rows whose limit of output never binds: the least of them, and the longest answer sampled."""

    rows: int
    least_limit: int
    longest_answer: int
    sampled: int


@dataclass(frozen=True, slots=True)
class PromptLint:
    """What was found in the prompts of a job.

    ``duplicates``: rows whose whole prompt an earlier one has, too; ``nearly_full``: rows whose
    prompt fills nearly all of ``context_tokens``.
    """

    late_sharing: tuple[LateSharing, ...]
    duplicates: int
    nearly_full: int
    context_tokens: int | None
    loose_limits: LooseLimits | None

    def renumbered(self, rows: Ints) -> "PromptLint":
        """Return the same of prompts whose rows have the numbers *rows*, (n,)."""
        late = (replace(one, example_row=int(rows[one.example_row])) for one in self.late_sharing)
        return replace(self, late_sharing=tuple(late))


def lint_prompts(
    prompts: Prompts,
    tree: Tree,
    *,
    context_tokens: int | None = None,
    observations: Observations | None = None,
    seed: int = 0,
) -> PromptLint:
    """Return what is found in *prompts*; the same for the same *seed*."""
    nearly_full = 0
    if context_tokens is not None:
        nearly_full = int((prompts.lengths >= FULL * context_tokens).sum())
    return PromptLint(
        late_sharing(prompts, tree, seed=seed),
        duplicates(tree),
        nearly_full,
        context_tokens,
        None if observations is None else loose_limits(prompts, observations),
    )


def duplicates(tree: Tree) -> int:
    """Return how many rows have a whole prompt that an earlier row has, too."""
    same = (tree.lcp[1:] == tree.lengths[1:]) & (tree.lengths[1:] == tree.lengths[:-1])
    return int(same.sum())


def loose_limits(prompts: Prompts, observations: Observations) -> LooseLimits | None:
    """Return the rows whose octave of max_tokens has samples, all of them far below the limits."""
    octave = octave_of(prompts.max_tokens)
    ended = observations.answered
    rows, limits, longest, sampled = 0, [0], 0.0, 0
    for one in np.unique(octave[ended & (prompts.max_tokens > KNOWN_TOKENS)]).tolist():
        alike = octave == one
        seen = observations.tokens[alike & ended]
        # An answer that was cut off before its end may yet have grown to any length.
        unknown = alike & ~ended & observations.sampled
        least = int(prompts.max_tokens[alike].min())
        if len(seen) < LEAST_SAMPLES or unknown.any() or LOOSE * seen.max() > least:
            continue
        rows, sampled = rows + int(alike.sum()), sampled + len(seen)
        limits.append(least)
        longest = max(longest, float(seen.max()))
    return LooseLimits(rows, min(limits[1:]), int(longest), sampled) if rows else None


def late_sharing(prompts: Prompts, tree: Tree, *, seed: int = 0) -> tuple[LateSharing, ...]:
    """Return the groups of rows that would share most if what varies stood last."""
    at = _sampled_positions(tree, seed)
    if len(at) < 2:
        return ()
    rows, starts_at = tree.rows[at], tree.lcp[at].copy()
    tokens = [prompts[row] for row in rows.tolist()]
    lengths = tree.lengths[at]
    repeated, partner = _repeated(tokens, lengths, starts_at)
    computed = max(int((lengths - starts_at).sum()), 1)
    scale = tree.unique_tokens / computed
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for one in np.flatnonzero(repeated >= WINDOW).tolist():
        common = _common(tokens[one], tokens[int(partner[one])])
        groups[_holder(tree, int(at[one]), common), common].append(one)
    found = [
        _described(members, common, repeated, rows, scale=scale, rows_a_sample=len(tree) / len(at))
        for (_, common), members in groups.items()
    ]
    least = LEAST_SHARE * tree.unique_tokens
    kept = sorted((one for one in found if one[1] >= least), key=lambda one: -one[1])[:NAMED]
    return tuple(
        LateSharing(n, common, equal, round(saved), saved / max(tree.unique_tokens, 1), row)
        for (n, common, equal, row), saved in kept
    )


def _sampled_positions(tree: Tree, seed: int) -> Ints:
    """Return positions of the tree, ascending, drawn until they have enough tokens."""
    drawn = np.random.default_rng(seed).permutation(len(tree))
    enough = int(np.searchsorted(np.cumsum(tree.lengths[drawn]), SAMPLED_TOKENS)) + 1
    return np.sort(drawn[:enough])


def _described(
    members: list[int],
    common: int,
    repeated: Ints,
    rows: Ints,
    *,
    scale: float,
    rows_a_sample: float,
) -> tuple[tuple[int, int, int, int], float]:
    counts = repeated[members]
    middle = members[int(np.argsort(counts, kind="stable")[len(counts) // 2])]
    about = max(round(len(members) * rows_a_sample), len(members))
    described = (about, common, int(np.median(counts)), int(rows[middle]))
    return described, float(counts.sum() * scale)


def _repeated(
    tokens: list[npt.NDArray[np.uint32]], lengths: Ints, starts_at: Ints
) -> tuple[Ints, Ints]:
    """Return the computed tokens of each row that an earlier row has, and which row has most."""
    owner = np.repeat(np.arange(len(tokens)), np.maximum(lengths - WINDOW + 1, 0))
    begins = np.cumsum(lengths) - lengths
    place = _window_places(lengths, begins)
    hashes = _window_hashes(np.concatenate(tokens))[place] if len(place) else np.zeros(0, np.uint64)
    place_of_first, before = _equal_ones(hashes)
    first = owner[place_of_first]
    # What a row repeats of itself no prefix can share, and what is cached is shared already.
    again = (first != owner) & (owner[before] != owner)
    covered = np.zeros(int(lengths.sum()) + 1, np.int64)
    np.add.at(covered, place[again], 1)
    np.add.at(covered, place[again] + WINDOW, -1)
    position = np.arange(len(covered) - 1) - np.repeat(begins, lengths)
    counted = (np.cumsum(covered[:-1]) > 0) & (position >= np.repeat(starts_at, lengths))
    computing = again & (place - begins[owner] + WINDOW > starts_at[owner])
    sums = np.concatenate([[0], np.cumsum(counted)])
    return sums[begins + lengths] - sums[begins], _partners(
        owner[computing], first[computing], len(tokens)
    )


def _window_places(lengths: Ints, begins: Ints) -> Ints:
    """Return where each window begins in the joined tokens; none crosses from row to row."""
    windows = np.maximum(lengths - WINDOW + 1, 0)
    within = np.arange(int(windows.sum())) - np.repeat(np.cumsum(windows) - windows, windows)
    places: Ints = within + np.repeat(begins, windows)
    return places


def _window_hashes(tokens: npt.NDArray[np.uint32]) -> Hashes:
    """Return a hash for the window that begins at each token, modulo 2^64."""
    values = tokens.astype(np.uint64) + np.uint64(1)
    values *= np.uint64(0x9E3779B97F4A7C15)
    values ^= values >> np.uint64(29)
    hashes = np.zeros(max(len(values) - WINDOW + 1, 0), np.uint64)
    for step in range(WINDOW):
        hashes *= np.uint64(0xBF58476D1CE4E5B9)
        hashes += values[step : step + len(hashes)]
    return hashes


def _equal_ones(hashes: Hashes) -> tuple[Ints, Ints]:
    """Return for each hash where it stands first, and where last before, itself if nowhere."""
    order = np.argsort(hashes, kind="stable")
    starts = np.ones(len(hashes), np.bool_)
    starts[1:] = hashes[order[1:]] != hashes[order[:-1]]
    first = np.empty(len(hashes), np.int64)
    first[order] = order[np.maximum.accumulate(np.where(starts, np.arange(len(hashes)), 0))]
    before = np.arange(len(hashes))
    before[order[1:]] = np.where(starts[1:], order[1:], order[:-1])
    return first, before


def _partners(owner: Ints, first: Ints, rows: int) -> Ints:
    """Return for each row the one that most of its windows stood in before, (rows,)."""
    partner = np.zeros(rows, np.int64)
    bounds = np.searchsorted(owner, np.arange(rows + 1)).tolist()
    for row in np.unique(owner).tolist():
        ((partner[row], _),) = Counter(first[bounds[row] : bounds[row + 1]].tolist()).most_common(1)
    return partner


def _common(one: npt.NDArray[np.uint32], other: npt.NDArray[np.uint32]) -> int:
    """Return how many tokens both begin with."""
    n = min(len(one), len(other))
    differs = np.flatnonzero(one[:n] != other[:n])
    return int(differs[0]) if len(differs) else n


def _holder(tree: Tree, position: int, depth: int) -> int:
    """Return the deepest node above a row that is no deeper than so many tokens."""
    return next(
        node for node in _upwards(tree, position) if tree.depth[node] <= depth or node == ROOT
    )


def _upwards(tree: Tree, position: int) -> Iterator[int]:
    node = int(tree.leaf_parent[position])
    while node != ROOT:
        yield node
        node = int(tree.parent[node])
    yield ROOT
