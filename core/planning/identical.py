"""Which rows run, and which get the answer of another row because their requests are identical?

Of each group of identical requests one row, the leader, runs; the others follow it. The invariant:
a row follows at most one other, and that one follows none.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from blend.core.planning.tree import Ints

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Followers:
    """Rows that do not run, ascending, and the row whose answer each gets: (k,) and (k,)."""

    rows: Ints
    leaders: Ints

    def __len__(self) -> int:
        return len(self.rows)

    def others(self, rows: int) -> Ints:
        """Return the rows of a job of so many that run themselves, ascending."""
        runs = np.ones(rows, np.bool_)
        runs[self.rows] = False
        return np.flatnonzero(runs)

    def counts(self, rows: int) -> Ints:
        """Return how many rows follow each one of a job of so many, (n,)."""
        return np.bincount(self.leaders, minlength=rows)


def no_followers() -> Followers:
    """Return what a job has whose rows all run."""
    return Followers(np.empty(0, np.int64), np.empty(0, np.int64))


def find_followers(
    digests: npt.NDArray[np.bytes_], *, open_rows: Flags, answered: Flags, settled: Followers
) -> Followers:
    """Return who follows whom, from the digest of each row's request, (n,), empty for none.

    Only ``open_rows``, which have no result, follow; their leader is the first row of their group
    that was ``answered`` by a run of its own, or else the first open one. ``settled``: those that
    have their leader's result already, and stay with it.
    """
    candidates = np.flatnonzero((digests != b"") & (open_rows | answered))
    _, group = np.unique(digests[candidates], return_inverse=True)
    group = group.reshape(-1)
    # Answered rows first, each kind in the order of rows: the first of a group is its leader.
    order = np.lexsort((candidates, ~answered[candidates], group))
    first = np.ones(len(order), np.bool_)
    first[1:] = group[order][1:] != group[order][:-1]
    leader = candidates[order][np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))]
    row = candidates[order]
    follows = ~first & open_rows[row]
    rows = np.concatenate([settled.rows, row[follows]])
    leaders = np.concatenate([settled.leaders, leader[follows]])
    ascending = np.argsort(rows, kind="stable")
    return Followers(rows[ascending], leaders[ascending])
