"""Replicas without processes of their own: simulated engines, each step taken when it is begun."""

from collections.abc import Callable, Mapping, Sequence

from blend.core.engines import Aborted, Capacity, Engine, EngineDiedError, StepReport
from blend.core.engines.replicas import Replica, ReplicaSet
from blend.core.request import Request


class LocalReplica:
    """An engine of this process as a replica; a death is told when the step has ended."""

    def __init__(self, engine: Engine, *, ready: bool = True):
        self.engine = engine
        self.ready = ready
        self.paces: list[int | None] = []
        self._ended: StepReport | EngineDiedError | None = None

    def wait_ready(self, timeout_s: float | None = None) -> bool:  # noqa: ARG002
        return self.ready

    @property
    def capacity(self) -> Capacity:
        return self.engine.capacity

    def begin(self, requests: Sequence[Request], pace: int | None) -> None:
        assert self._ended is None
        self.paces.append(pace)
        for request in requests:
            self.engine.submit(request)
        self.engine.pace(pace)
        try:
            self._ended = self.engine.step()
        except EngineDiedError as death:
            self._ended = death

    def ended(self) -> StepReport:
        ended, self._ended = self._ended, None
        if isinstance(ended, EngineDiedError):
            raise ended
        assert ended is not None
        return ended

    def ages(self) -> Mapping[int, int]:
        return self.engine.ages()

    def abort(self) -> Aborted:
        return self.engine.abort()

    def close(self) -> None:
        self.engine.close()


def local_set(start: Callable[[int], Engine], count: int, *, turns: bool = False) -> ReplicaSet:
    """A set of engines of this process.

    Of those that step the first ends first; in ``turns`` all end together.
    """

    def wait(replicas: Sequence[Replica], _timeout_s: float) -> Sequence[Replica]:
        return replicas if turns else replicas[:1]

    return ReplicaSet(lambda number: LocalReplica(start(number)), count, wait=wait)
