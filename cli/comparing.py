"""How long would an open job take under each policy? Simulated; nothing in the job changes."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from blend.cli.job_model import require_rows, shape_of
from blend.cli.machine import CALIBRATED, device_in, is_file_of_profiles, this_hardware
from blend.cli.observing import find_followers, known_lengths
from blend.cli.profiles import known_profile, load_profile, measured_line, profile_key
from blend.core.errors import BlendError
from blend.core.planning.classes import Mode
from blend.core.planning.engine_model import EngineModel, engine_model
from blend.core.planning.hardware import ModelShape, Parallel, several
from blend.core.planning.profile import Profile, with_costs
from blend.core.planning.tree import build_tree
from blend.core.prompts import Prompts
from blend.core.schedule import POLICIES, Policy
from blend.store.job import Job

if TYPE_CHECKING:
    from blend.core.planning.outlook import Outlook

logger = logging.getLogger(__name__)

MEASURED = "measured"

SIMULATE_S = 120.0
"""The time after which a comparison draws no more."""


@dataclass(frozen=True, slots=True)
class SimulatedDevice:
    """The device that a job is simulated on, and how an engine would use it.

    ``hardware``: the name of a preset, ``measured``, ``calibrated`` or a file of profiles; the best
    that is known of this machine where it is None. ``devices`` share each layer of the model, and
    in each of ``stages`` there are so many; ``step_overhead_s`` is what a step takes beside compute
    and memory, as calibrated where None.
    ``replicas``: so many engines, each with its part of the job.
    """

    hardware: str | None = None
    devices: int = 1
    stages: int = 1
    mode: Mode = "sequential"
    step_overhead_s: float | None = None
    memory_fraction: float = 0.9
    max_sequences: int = 1024
    step_tokens: int = 8192
    dtype: str | None = None
    kv_cache_dtype: str | None = None
    replicas: int = 1

    @property
    def parallel(self) -> Parallel:
        """How the devices of one engine share the model."""
        return Parallel(self.devices, self.stages)


def engine_on(device: SimulatedDevice, job: Job) -> EngineModel:
    """Return an engine of the job's model on *device*, its steps as measured where they were."""
    hardware = this_hardware(None if device.hardware == MEASURED else device.hardware)
    held = {"dtype": device.dtype, "kv-cache-dtype": device.kv_cache_dtype}
    held["tensor-parallel-size"] = str(device.devices)
    shape = shape_of(job, held, on_cpu=hardware.name == "cpu")
    engine = engine_model(
        several(hardware, device.parallel),
        shape,
        mode=device.mode,
        max_sequences=device.max_sequences,
        step_tokens=device.step_tokens,
        context_tokens=int(job.meta("context_tokens") or 0),
        overhead_s=device.step_overhead_s,
        memory_fraction=device.memory_fraction,
    )
    profile = _profile(device.hardware, shape, device.parallel)
    if profile is None:
        return engine
    logger.info(measured_line(profile))
    return with_costs(engine, profile.costs)


def _profile(hardware: str | None, shape: ModelShape, parallel: Parallel) -> Profile | None:
    """Return what the steps of a model cost where it was measured on the device that is meant."""
    key = profile_key(shape, parallel)
    if hardware is None:
        return known_profile(key)
    if hardware == CALIBRATED:
        return load_profile(key, "calibrated")
    if hardware != MEASURED:
        if not is_file_of_profiles(hardware):
            return None
        path = Path(hardware)
        key = profile_key(shape, parallel, device=device_in(path))
        return load_profile(key, "calibrated", path=path)
    found = load_profile(key)
    if found is None:
        raise BlendError(
            f"no run of {shape.name} was measured on this machine",
            hint="`blend execute` measures as it runs; or name a device with `--hardware`",
        )
    return found


def _ignore_run(_runs: int) -> None:
    pass


def compare_policies(
    job: Job,
    engine: EngineModel,
    *,
    policies: Sequence[Policy] = POLICIES,
    draws: int = 5,
    seed: int = 0,
    replicas: int = 1,
    on_run: Callable[[int], None] | None = None,
) -> "Outlook":
    """Simulate the whole job from its start under each policy; nothing in the job changes.

    On so many ``replicas`` of the engine. After two minutes no further draw is made. ``on_run`` is
    told before each simulated run how many a draw has. Raises BlendError for a job without rows,
    and where the engine's cache cannot hold a prompt.
    """
    from blend.core.planning.compare import compare  # numba is slow to import

    require_rows(job)
    plan = job.plan()
    followers = find_followers(job, fan_out=plan is None or plan.settings.get("fan_out", True))
    prompts = job.prompts(followers.others(len(job)))
    _require_room(prompts, engine)
    observed = known_lengths(job, prompts)
    each, row = prompts.by_sequence()
    started_s = time.monotonic()
    return compare(
        each,
        build_tree(each),
        engine,
        policies=policies,
        observations=observed.at(row),
        draws=draws,
        seed=seed,
        replicas=replicas,
        wanted=lambda: time.monotonic() - started_s < SIMULATE_S,
        on_run=on_run or _ignore_run,
    )


def _require_room(prompts: Prompts, engine: EngineModel) -> None:
    held, hardware, model = engine.capacity.kv_tokens, engine.hardware, engine.model
    longest = int(prompts.lengths.max())
    # A block is not shared by what a prompt and its answer end with.
    if held >= longest + engine.capacity.block_tokens:
        return
    raise BlendError(
        f"{hardware.name} cannot run {model.name}: the KV cache beside its weights "
        f"({model.weight_bytes / 1e9:,.1f} GB) holds {held:,} tokens, "
        f"the longest prompt has {longest:,}",
        hint="more devices with `--tensor-parallel-size`, or another with `--hardware`",
    )
