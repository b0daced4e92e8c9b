"""How does a run go? Its timeline in buckets of equal time, foreseen for a plan or measured.

Compute and memory seconds are those of the cost model (paper §4.1) for the tokens that were
computed and read, so that both timelines speak the same language whatever the engine's own clock
says. The invariant: the buckets of a run add up to the whole of it.
"""

from dataclasses import dataclass

import numpy as np

from blend.core.planning.engine_model import EngineModel
from blend.core.planning.tree import Floats, Ints

BUCKETS = 240


@dataclass(frozen=True, slots=True)
class TimelineBuckets:
    """A run in k buckets of equal time; arrays (k,).

    ``seconds`` at the end of each; ``compute_s`` and ``memory_s`` of computing tokens and of
    reading the KV cache in it; ``kv_tokens`` and ``running`` sequences at its end; ``answered``
    rows up to its end.
    """

    seconds: Floats
    compute_s: Floats
    memory_s: Floats
    kv_tokens: Ints
    running: Ints
    answered: Ints

    def seconds_until(self, answered: int) -> float:
        """Return the time at which so many rows were answered."""
        if not len(self.seconds):
            return 0.0
        # Where nothing ends for a while the first moment counts, and np.interp takes the last.
        count, first = np.unique(np.concatenate([[0], self.answered]), return_index=True)
        moments = np.concatenate([[0.0], self.seconds])[first]
        return float(np.interp(answered, count, moments))

    def work_s(self, at_s: float) -> float:
        """Return the seconds of computing and reading up to a time."""
        return float(np.interp(at_s, *self._work))

    def seconds_of(self, work_s: float) -> float:
        """Return the time at which so many seconds of computing and reading were done."""
        moments, done = self._work
        return float(np.interp(work_s, done, moments))

    @property
    def _work(self) -> tuple[Floats, Floats]:
        done = np.cumsum(self.compute_s + self.memory_s)
        return np.concatenate([[0.0], self.seconds]), np.concatenate([[0.0], done])


@dataclass(frozen=True, slots=True)
class Stretches:
    """What moved in a run from one moment to the next; arrays (k,) in the order of time.

    ``seconds`` at the end of each; token counts, ``steps`` and ``answered`` are of the stretch,
    ``kv_tokens`` and ``running`` of its end.
    """

    seconds: Floats
    steps: Ints
    computed_tokens: Ints
    kv_tokens: Ints
    running: Ints
    answered: Ints


def measured_timeline(
    run: Stretches, engine: EngineModel, *, buckets: int = BUCKETS
) -> TimelineBuckets:
    """Return the timeline of what an engine has reported.

    Every step is taken to read the cache that is held at the end of its stretch.
    """
    return bucketed(
        run.seconds,
        compute_s=engine.token_s * run.computed_tokens.astype(np.float64),
        memory_s=engine.read_s * (run.kv_tokens * run.steps).astype(np.float64),
        kv_tokens=run.kv_tokens,
        running=run.running,
        answered=np.cumsum(run.answered),
        buckets=buckets,
    )


def bucketed(
    seconds: Floats,
    *,
    compute_s: Floats,
    memory_s: Floats,
    kv_tokens: Ints,
    running: Ints,
    answered: Ints,
    buckets: int = BUCKETS,
) -> TimelineBuckets:
    """Return stretches of any length as buckets of equal time, no more than there are stretches.

    ``compute_s`` and ``memory_s`` are amounts of each stretch, the others what is so at its end.
    """
    count = min(buckets, len(seconds))
    if not count:
        nothing = np.zeros(0)
        none = nothing.astype(np.int64)
        return TimelineBuckets(nothing, nothing, nothing, none, none, none)
    ends = np.linspace(0.0, seconds[-1], count + 1)[1:]
    at = np.minimum(np.searchsorted(seconds, ends), len(seconds) - 1)
    return TimelineBuckets(
        ends,
        _spread(seconds, compute_s, ends),
        _spread(seconds, memory_s, ends),
        kv_tokens[at],
        running[at],
        answered[at],
    )


def resampled(timeline: TimelineBuckets, ends: Floats) -> TimelineBuckets:
    """Return the timeline in other buckets; after its end nothing runs any more.

    Within a bucket of the old ones answers are taken to come evenly.
    """
    at = np.minimum(np.searchsorted(timeline.seconds, ends), len(timeline.seconds) - 1)
    over = ends > timeline.seconds[-1] * (1 + 1e-9)
    return TimelineBuckets(
        ends,
        _spread(timeline.seconds, timeline.compute_s, ends),
        _spread(timeline.seconds, timeline.memory_s, ends),
        np.where(over, 0, timeline.kv_tokens[at]),
        np.where(over, 0, timeline.running[at]),
        np.rint(_until(timeline.seconds, timeline.answered, ends)).astype(np.int64),
    )


def _spread(seconds: Floats, amounts: Floats, ends: Floats) -> Floats:
    """Return the part of *amounts* that falls into each bucket."""
    return np.diff(_until(seconds, np.cumsum(amounts), ends), prepend=0.0)


def _until(seconds: Floats, sums: Floats | Ints, ends: Floats) -> Floats:
    """Return what *sums*, 0 at first and so much at *seconds*, are at other moments."""
    found: Floats = np.interp(ends, np.r_[0.0, seconds], np.r_[0.0, sums])
    return found
