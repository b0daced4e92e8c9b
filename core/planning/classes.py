"""Which rows have answers of like length? Classes found without labels, and what is known of each.

Rows start as cohorts: a large subtree of the prefix tree and an octave of `max_tokens`. Cohorts of
one octave whose samples do not differ are joined, and those with hardly a sample are pooled.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from blend.core.planning.lengths import KNOWN_TOKENS, Observations, cohorts, octave_of, prior_tokens
from blend.core.planning.tree import Floats, Tree

Mode = Literal["sequential", "overlapped"]

FEW = 5
"""Samples of a cohort below which it is pooled with the others of its octave."""

SPREAD, SPREAD_WEIGHT = 0.7, 2.0
"""The deviation of log lengths that a sample's is shrunk toward, and the samples it weighs as."""

UNKNOWN_SPREAD = 1.2

GUESS_WEIGHT = 8.0
"""The answers that a guess from `max_tokens` weighs as, where others were cut off.

Few have ended by then, and too low an estimate lets more in than the cache holds in the end.
"""

ROUNDS, NEAR = 60, 1e-4

LIKE_RATIO = 1.15  # of geometric means that are not told apart


@dataclass(frozen=True, slots=True)
class LengthClasses:
    """What is known of the answers, by class (c,) and row (n,).

    ``label`` (n,): the class of each row; ``known`` (n,): its length where that is certain, else 0;
    ``centre`` and ``spread`` (c,): mean and deviation of the log length; ``limit`` (c,): no answer
    is longer. The sample: ``lengths`` of answers that ended and ``ages`` of those that were cut
    off, with the class of each in ``length_label`` and ``age_label``.
    """

    label: npt.NDArray[np.int32]
    known: Floats
    centre: Floats
    spread: Floats
    limit: Floats
    lengths: Floats
    length_label: npt.NDArray[np.int32]
    ages: Floats
    age_label: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.centre)


@dataclass(frozen=True, slots=True)
class Blending:
    """What the blending scanner knows: classes of lengths, and the seconds that set its pace.

    ``token_s``: to compute one token; ``read_s``: to read the cache of one token; ``weights_s``: to
    read all weights. ``caution`` is z of the forecast; ``reserved``: whether the compute side
    has a reserve of memory; ``paced``: whether prefill keeps a pace;
    ``calibrated``: whether the seconds were measured, and are not those of a datasheet;
    ``movable``: whether another replica may take what waits.
    """

    classes: LengthClasses
    token_s: float
    read_s: float
    weights_s: float
    mode: Mode
    caution: float = 2.0
    reserved: bool = True
    paced: bool = True
    calibrated: bool = False
    movable: bool = False

    def renumbered(self, rows: npt.NDArray[np.int64], *, total: int) -> "Blending":
        """Return the same of *rows* of a job of *total*; of its other rows nothing is known."""
        label, known = np.zeros(total, np.int32), np.zeros(total)
        label[rows], known[rows] = self.classes.label, self.classes.known
        return replace(self, classes=replace(self.classes, label=label, known=known))


def find_classes(
    tree: Tree,
    max_tokens: npt.NDArray[np.int32],
    observations: Observations | None = None,
    *,
    known_tokens: Floats | None = None,
    minimum_rows: int = 30,
) -> LengthClasses:
    """Return the classes of all rows, told apart by what was observed.

    ``known_tokens`` (n,): lengths that are certain, NaN elsewhere; those of tiny limits are added.
    """
    certain = max_tokens <= KNOWN_TOKENS
    known = np.where(certain, np.maximum(max_tokens, 1), 0).astype(np.float64)
    if known_tokens is not None:
        known = np.where(np.isnan(known_tokens), known, known_tokens)
    tokens, finished = _observed(len(tree), observations)
    cohort = cohorts(tree, max_tokens, minimum_rows=minimum_rows)
    octave = octave_of(max_tokens)
    sampled = ~np.isnan(tokens) & (known == 0)
    label = np.full(len(tree), -1, np.int64)
    for one in np.unique(octave):
        for sure in (True, False):
            rows = np.flatnonzero((octave == one) & ((known > 0) == sure))
            if not len(rows):
                continue
            start = int(label.max()) + 1
            if sure:
                _, number = np.unique(cohort[rows], return_inverse=True)
            else:
                number = _joined(cohort[rows], np.where(sampled[rows], tokens[rows], np.nan))
            label[rows] = start + number
    ended, cut = sampled & finished, sampled & ~finished
    return _described(label, max_tokens, known, tokens, ended=ended, cut=cut)


def _observed(n: int, observations: Observations | None) -> tuple[Floats, npt.NDArray[np.bool_]]:
    if observations is None:
        return np.full(n, np.nan), np.zeros(n, np.bool_)
    return observations.tokens, observations.finished


