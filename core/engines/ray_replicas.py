"""Replicas as Ray actors: each an engine in a process of its own, on this machine or on others.

An engine ends with its actor as it does with any parent, and an actor with the driver. What an
actor is made of is plain until it has seen that its `blend` is ours: records of another version
cannot be read.
"""

import os
import pickle
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from blend.core.engines import Aborted, Capacity, Engine, EngineDiedError, StepReport
from blend.core.engines.ray_head import RayHead
from blend.core.errors import MISMATCH, RESUMABLE, BlendError, ExitCode
from blend.core.request import Request

_LEAVE_S = 5.0


@dataclass(frozen=True, slots=True)
class Death:
    """What is sent of an engine's death."""

    reason: str
    log: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """What is sent of an engine that refused to start."""

    message: str
    hint: str | None
    exit_code: ExitCode


HostArguments = tuple[str, bytes, dict[str, str], int, int]


def host_arguments(
    engine: Callable[[], Engine], environment: Mapping[str, str], number: int, cores: int
) -> HostArguments:
    """Return what a ReplicaHost is made of.

    It starts *engine* in an *environment*, bound to so many *cores* of its machine, 0 for all.
    """
    return version("blend-batch"), pickle.dumps(engine), dict(environment), number, cores


class ReplicaHost:
    """The actor: holds an engine and does with it what it is told; deaths are sent, not raised."""

    def __init__(
        self, wanted: str, engine: bytes, environment: Mapping[str, str], number: int, cores: int
    ):
        self._refusal = _refusal(wanted)
        if self._refusal is None:
            os.environ.update(_bound(cores, number) | dict(environment))
            try:
                self._engine: Engine = pickle.loads(engine)()
            except BlendError as error:
                self._refusal = Refusal(error.message, error.hint, error.exit_code)

    def ready(self) -> Capacity | Refusal | Death:
        """Wait until the engine runs."""
        if self._refusal is not None:
            return self._refusal
        try:
            self._engine.wait_ready()
        except BlendError as error:
            return Refusal(error.message, error.hint, error.exit_code)
        except EngineDiedError as death:
            return Death(death.reason, death.log)
        return self._engine.capacity

    def step(self, requests: Sequence[Request], pace: int | None) -> StepReport | Death:
        """Submit *requests* and take a step."""
        try:
            for request in requests:
                self._engine.submit(request)
            self._engine.pace(pace)
            return self._engine.step()
        except EngineDiedError as death:
            return Death(death.reason, death.log)

    def ages(self) -> Mapping[int, int] | Death:
        """Say how far the requests inside are."""
        try:
            return self._engine.ages()
        except EngineDiedError as death:
            return Death(death.reason, death.log)

    def abort(self) -> Aborted | Death:
        """Drop every request inside."""
        try:
            return self._engine.abort()
        except EngineDiedError as death:
            return Death(death.reason, death.log)

    def close(self) -> None:
        """Stop the engine."""
        self._engine.close()


def _refusal(wanted: str) -> Refusal | None:
    """Return why this machine cannot take part: its `blend` is not of the *wanted* version."""
    if (there := version("blend-batch")) == wanted:
        return None
    return Refusal(
        f"blend {there} is installed on {socket.gethostname()}, and {wanted} here",
        _SAME.format(wanted),
        MISMATCH,
    )


_SAME = "`pip install 'blend-batch[ray]=={}'` on every machine of the cluster"


def _bound(cores: int, number: int) -> dict[str, str]:
    """Return what binds the engine of a *number* to so many cores beside others of its machine."""
    if not cores:
        return {}
    ours = sorted(os.sched_getaffinity(0))
    first = _place_here(number) * cores
    mine = [ours[core % len(ours)] for core in range(first, first + cores)]
    return {
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, mine)),
        "OMP_NUM_THREADS": str(cores),
    }


