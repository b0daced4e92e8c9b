"""Where the actors of replicas run: a cluster of Ray that is there, or one of this machine alone.

Without an address one is started, quiet and small, which ends with us: Ray ties its processes to
the one that started it, and all of them have our scratch folder in their environment, by which
what is left is found (`scratch`). What replicas need is set aside before any starts, all or
nothing, and spread over the machines: a cluster without room is told at once, or after a bounded
wait where others use it. Ray is imported when a cluster is opened.
"""

import importlib.util
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from blend.core.engines import Engine
from blend.core.engines.ray_head import RayHead, connect
from blend.core.engines.ray_replicas import RayReplica, ReplicaHost, host_arguments
from blend.core.engines.replicas import Replica
from blend.core.engines.scratch import end_processes, make_scratch
from blend.core.errors import RESUMABLE, BlendError

OBJECT_STORE_BYTES = 80 << 20
"""Ray takes no less than 75 MiB; what goes through it are requests and answers."""

LONGEST_FOLDER = 30
"""Ray's sockets lie 76 bytes below their folder, and Unix allows a name of 107."""

PLACE_S = 30
"""So long is waited for what others use of a cluster that is large enough."""

Needs = Mapping[str, int]
"""What is set aside for one replica, none of it 0: so many ``CPU`` and ``GPU``."""

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # A job that fills the memory is for the system to judge, not for Ray.
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Ray gives way to all other work by default; an engine is the work.
    "RAY_worker_niceness": "0",
}


