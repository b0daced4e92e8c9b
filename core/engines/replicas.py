"""Several engines behind the seam of one: each a replica of the model, all at work at once.

Which replica a row goes to and how fast each computes prompts is said by whoever scans, through
the `Placement` that both hold. A replica that dies takes nothing with it but what was inside: the
report names those rows as lost, the others go on, and a fresh replica starts in its place. The
invariant: a row that was submitted is answered, or lost with its replica, exactly once.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

from blend.core.engines import (
    Aborted,
    Capacity,
    EngineDiedError,
    Lost,
    Part,
    StepReport,
    silence,
    total,
)
from blend.core.errors import BlendError
from blend.core.request import Request

POLL_S = 1.0
"""After so long without a word of any replica, a step reports that there was none."""

MAX_RESTARTS = 3
"""Fresh replicas in a place, in a row without an answer, before it is left empty."""


class Replica(Protocol):
    """An engine that takes its step elsewhere, while the caller does something else."""

    def wait_ready(self, timeout_s: float | None = None) -> bool:
        """Wait until it runs, but no longer than *timeout_s*; say whether it does.

        Raises BlendError when it refuses to start, EngineDiedError when it died while starting.
        """
        ...

    @property
    def capacity(self) -> Capacity:
        """What it can hold; it must run."""
        ...

    def begin(self, requests: Sequence[Request], pace: int | None) -> None:
        """Submit *requests* and begin a step at most so fast; it has ended the one before."""
        ...

    def ended(self) -> StepReport:
        """Return what the step has moved; waits for it. Raises EngineDiedError."""
        ...

    def ages(self) -> Mapping[int, int]:
        """Return the output tokens of each row inside, behind its step. Raises EngineDiedError."""
        ...

    def abort(self) -> Aborted:
        """Drop every request inside and say what came of them. Raises EngineDiedError."""
        ...

    def close(self) -> None:
        """Stop it, with all that it has started."""
        ...


@dataclass(slots=True)
class Placement:
    """Which replica each row goes to, and the pace of each replica."""

    of_row: dict[int, int] = field(default_factory=dict)
    pace: dict[int, int | None] = field(default_factory=dict)


@dataclass(slots=True)
class _Place:
    """One replica's place: who is in it, and what was given to it."""

    replica: Replica | None
    running: bool = False
    stepping: bool = False
    inside: set[int] = field(default_factory=set)
    queued: list[Request] = field(default_factory=list)
    last: StepReport | None = None
    restarts: int = 0


