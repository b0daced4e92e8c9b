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
from blend.core.engines.vllm import kept_compiled
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
    from blend.core.engines.ray_replicas import opened_cluster

    count, on_cpu = options.replicas, on.name == "cpu" or not gpu_name()
    gpus = 0 if on_cpu or options.name == "sim" else parallel_of(options).devices
    cores = _cores(count) if options.name == "vllm" and not gpus else [[]] * count
    where = f"the cluster at {options.ray_address}" if options.ray_address else "this machine"
    logger.info(f"starting {counted(count, 'replicas')} on Ray: {plain(where)}")
    with opened_cluster(
        options.ray_address, replicas=count, cores=max(len(cores[0]), 1), gpus=gpus
    ) as cluster:

        def opened() -> ReplicaSet:
            return ReplicaSet(
                lambda number: cluster.start(start(number), _environment(cores[number])),
                count,
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


def _cores(count: int) -> list[list[int]]:
    """Return the processors of each replica: equal parts of ours, shared where they are too few."""
    ours = sorted(os.sched_getaffinity(0))
    each = max(len(ours) // count, 1)
    return [[ours[(number * each + core) % len(ours)] for core in range(each)]
            for number in range(count)]  # fmt: skip


def _environment(cores: list[int]) -> dict[str, str]:
    """Return what a replica's engine finds in its environment beside what Ray sets."""
    found = {name: os.environ.get(name, value) for name, value in kept_compiled().items()}
    if cores:
        bound = ",".join(map(str, cores))
        found["VLLM_CPU_OMP_THREADS_BIND"] = os.environ.get("VLLM_CPU_OMP_THREADS_BIND", bound)
        found["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", str(len(cores)))
    return found