class RayCluster:
    """A cluster that we have joined, and the room that is set aside in it for replicas.

    Whatever is asked of it raises BlendError once its head is lost.
    """

    def __init__(self, ray: Any):
        self._ray = ray
        self._head = RayHead(ray.get_runtime_context().gcs_address)
        self._group: Any = None
        self._needs: Needs = {}

    @property
    def has_gpus(self) -> bool:
        """Whether any of its machines has a GPU."""
        return any(node.get("GPU", 0) >= 1 for node in self._nodes())

    def fair_cores(self, count: int) -> int:
        """Return the most processors, one at least, that *count* replicas can have each."""
        there = [int(node.get("CPU", 0)) for node in self._nodes()]
        for cores in range(sum(there) // count, 1, -1):
            if sum(of_node // cores for of_node in there) >= count:
                return cores
        return 1

    def place(self, count: int, needs: Needs) -> int:
        """Set *needs* aside for each of *count* replicas, and return for how many that was done.

        The first time for all of them; later, when machines may be gone, for as many as there is
        room for. Raises BlendError when there is too little.
        """
        self._head.wait()
        at_least = count if self._group is None else 1
        self._release()
        room = 0
        # In short waits: machines go meanwhile, and a second Ctrl-C ends it.
        for _ in range(PLACE_S):
            room = self._room(count, needs, at_least)
            if self._group is None or self._group.bundle_count != room:
                self._release()
                self._set_aside(room, needs)
            if self._group.wait(1):
                return room
        free = self._ray.available_resources()
        raise BlendError(
            f"{room} replicas need {_amounts(needs, room)}, and others use the Ray cluster: "
            f"free are {_amounts({name: int(free.get(name, 0)) for name in needs}, 1)}",
            hint="wait for them, or take fewer replicas with `--data-parallel-size`",
            exit_code=RESUMABLE,
        )

    def _room(self, count: int, needs: Needs, at_least: int) -> int:
        """Return for how many of *count* replicas the machines are large enough."""
        nodes = self._nodes()
        room = min(count, sum(_fitting(node, needs) for node in nodes))
        if room < at_least:
            raise BlendError(
                f"{count} replicas need {_amounts(needs, 1)} each, and the Ray cluster has "
                f"room for {room}: its machines have {_machines(nodes, needs)}",
                hint="fewer replicas with `--data-parallel-size`, or more machines in the cluster",
                exit_code=RESUMABLE,
            )
        return room

    def _set_aside(self, room: int, needs: Needs) -> None:
        self._group = self._ray.util.placement_group([dict(needs)] * room, strategy="SPREAD")
        self._needs = needs

    def start(
        self,
        number: int,
        engine: Callable[[], Engine],
        environment: Mapping[str, str],
        *,
        bound: bool = False,
    ) -> RayReplica:
        """Start an actor with an engine in the room of a *number*, and do not wait for either.

        A ``bound`` engine keeps to as many processors of its machine as are set aside for it.
        """
        self._head.wait()
        strategy = self._ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
            placement_group=self._group, placement_group_bundle_index=number
        )
        host = self._ray.remote(
            num_cpus=self._needs["CPU"],
            num_gpus=self._needs.get("GPU", 0),
            max_restarts=0,
            scheduling_strategy=strategy,
        )(ReplicaHost)
        cores = self._needs["CPU"] if bound else 0
        actor = host.remote(*host_arguments(engine, environment, number, cores))
        return RayReplica(self._ray, actor, self._head)

    def wait(self, replicas: Sequence[Replica], timeout_s: float) -> Sequence[Replica]:
        """Return the replicas whose step has ended, after *timeout_s* seconds at the latest."""
        self._head.look()
        by_ref = {one.step_ref: one for one in replicas if isinstance(one, RayReplica)}
        refs = list(by_ref)
        if not refs or not self._ray.wait(refs, timeout=timeout_s)[0]:
            return ()
        ended, _ = self._ray.wait(refs, num_returns=len(refs), timeout=0)
        return [by_ref[ref] for ref in ended]

    def _release(self) -> None:
        if self._group is not None:
            self._ray.util.remove_placement_group(self._group)
            self._group = None

    def _nodes(self) -> list[Needs]:
        return [node["Resources"] for node in self._ray.nodes() if node["Alive"]]


def _fitting(node: Needs, needs: Needs) -> int:
    """Return how many replicas there is room for on a node."""
    return min(int(node.get(name, 0)) // amount for name, amount in needs.items())


def _amounts(needs: Needs, count: int) -> str:
    """Return *count* times *needs* in words: `2 CPUs and 8 GPUs`."""
    counts = {name: int(amount * count) for name, amount in needs.items()}
    return " and ".join(f"{n} {name}{'s' * (n != 1)}" for name, n in counts.items())


def _machines(nodes: Sequence[Needs], needs: Needs) -> str:
    """Return what each node has of what is needed, in words: `2 CPUs, 4 CPUs`."""
    asked = [{name: node.get(name, 0) for name in needs} for node in nodes]
    return ", ".join(_amounts(one, 1) for one in asked)


@contextmanager
def opened_cluster(address: str | None, *, cpus: int) -> Iterator[RayCluster]:
    """Join the cluster at *address*, or start one of so many *cpus* here; leave it at the end.

    Raises BlendError where Ray is not installed, or the cluster cannot be started or joined.
    """
    _refuse_without_ray()
    if address and address != "auto":
        _refuse_silent(address)
    ray = _imported()
    scratch = None if address else make_scratch(_short_folder())
    try:
        with _kept_signals():
            if scratch is None:
                assert address is not None
                _join(ray, address)
            else:
                _start(ray, scratch, cpus)
        yield RayCluster(ray)
    finally:
        ray.shutdown()
        if scratch is not None:
            end_processes(scratch)
            shutil.rmtree(scratch, ignore_errors=True)


def _refuse_without_ray() -> None:
    if importlib.util.find_spec("ray") is None:
        raise BlendError(
            "several replicas need Ray, which is not installed",
            hint="`pip install 'blend-batch[ray]'`, or leave `--data-parallel-size` out",
        )


def _imported() -> Any:
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    import ray
    import ray.util.scheduling_strategies

    return ray


def _start(ray: Any, scratch: Path, cpus: int) -> None:
    ours = {
        "TMPDIR": str(scratch),
        # Else Ray leaves a token in the home folder, by which later clusters ask for one too.
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
    }
    with _environment(ours):
        try:
            _init(
                ray,
                address="local",
                num_cpus=cpus,
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                _temp_dir=str(scratch),
            )
        except Exception as error:
            # Ray raises plain ones, too, as where a machine is too busy to start it in time.
            raise BlendError(
                f"no Ray can be started: {error}",
                hint="`--data-parallel-size 1` goes without it",
                exit_code=RESUMABLE,
            ) from error


def _join(ray: Any, address: str) -> None:
    # One try: by default Ray takes twenty of 40 seconds for who answers and is no cluster.
    with _environment({"RAY_gcs_server_port_wait_time_s": "1"}):
        try:
            _init(ray, address=address)
        except Exception as error:
            raise BlendError(
                f"the Ray cluster cannot be joined: {address}: {_first_line(error)}",
                hint=_remedy(error),
                exit_code=RESUMABLE,
            ) from error


def _refuse_silent(address: str) -> None:
    """Refuse an *address* where nobody answers: Ray itself takes minutes to say so."""
    host, _, port = address.rpartition(":")
    if "/" in host or not host or not port.isdecimal():
        raise BlendError(
            f"no address of a Ray cluster: {address}",
            hint="`--ray-address HOST:PORT` as `ray start` has said it, or `auto` on a machine "
            "of the cluster",
        )
    try:
        connect(address)
    except (OSError, OverflowError) as error:
        raise BlendError(
            f"no Ray cluster answers: {address}: {error}",
            hint="`ray status` on its head says whether it runs; "
            "`ray start --head --port 6379` starts one",
            exit_code=RESUMABLE,
        ) from error


def _init(ray: Any, **settings: Any) -> None:
    ray.init(**settings, logging_level="ERROR", log_to_driver=False, configure_logging=True)


def _first_line(error: BaseException) -> str:
    """Return what Ray says, in one line: its list of versions is several."""
    return " ".join(str(error).split())


def _remedy(error: BaseException) -> str:
    causes = f"{error} {error.__cause__} {error.__context__}"
    if "uthentication" in causes:
        return (
            "the cluster asks for a token: set `RAY_AUTH_MODE=token`, and have the cluster's in "
            "`~/.ray/auth_token` or in `RAY_AUTH_TOKEN`"
        )
    if "Version mismatch" in causes:
        return "install the cluster's release of Ray, and its Python, beside `blend`"
    return "`blend` runs on a machine of the cluster: `ray status` there says whether it is one"


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