def _joined(cohort: npt.NDArray[np.int64], tokens: Floats) -> npt.NDArray[np.int64]:
    """Return a class number for each row of one octave: like cohorts share one."""
    _, number = np.unique(cohort, return_inverse=True)
    number = number.reshape(-1)
    sampled = ~np.isnan(tokens)
    count = np.bincount(number, weights=sampled)
    few = count < FEW
    # One group of all cohorts with hardly a sample, which is then a cohort like any other.
    group = np.where(few, len(count), np.arange(len(count)))[number]
    present = np.unique(group)
    logs = [np.log(np.maximum(tokens[sampled & (group == one)], 1.0)) for one in present]
    classes = _join_like(logs)
    largest = max(range(len(logs)), key=lambda one: len(logs[one]))
    classes = [classes[one if len(logs[one]) else largest] for one in range(len(logs))]
    return np.asarray(classes, np.int64)[np.searchsorted(present, group)]


def _join_like(logs: Sequence[Floats]) -> list[int]:
    """Return a class number for each sample of log lengths; like samples share one."""
    order = sorted(range(len(logs)), key=lambda one: logs[one].mean() if len(logs[one]) else 0.0)
    classes, joined = [0] * len(logs), logs[order[0]]
    current = 0
    for one in order[1:]:
        if _differ(joined, logs[one]):
            current, joined = current + 1, logs[one]
        else:
            joined = np.concatenate([joined, logs[one]])
        classes[one] = current
    return classes


def _differ(first: Floats, second: Floats) -> bool:
    if not len(first) or not len(second):
        return False
    apart = abs(float(first.mean() - second.mean()))
    error = np.hypot(_deviation(first) / len(first) ** 0.5, _deviation(second) / len(second) ** 0.5)
    return bool(apart > np.log(LIKE_RATIO) and apart > 2.5 * error)


def _deviation(logs: Floats) -> float:
    squares = float(((logs - logs.mean()) ** 2).sum()) if len(logs) else 0.0
    return float(((squares + SPREAD_WEIGHT * SPREAD**2) / (len(logs) + SPREAD_WEIGHT)) ** 0.5)


def _described(
    label: npt.NDArray[np.int64],
    max_tokens: npt.NDArray[np.int32],
    known: Floats,
    tokens: Floats,
    *,
    ended: npt.NDArray[np.bool_],
    cut: npt.NDArray[np.bool_],
) -> LengthClasses:
    classes = int(label.max(initial=-1)) + 1
    limit = np.ones(classes)
    np.maximum.at(limit, label, max_tokens.astype(np.float64))
    size = np.maximum(np.bincount(label, minlength=classes), 1)
    guess = np.bincount(label, weights=prior_tokens(max_tokens), minlength=classes) / size
    centre = np.log(np.maximum(guess, 1.0))
    spread = np.full(classes, UNKNOWN_SPREAD)
    for one in np.unique(label[ended]):
        whole, so_far = (
            np.log(np.maximum(tokens[some & (label == one)], 1.0)) for some in (ended, cut)
        )
        centre[one], spread[one] = _fitted(whole, so_far, guess=float(centre[one]))
    return LengthClasses(
        label.astype(np.int32),
        known,
        centre,
        spread,
        limit,
        tokens[ended],
        label[ended].astype(np.int32),
        tokens[cut],
        label[cut].astype(np.int32),
    )


def _fitted(ended: Floats, cut: Floats, *, guess: float) -> tuple[float, float]:
    """Return centre and spread of the lognormal that log lengths are from, some of them cut off.

    By expectation and maximisation: what was cut off counts as what it may have come to. Answers
    that end within a bound are the short ones; without the others they would stand for all.
    """
    centre, spread = float(ended.mean()), _deviation(ended)
    if not len(cut):
        return centre, spread
    weight = len(ended) + len(cut) + GUESS_WEIGHT
    for _ in range(ROUNDS):
        mean, variance = _beyond(cut, centre, spread)
        before = centre, spread
        centre = float(ended.sum() + mean.sum() + GUESS_WEIGHT * guess) / weight
        squares = float(((ended - centre) ** 2).sum() + ((mean - centre) ** 2 + variance).sum())
        squares += GUESS_WEIGHT * (guess - centre) ** 2 + SPREAD_WEIGHT * SPREAD**2
        spread = (squares / (weight + SPREAD_WEIGHT)) ** 0.5
        if np.allclose(before, (centre, spread), rtol=0.0, atol=NEAR):
            break
    return centre, spread


def _beyond(cut: Floats, centre: float, spread: float) -> tuple[Floats, Floats]:
    """Return mean and variance of a normal variable that is larger than *cut*, each."""
    z = np.clip((cut - centre) / spread, -8.0, 8.0)
    tail = np.array([math.erfc(x / 2**0.5) / 2 for x in z.tolist()])
    hazard = np.exp(-z * z / 2) / (2 * np.pi) ** 0.5 / tail
    return centre + spread * hazard, spread**2 * (1.0 + z * hazard - hazard * hazard)
