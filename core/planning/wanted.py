"""Which answers have to be seen before a plan is worth making: so many of every cohort."""

from collections import Counter

import numpy as np
import numpy.typing as npt

from blend.core.planning.lengths import cohorts
from blend.core.planning.tree import Tree
from blend.core.prompts import Prompts


class WantedAnswers:
    """Counts the answers of a sample until *minimum* of every cohort have been seen, or all of it.

    The invariant: what has been seen once is not wanted again.
    """

    def __init__(
        self, tree: Tree, prompts: Prompts, sampled: npt.NDArray[np.bool_], *, minimum: int
    ):
        rows = np.flatnonzero(sampled)
        cohort = cohorts(tree, prompts.max_tokens, minimum_rows=minimum)[rows].tolist()
        self._cohort = dict(zip(prompts.job_rows[rows].tolist(), cohort, strict=True))
        self._wanted = {one: min(count, minimum) for one, count in Counter(cohort).items()}

    def __bool__(self) -> bool:
        return bool(self._wanted)

    def see(self, row: int) -> None:
        """Take in that a row, by its number in the job, has ended, with an answer or without."""
        cohort = self._cohort.pop(row, None)
        if cohort not in self._wanted:
            return
        self._wanted[cohort] -= 1
        if not self._wanted[cohort]:
            del self._wanted[cohort]
