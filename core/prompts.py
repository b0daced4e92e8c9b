"""All prompts of a job as columns."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Prompts:
    """Token ids of n prompts in one flat array; prompt ``i`` is ``tokens[starts[i]:starts[i+1]]``.

    tokens uint32 (T,), starts int64 (n+1,), max_tokens int32 (n,): output tokens at most a
    sequence, sequences int32 (n,), known_tokens float64 (n,): output tokens of a sequence where
    they are certain, NaN elsewhere; None where no request says. The index of a prompt is its row
    in the job, but where ``rows`` int64 (n,), ascending, says which one is.
    """

    tokens: npt.NDArray[np.uint32]
    starts: npt.NDArray[np.int64]
    max_tokens: npt.NDArray[np.int32]
    sequences: npt.NDArray[np.int32]
    known_tokens: npt.NDArray[np.float64] | None = None
    rows: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, row: int) -> npt.NDArray[np.uint32]:
        return self.tokens[self.starts[row] : self.starts[row + 1]]

    @property
    def job_rows(self) -> npt.NDArray[np.int64]:
        """Return the row in the job of each prompt, (n,)."""
        return np.arange(len(self)) if self.rows is None else self.rows

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Return the prompt tokens of each row, (n,)."""
        return np.diff(self.starts)

    def by_sequence(self) -> tuple["Prompts", npt.NDArray[np.int64]]:
        """Return a prompt for every sequence, and the row that each belongs to."""
        rows = np.repeat(np.arange(len(self)), self.sequences)
        if len(rows) == len(self):
            return self, rows
        starts = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(self.lengths[rows], out=starts[1:])
        tokens = np.concatenate([self[row] for row in rows])
        known = None if self.known_tokens is None else self.known_tokens[rows]
        ones = np.ones(len(rows), np.int32)
        return Prompts(tokens, starts, self.max_tokens[rows], ones, known), rows