class ReplicaSet:
    """An Engine of *count* replicas; ``start`` starts the one of a number, without waiting.

    ``wait`` returns those of the replicas given to it whose step has ended, after so many seconds
    at the latest. ``say`` is told of replicas that are lost.
    """

    pid = None

    def __init__(
        self,
        start: Callable[[int], Replica],
        count: int,
        *,
        wait: Callable[[Sequence[Replica], float], Sequence[Replica]],
        say: Callable[[str], None] = lambda _: None,
        max_restarts: int = MAX_RESTARTS,
    ):
        self.placement = Placement()
        self._start = start
        self._wait = wait
        self._say = say
        self._max_restarts = max_restarts
        self._death: EngineDiedError | None = None
        self._places = [_Place(start(number)) for number in range(count)]

    def __len__(self) -> int:
        return len(self._places)

    @property
    def living(self) -> list[int]:
        """The numbers of the replicas that run."""
        return [number for number, place in enumerate(self._places) if place.running]

    def capacity_of(self, number: int) -> Capacity:
        """Return what the replica of a number can hold; it must run."""
        replica = self._places[number].replica
        assert replica is not None
        return replica.capacity

    def last_of(self, number: int) -> StepReport | None:
        """Return what the replica of a number has reported last."""
        return self._places[number].last

    def wait_ready(self, timeout_s: float | None = None) -> bool:
        """Wait until all run, for *timeout_s* each at most; say whether they do.

        Raises BlendError when one refuses to start, EngineDiedError when one died while starting.
        """
        for place in self._places:
            if not place.running and place.replica is not None:
                place.running = place.replica.wait_ready(timeout_s)
        return all(place.running or place.replica is None for place in self._places)

    @property
    def capacity(self) -> Capacity:
        """What one replica can hold; the others are like it. Waits until they run."""
        while not self.wait_ready(POLL_S):
            pass
        return self.capacity_of(self.living[0])

    def submit(self, request: Request) -> None:
        """Queue one request at the replica that the placement names."""
        place = self._places[self.placement.of_row[request.row]]
        place.inside.add(request.row)
        place.queued.append(request)

    def pace(self, prefill_tokens: int | None) -> None:
        """Do nothing: each replica has its own pace, in the placement."""

    def step(self) -> StepReport:
        """Wait until something moved in any replica, for a second at most, and say what.

        Raises EngineDiedError when no replica is left that runs.
        """
        if self._death is not None:
            raise self._death
        self._look_for_fresh()
        for number in self.living:
            place = self._places[number]
            if place.inside and not place.stepping:
                self._begin(number)
        parts, lost = self._what_ended()
        if not self.living:
            # What was inside is lost with the set; the answers that came before it count.
            self._death = lost[-1].death
            if not parts:
                raise self._death
            lost = []
        return self._together(parts, lost)

    def ages(self) -> Mapping[int, int]:
        """Return the output tokens that each row inside has, over all its sequences.

        Waits for the steps that have begun; what they have answered, or lost, is missing.
        """
        ages: dict[int, int] = {}
        for place in (self._places[number] for number in self.living):
            queued = {request.row for request in place.queued}
            if place.inside - queued:
                assert place.replica is not None
                # A death is told by the next step.
                with suppress(EngineDiedError):
                    ages |= place.replica.ages()
            ages |= dict.fromkeys(queued, 0)
        return ages

    def abort(self) -> Aborted:
        """Drop every request inside and say what came of them; the replicas can be used on."""
        parts: list[Part] = []
        lost: list[Lost] = []
        tokens: dict[int, int] = {}
        for number in self.living:
            place = self._places[number]
            try:
                if place.stepping:
                    parts.append(Part(number, self._ended(place)))
                queued = {request.row for request in place.queued}
                if place.inside - queued:
                    assert place.replica is not None
                    aborted = place.replica.abort()
                    place.last = aborted.report
                    parts.append(Part(number, aborted.report))
                    tokens |= aborted.tokens
                tokens |= dict.fromkeys(queued, 0)
            except EngineDiedError as death:
                lost.append(self._lose(number, death))
            place.inside.clear()
            place.queued.clear()
        return Aborted(self._together(parts, lost), tokens)

    def close(self) -> None:
        """Stop all replicas; requests in flight are dropped."""
        for place in self._places:
            if place.replica is not None:
                place.replica.close()
            place.replica, place.running, place.stepping = None, False, False

    def _what_ended(self) -> tuple[list[Part], list[Lost]]:
        """Wait for steps to end, for a second at most, and return what they moved and lost."""
        stepping = {number: place for number, place in enumerate(self._places) if place.stepping}
        replicas = [place.replica for place in stepping.values() if place.replica is not None]
        ended = {id(one) for one in self._wait(replicas, POLL_S)}
        parts: list[Part] = []
        lost: list[Lost] = []
        for number, place in stepping.items():
            if id(place.replica) in ended:
                try:
                    parts.append(Part(number, self._ended(place)))
                except EngineDiedError as death:
                    lost.append(self._lose(number, death))
        return parts, lost

    def _begin(self, number: int) -> None:
        place = self._places[number]
        assert place.replica is not None
        place.replica.begin(tuple(place.queued), self.placement.pace.get(number))
        place.queued.clear()
        place.stepping = True

    def _ended(self, place: _Place) -> StepReport:
        assert place.replica is not None
        place.stepping = False
        report = place.replica.ended()
        place.last = report
        place.inside.difference_update(completion.row for completion in report.completions)
        if any(not completion.failed for completion in report.completions):
            place.restarts = 0
        return report

    def _lose(self, number: int, death: EngineDiedError) -> Lost:
        """Take a replica out that died, and start a fresh one in its place."""
        place = self._places[number]
        lost = Lost(number, tuple(sorted(place.inside)), death)
        if place.replica is not None:
            place.replica.close()
        fresh = _Place(None, restarts=place.restarts + 1)
        self._places[number] = fresh
        given = f"; its {len(lost.rows):,} unfinished requests are given back" if lost.rows else ""
        again = ""
        if self.living and fresh.restarts <= self._max_restarts:
            fresh.replica = self._start(number)
            again = ", and another starts"
        self._say(f"replica {number + 1}: {death.reason}{given}{again}")
        return lost

    def _look_for_fresh(self) -> None:
        """Take in the replicas that have come to run; one that does not is not tried for ever."""
        for number, place in enumerate(self._places):
            if place.running or place.replica is None:
                continue
            try:
                place.running = place.replica.wait_ready(0)
            except (BlendError, EngineDiedError) as error:
                self._lose(number, EngineDiedError(str(error)))

    def _together(self, parts: Sequence[Part], lost: Sequence[Lost]) -> StepReport:
        """Return the reports of some replicas as one, its gauges those of all."""
        summed = total([part.report for part in parts] or [silence(None)])
        lasts = [place.last or silence(None) for place in self._places]
        return replace(
            summed,
            running=sum(last.running for last in lasts),
            waiting=sum(last.waiting for last in lasts),
            kv_tokens=sum(last.kv_tokens for last in lasts),
            # Their clocks go beside each other.
            seconds=summed.seconds / max(len(self.living), 1),
            silent=summed.silent and not lost,
            parts=tuple(part for part in parts if not part.report.silent),
            lost=tuple(lost),
        )
