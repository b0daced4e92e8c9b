"""Several replicas of a job's engine, each an actor of Ray: who starts them, and on what?"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from blend.cli.engine_options import EngineOptions
from blend.cli.job_model import shape_of
from blend.cli.machine import gpu_name
from blend.cli.profiles import parallel_of
from blend.cli.wording import counted, plain
from blend.core.engines import Engine
from blend.core.engines.replicas import ReplicaSet
from blend.core.engines.vllm_launch import kept_compiled
from blend.core.planning.hardware import Hardware, ModelShape
from blend.core.running.replica_scan import open_replica_scanner
from blend.core.running.seat import OpenScanner, Seat
from blend.store.job import Job

logger = logging.getLogger(__name__)


@contextmanager
def seated_replicas(
    job: Job, options: EngineOptions, start: Callable[[int], Callable[[], Engine]], *, on: Hardware
) -> Iterator[Seat]:
    """Start as many replicas as *options* ask for; *start* returns what starts that of a number.

    ``on``: the device of each. Raises BlendError where Ray is missing or has too little.
    """
    from blend.core.engines.ray_cluster import opened_cluster

    count, address = options.replicas, options.ray_address
    where = f"the cluster at {address}" if address else "this machine"
    logger.info(f"starting {counted(count, 'replicas')} on Ray: {plain(where)}")
    here = on.name != "cpu" and gpu_name() is not None
    # A cluster of our own is no larger than it need be: Ray starts a process for each processor.
    ours = count if here or options.name == "sim" else max(len(os.sched_getaffinity(0)), count)
    with opened_cluster(address, cpus=ours) as cluster:
        gpus = parallel_of(options).devices if (cluster.has_gpus if address else here) else 0
        bound = options.name == "vllm" and not gpus
        needs = {"CPU": cluster.fair_cores(count) if bound else 1}
        if gpus and options.name != "sim":
            needs["GPU"] = gpus
        environment = _environment(joined=address is not None)

        def opened() -> ReplicaSet:
            return ReplicaSet(
                lambda number: cluster.start(number, start(number), environment, bound=bound),
                cluster.place(count, needs),
                wait=cluster.wait,
                say=lambda text: logger.info(plain(text)),
            )

        shape = shape_of(job, options.arguments, on_cpu=on.name == "cpu")
        seat = Seat(opened, partial(_scanned, hardware=on, model=shape))
        try:
            yield seat
        finally:
            seat.close()


def _scanned(engine: Engine, *, hardware: Hardware, model: ModelShape) -> OpenScanner:
    assert isinstance(engine, ReplicaSet)
    return partial(open_replica_scanner, replicas=engine, hardware=hardware, model=model)


def _environment(*, joined: bool) -> dict[str, str]:
    """Return what a replica's engine finds in its environment beside what Ray sets.

    On a cluster that was *joined* that is what the machine has, but for what is set here.
    """
    ours = {"VLLM_CPU_OMP_THREADS_BIND", "OMP_NUM_THREADS", *kept_compiled()}
    defaults = {} if joined else kept_compiled()
    return defaults | {name: os.environ[name] for name in ours if name in os.environ}
