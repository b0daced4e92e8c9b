"""Which rows move from one replica to another, so that none ends long before the others?

How long an answer will be is known only when it has ended, so no cut stays balanced, least of all
that of the memory side, where few long answers make the work. What a replica has not admitted is
not its own: whenever the expected ends lie apart, the replica with the most left hands rows to
the one with the least. So requests of uncertain length come from one shared queue, in which each
replica has, at any moment, a fair share in front of it to blend.

    load of a replica = what it has not admitted + what is left of the rows inside
    end               = c and m, seconds of compute and of cache reads, at once (`interference`)

What is handed over is one run of rows in the order of the schedule, cut where few tokens are
shared; it costs two prefixes at most. The invariant: every row that was not admitted has one
replica before and after, and no end comes to lie behind the one that was the last.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from blend.core.planning.cost import decode_comp_s
from blend.core.planning.interference import Interference, added_s
from blend.core.planning.parts import Walk
from blend.core.planning.tree import Floats, Ints

SLACK, LEAST_SLACK = 0.02, 0.002
"""How far ends may lie apart: of the mean that is left, and of the mean of the whole job."""

SHARING_WORTH = 4.0
"""Of the seconds to compute a prefix again, what they must at least save of the later end."""

STRETCHES = 256
"""Of what a replica has not admitted: so finely it is cut."""

UNSURE = 0.5
"""Of an expected answer, what is thought to be left at least while it has not ended."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a replica is: the positions it has not admitted, ascending, and what runs inside.

    ``comp_s`` and ``mem_s``: what is left of that.
    """

    left: Ints
    comp_s: float
    mem_s: float


class Dealer:
    """Deals the rows of one schedule to its replicas, engines of this interference."""

    def __init__(self, walk: Walk, *, parts: int, interference: Interference):
        self._comp, self._mem = walk.comp_s(np.arange(len(walk))), walk.mem_s
        self._prefix, self._walk = walk.prefix_s, walk
        self._interference = interference
        one = decode_comp_s(np.ones(1), hardware=walk.hardware, model=walk.model)
        self._token_s = float(one[0])
        self._read_s = walk.model.kv_bytes_per_token / walk.hardware.bandwidth_bytes_s
        whole = self.seconds(Standing(np.arange(len(walk)), 0.0, 0.0))
        self.least_s = LEAST_SLACK * whole / parts

    def end_s(self, comp_s: Floats, mem_s: Floats) -> Floats:
        """Return the seconds that loads take."""
        longest, other = np.maximum(comp_s, mem_s), np.minimum(comp_s, mem_s)
        ends: Floats = longest + added_s(self._interference, longest, other)
        return ends

    def standing(self, left: Ints, inside: Ints, ages: Floats) -> Standing:
        """Return how far a replica is: rows *inside*, positions too, have run for *ages* tokens."""
        walk, expected = self._walk, self._walk.expected_tokens[inside]
        each = np.maximum(expected - ages, UNSURE * expected)
        rest = each * walk.copies[inside]
        reads = rest * (walk.tree.lengths[inside] + ages + each / 2)
        return Standing(left, self._token_s * float(rest.sum()), self._read_s * float(reads.sum()))

    def load(self, standing: Standing) -> tuple[float, float]:
        """Return compute and memory seconds of all that a replica has before it."""
        return (
            standing.comp_s + float(self._comp[standing.left].sum()),
            standing.mem_s + float(self._mem[standing.left].sum()),
        )

    def seconds(self, standing: Standing) -> float:
        """Return the seconds until a replica is thought to end."""
        load = np.array(self.load(standing))
        return float(self.end_s(load[:1], load[1:])[0])

    def deal(self, standings: Sequence[Standing]) -> dict[int, Ints]:
        """Return the positions to admit of every replica whose positions change."""
        left = [standing.left for standing in standings]
        load = np.array([self.load(standing) for standing in standings])
        changed: dict[int, Ints] = {}
        for _ in range(2 * len(standings)):
            ends = self.end_s(load[:, 0], load[:, 1])
            giver = int(np.where([len(rows) > 0 for rows in left], ends, -np.inf).argmax())
            taker = int(ends.argmin())
            slack = max(SLACK * float(ends.mean()), self.least_s)
            if not len(left[giver]) or ends[giver] - ends[taker] <= slack:
                break
            run = self._handed(left[giver], load[giver], load[taker])
            moved = left[giver][run]
            if not len(moved):
                break
            weight = np.array([self._comp[moved].sum(), self._mem[moved].sum()])
            left[giver] = np.delete(left[giver], run)
            left[taker] = np.sort(np.concatenate([left[taker], moved]))
            load[giver] -= weight
            load[taker] += weight
            changed |= {giver: left[giver], taker: left[taker]}
        return changed

    def _handed(self, left: Ints, giver: Floats, taker: Floats) -> slice:
        """Return the run of the giver's rows with which the later of both ends comes first."""
        comp, mem, prefix = self._comp[left], self._mem[left], self._prefix[left]
        cuts = _likely_cuts(comp, mem, prefix)
        computed, read = (np.concatenate([[0.0], np.cumsum(of)])[cuts] for of in (comp, mem))
        lost = np.append(prefix, 0.0)[cuts]
        lost[0] = 0.0
        # From every cut to every later one, and to itself: nothing.
        c, m = computed - computed[:, None], read - read[:, None]
        paid = lost + lost[:, None]
        np.fill_diagonal(paid, 0.0)
        later = np.maximum(
            self.end_s(giver[0] - c, giver[1] - m), self.end_s(taker[0] + c + paid, taker[1] + m)
        )
        later += SHARING_WORTH * paid
        later[np.tri(len(cuts), k=-1, dtype=np.bool_)] = np.inf
        first, last = np.unravel_index(int(later.argmin()), later.shape)
        return slice(int(cuts[first]), int(cuts[last]))


def _likely_cuts(comp: Floats, mem: Floats, prefix: Floats) -> Ints:
    """Return where to cut a run of rows: in every stretch of like work where it costs least."""
    n = len(comp)
    work = comp / max(float(comp.sum()), 1e-300) + mem / max(float(mem.sum()), 1e-300)
    stretch = np.floor((np.cumsum(work) - work / 2) * (STRETCHES / 2)).astype(np.int64)
    order = np.lexsort((prefix, stretch))
    first = np.concatenate([[True], np.diff(stretch[order]) > 0])
    return np.unique(np.concatenate([[0], order[first], [n]]))
