"""All prompts of a job as columns."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Prompts:
    """Token ids of n prompts in one flat array; prompt ``i`` is ``tokens[starts[i]:starts[i+1]]``.

    tokens uint32 (T,), starts int64 (n+1,), max_tokens int32 (n,): output tokens at most a
    sequence, sequences int32 (n,). The index of a prompt is its row in the job.
    """

    tokens: npt.NDArray[np.uint32]
    starts: npt.NDArray[np.int64]
    max_tokens: npt.NDArray[np.int32]
    sequences: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, row: int) -> npt.NDArray[np.uint32]:
        return self.tokens[self.starts[row] : self.starts[row + 1]]

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Return the prompt tokens of each row, (n,)."""
        return np.diff(self.starts)