def _place_here(number: int) -> int:
    """Return how many replicas on this machine come before that of a *number*."""
    import ray
    from ray.util import get_current_placement_group, placement_group_table

    here = ray.get_runtime_context().get_node_id()
    nodes = placement_group_table(get_current_placement_group())["bundles_to_node_id"]
    return sum(node == here and other < number for other, node in nodes.items())


class RayReplica:
    """A Replica that lives in an actor of the cluster that a *head* leads."""

    def __init__(self, ray: Any, actor: Any, head: RayHead):
        self._ray = ray
        self._actor = actor
        self._head = head
        self._ready = actor.ready.remote()
        self._capacity: Capacity | None = None
        self.step_ref: Any = None

    def wait_ready(self, timeout_s: float | None = None) -> bool:
        """Wait until the engine runs, but no longer than *timeout_s*; say whether it does."""
        if self._capacity is None:
            ready, _ = self._ray.wait([self._ready], timeout=timeout_s)
            if not ready:
                self._head.look()
                return False
            said = self._said(self._ready)
            if isinstance(said, Refusal):
                raise BlendError(said.message, hint=said.hint, exit_code=said.exit_code)
            self._capacity = said
        return True

    @property
    def capacity(self) -> Capacity:
        """What the engine can hold; waits until it runs."""
        self.wait_ready()
        assert self._capacity is not None
        return self._capacity

    def begin(self, requests: Sequence[Request], pace: int | None) -> None:
        """Submit *requests* and begin a step."""
        self.step_ref = self._actor.step.remote(requests, pace)

    def ended(self) -> StepReport:
        """Return what the step has moved."""
        ref, self.step_ref = self.step_ref, None
        report: StepReport = self._said(ref)
        return report

    def ages(self) -> Mapping[int, int]:
        """Return the output tokens of each row inside, behind its step."""
        ages: Mapping[int, int] = self._said(self._actor.ages.remote())
        return ages

    def abort(self) -> Aborted:
        """Drop every request inside and say what came of them."""
        aborted: Aborted = self._said(self._actor.abort.remote())
        return aborted

    def close(self) -> None:
        """Stop the engine, and its process."""
        ray = self._ray
        with suppress(ray.exceptions.RayError):
            if self._capacity is not None:
                # All have to be told before Ray ends us, too, for want of a head.
                leave_s = _LEAVE_S if self._head.answers else 0
                ray.get(self._actor.close.remote(), timeout=leave_s)
        with suppress(ray.exceptions.RayError):
            ray.kill(self._actor)

    def _said(self, ref: Any) -> Any:
        """Return what the actor has answered; EngineDiedError where its engine or itself died."""
        errors = self._ray.exceptions
        try:
            said = self._ray.get(ref)
        # A large answer lies on the machine that gave it, and is lost with it.
        except (errors.RayActorError, errors.ObjectLostError) as error:
            if self._capacity is None and _never_began(error):
                raise _cannot_start(error) from error
            raise EngineDiedError("its process is gone") from error
        except errors.RayTaskError as error:
            if self._capacity is None:
                raise _cannot_start(error) from error
            raise
        if isinstance(said, Death):
            raise EngineDiedError(said.reason, log=said.log)
        return said


def _never_began(error: Exception) -> bool:
    return getattr(error, "actor_init_failed", False) or _NEVER_RAN in str(error)


_NEVER_RAN = "never ran"


def _cannot_start(error: Exception) -> BlendError:
    """Return what to say of a machine on which a replica cannot be made."""
    *_, last = str(error).strip().splitlines()
    hint = _SAME.format(version("blend-batch"))
    if _NEVER_RAN in last:
        # So it is when only one of both sides asks for a token; Ray takes up one that lies about.
        hint = f"`RAY_AUTH_MODE=disabled` where the cluster asks for no token; {hint}"
    return BlendError(
        f"a replica cannot start on its machine: {last.strip().rstrip('.')}",
        hint=hint,
        exit_code=RESUMABLE,
    )
