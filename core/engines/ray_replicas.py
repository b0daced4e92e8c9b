"""Replicas as Ray actors: each an engine in a process of its own, on this machine or on others.

Without an address a cluster of this machine alone is started, quiet and small, which ends with us:
Ray ties its processes to the one that started it, and all of them have our scratch folder in their
environment, by which what is left is found (`scratch`). An engine ends with its actor as it does
with any parent, and an actor with the driver. Ray is imported when a cluster is opened.
"""

import importlib.util
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blend.core.engines import Aborted, Capacity, Engine, EngineDiedError, StepReport
from blend.core.engines.replicas import Replica
from blend.core.engines.scratch import end_processes, make_scratch
from blend.core.errors import RESUMABLE, BlendError, ExitCode
from blend.core.request import Request

OBJECT_STORE_BYTES = 80 << 20
"""Ray takes no less than 75 MiB; what goes through it are requests and answers."""

LONGEST_FOLDER = 30
"""Ray's sockets lie 76 bytes below their folder, and Unix allows a name of 107."""

_LEAVE_S = 5.0

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # A job that fills the memory is for the system to judge, not for Ray.
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Ray gives way to all other work by default; an engine is the work.
    "RAY_worker_niceness": "0",
}


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


class ReplicaHost:
    """The actor: holds an engine and does with it what it is told; deaths are sent, not raised."""

    def __init__(self, start: Callable[[], Engine], environment: Mapping[str, str]):
        os.environ.update(environment)
        self._engine = start()

    def ready(self) -> Capacity | Refusal | Death:
        """Wait until the engine runs."""
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

    def abort(self) -> Aborted | Death:
        """Drop every request inside."""
        try:
            return self._engine.abort()
        except EngineDiedError as death:
            return Death(death.reason, death.log)

    def close(self) -> None:
        """Stop the engine."""
        self._engine.close()


class RayReplica:
    """A Replica that lives in an actor."""

    def __init__(self, ray: Any, actor: Any):
        self._ray = ray
        self._actor = actor
        self._ready = actor.ready.remote()
        self._capacity: Capacity | None = None
        self.step_ref: Any = None

    def wait_ready(self, timeout_s: float | None = None) -> bool:
        """Wait until the engine runs, but no longer than *timeout_s*; say whether it does."""
        if self._capacity is None:
            ready, _ = self._ray.wait([self._ready], timeout=timeout_s)
            if not ready:
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

    def abort(self) -> Aborted:
        """Drop every request inside and say what came of them."""
        aborted: Aborted = self._said(self._actor.abort.remote())
        return aborted

    def close(self) -> None:
        """Stop the engine, and its process."""
        ray = self._ray
        with suppress(ray.exceptions.RayError):
            if self._capacity is not None:
                ray.get(self._actor.close.remote(), timeout=_LEAVE_S)
        with suppress(ray.exceptions.RayError):
            ray.kill(self._actor)

    def _said(self, ref: Any) -> Any:
        """Return what the actor has answered; EngineDiedError where its engine or itself died."""
        try:
            said = self._ray.get(ref)
        except self._ray.exceptions.RayActorError as error:
            raise EngineDiedError("its process is gone") from error
        if isinstance(said, Death):
            raise EngineDiedError(said.reason, log=said.log)
        return said


class RayCluster:
    """Where actors are started: *cores* and *gpus* are for each of them."""

    def __init__(self, ray: Any, *, cores: int, gpus: int):
        self._ray = ray
        self._needs = {"num_cpus": cores, "num_gpus": gpus, "max_restarts": 0}

    def start(self, engine: Callable[[], Engine], environment: Mapping[str, str]) -> RayReplica:
        """Start an actor with an engine, and do not wait for either."""
        host = self._ray.remote(**self._needs)(ReplicaHost)
        return RayReplica(self._ray, host.remote(engine, dict(environment)))

    def wait(self, replicas: Sequence[Replica], timeout_s: float) -> Sequence[Replica]:
        """Return the replicas whose step has ended, after *timeout_s* seconds at the latest."""
        by_ref = {one.step_ref: one for one in replicas if isinstance(one, RayReplica)}
        refs = list(by_ref)
        if not refs or not self._ray.wait(refs, timeout=timeout_s)[0]:
            return ()
        ended, _ = self._ray.wait(refs, num_returns=len(refs), timeout=0)
        return [by_ref[ref] for ref in ended]


@contextmanager
def opened_cluster(
    address: str | None, *, replicas: int, cores: int = 1, gpus: int = 0
) -> Iterator[RayCluster]:
    """Join the cluster at *address*, or start one here, for so many actors; leave it at the end.

    ``cores`` and ``gpus`` are for each actor. Raises BlendError where Ray is not installed, cannot
    be started or joined, or has too little.
    """
    ray = _imported()
    scratch = None if address else make_scratch(_short_folder())
    try:
        with _kept_signals():
            if scratch is None:
                _init(ray, address=address)
            else:
                with _environment({"TMPDIR": str(scratch)}):
                    _init(ray, address="local", **_small(scratch, cores=cores * replicas))
        _require(ray, gpus * replicas)
        yield RayCluster(ray, cores=cores, gpus=gpus)
    finally:
        ray.shutdown()
        if scratch is not None:
            end_processes(scratch)
            shutil.rmtree(scratch, ignore_errors=True)


def _imported() -> Any:
    if importlib.util.find_spec("ray") is None:
        raise BlendError(
            "several replicas need Ray, which is not installed",
            hint="`pip install 'blend-batch[ray]'`, or leave `--data-parallel-size` out",
        )
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    import ray

    return ray


def _init(ray: Any, **settings: Any) -> None:
    quiet = {"logging_level": "ERROR", "log_to_driver": False, "configure_logging": True}
    try:
        ray.init(**settings, **quiet)
    except (ConnectionError, RuntimeError, ValueError, OSError, TimeoutError) as error:
        what = settings["address"]
        raise BlendError(
            f"the Ray cluster cannot be joined: {what}: {error}"
            if what != "local"
            else f"no Ray can be started: {error}",
            hint="`ray status` shows the clusters of this machine; `ray start --head` starts one",
            exit_code=RESUMABLE,
        ) from error


def _small(scratch: Path, *, cores: int) -> dict[str, Any]:
    return {
        "num_cpus": cores,
        "include_dashboard": False,
        "object_store_memory": OBJECT_STORE_BYTES,
        "_temp_dir": str(scratch),
    }


def _require(ray: Any, gpus: int) -> None:
    there = int(ray.cluster_resources().get("GPU", 0))
    if there < gpus:
        raise BlendError(
            f"the replicas need {gpus} GPUs, and the Ray cluster has {there}",
            hint="fewer replicas with `--data-parallel-size`, or more machines in the cluster",
        )


def _short_folder() -> str | None:
    """Return where the scratch folder is to lie: None for the usual place, unless that is deep."""
    return "/tmp" if len(tempfile.gettempdir()) > LONGEST_FOLDER else None


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Have *values* in the environment that processes started meanwhile inherit."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _kept_signals() -> Iterator[None]:
    """Leave the handlers of signals as they are: Ray puts its own in the place of ours."""
    ours = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for one, handler in ours.items():
            signal.signal(one, handler)
