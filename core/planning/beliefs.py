"""What the kernels are told of answer lengths: the prior of each class and its sample, in bins."""

import math

import numpy as np
import numpy.typing as npt

from blend.core.kernels.survival import BINS, BINS_PER_OCTAVE, EDGE, Beliefs, new_beliefs
from blend.core.planning.classes import LengthClasses
from blend.core.planning.tree import Floats


def beliefs_of(classes: LengthClasses) -> Beliefs:
    """Return the state of the estimator before the run."""
    prior = [_lognormal(*pair) for pair in zip(classes.centre, classes.spread, strict=True)]
    return new_beliefs(
        label=classes.label,
        known=classes.known,
        prior=np.array(prior).reshape(len(classes), BINS + 1),
        events=_binned(classes.lengths, classes.length_label, len(classes)),
        censored=_binned(classes.ages, classes.age_label, len(classes)),
        limit=classes.limit,
    )


def expected_tokens(classes: LengthClasses) -> Floats:
    """Return the expected length of the answer of every row, (n,)."""
    mean: Floats = beliefs_of(classes).moments[classes.label, 0]
    return np.where(classes.known > 0, classes.known, mean)


def _binned(tokens: Floats, label: npt.NDArray[np.int32], classes: int) -> Floats:
    counts = np.zeros((classes, BINS))
    bins = np.minimum((BINS_PER_OCTAVE * np.log2(tokens + 1.0)).astype(np.int64), BINS - 1)
    np.add.at(counts, (label, bins), 1.0)
    return counts


def _lognormal(centre: float, spread: float) -> Floats:
    """Return the survival of a lognormal at the edges of the bins."""
    logs = np.log(np.maximum(EDGE, 1e-9))
    survival = np.array([math.erfc((x - centre) / (spread * 2**0.5)) / 2 for x in logs.tolist()])
    survival[0], survival[-1] = 1.0, 0.0
    return survival
