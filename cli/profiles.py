"""What steps cost on this machine, as its runs have measured: kept for the plans to come.

One JSON file for each user, `$BLEND_PROFILES` or `blend/profiles.json` in the cache folder, with an
entry for each model, its data types, the device and how many of them. It is written beside itself
and renamed, so that it is whole at any moment; one that cannot be read counts as none.
"""

import json
import os
import platform
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from blend.cli.console import counted
from blend.cli.job_model import shape_of
from blend.cli.machine import gpu_name, this_hardware
from blend.cli.options import EngineOptions, whole_number
from blend.core.planning.engine_model import EngineModel, StepCosts, engine_model
from blend.core.planning.hardware import ModelShape
from blend.core.planning.profile import Measured, Profile, fit, measured_of
from blend.core.planning.ways import free_tokens
from blend.store.job import Job

FORMAT = 1
ENOUGH_LINES = 60


def profiles_path() -> Path:
    """Return where the profiles lie."""
    if named := os.environ.get("BLEND_PROFILES"):
        return Path(named)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    try:
        return cache.expanduser() / "blend" / "profiles.json"
    except RuntimeError:  # a user without a home, as in a container
        return Path(tempfile.gettempdir()) / f"blend-profiles-{os.getuid()}.json"


def profile_key(model: ModelShape, *, devices: int = 1) -> str:
    """Return what a profile is of: a model in its data types, on this machine's devices."""
    device = gpu_name() or f"{platform.machine()} x {os.cpu_count()}"
    shape = f"{model.parameters:.0f} parameters, {model.weight_bytes:.0f} B"
    return f"{shape}, {model.kv_bytes_per_token:.0f} B/token on {devices} x {device}"


def load_profile(key: str) -> Profile | None:
    """Return the profile under *key*, None where there is none."""
    entry = _read().get(key)
    if entry is None:
        return None
    try:
        costs = StepCosts(**entry["costs"])
        return Profile(
            costs, **{name: entry[name] for name in ("lines", "steps", "seconds", "error")}
        )
    except (KeyError, TypeError):
        return None


def save_profile(key: str, profile: Profile) -> None:
    """Keep *profile*, unless one that more was measured for is there; a full disk keeps nothing."""
    known = load_profile(key)
    if known is not None and profile.lines < min(known.lines, ENOUGH_LINES):
        return
    entries = dict(_read()) | {key: asdict(profile) | {"measured": time.time()}}
    path = profiles_path()
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(json.dumps({"format": FORMAT, "profiles": entries}, indent=1), "utf-8")
        beside.replace(path)
    except OSError:
        # Only a convenience for later plans; the run it was measured in has its results.
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def _read() -> Mapping[str, Any]:
    try:
        found = json.loads(profiles_path().read_text("utf-8"))
        entries = found["profiles"] if found["format"] == FORMAT else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return entries if isinstance(entries, dict) else {}


def measured_in(job: Job, run: int) -> Measured:
    """Return what the timeline of a run measured."""
    lines = job.steps(run)
    columns = ("seconds", "steps", "prefill_tokens", "decode_tokens", "kv_tokens")
    return measured_of([[getattr(line, name) for name in columns] for line in lines])


def best_profile(job: Job, options: EngineOptions, engine: EngineModel) -> Profile | None:
    """Return what was measured with most lines: in the job's last run here, or before."""
    host = os.uname().nodename
    ran = [run.id for run in job.runs() if (run.engine, run.host) == (options.name, host)]
    found = [fitted(job, ran[-1], engine)] if ran else []
    if options.name == "vllm":
        found.append(load_profile(profile_key(engine.model, devices=devices_of(options))))
    return max((one for one in found if one), key=lambda one: one.lines, default=None)


def keep_profile(job: Job, options: EngineOptions) -> None:
    """Keep what the job's last run measured on this machine."""
    device = this_hardware(None)
    shape = shape_of(job, options.arguments, on_cpu=device.name == "cpu")
    engine = engine_model(device, shape)
    if (found := fitted(job, job.runs()[-1].id, engine)) is not None:
        save_profile(profile_key(engine.model, devices=devices_of(options)), found)


def devices_of(options: EngineOptions) -> int:
    """Return how many devices share the model."""
    return whole_number(options.arguments, "tensor-parallel-size", 1)


def measured_line(profile: Profile) -> str:
    """Return what steps were measured to cost, and in how many."""
    costs = _costs_in_words(profile.costs)
    return f"steps as measured in {counted(profile.steps)} of them: {costs}"


def _costs_in_words(costs: StepCosts) -> str:
    """Return what a step costs, for a person."""
    free = costs.weights_s / costs.token_s if costs.token_s else 0.0
    riding = f", the first {free:,.0f} tokens free" if free >= 1.0 else ""
    fixed = 1000 * (costs.overhead_s + costs.weights_s)
    return f"{fixed:.3g} ms a step, {1000 * costs.token_s:.3g} ms a token{riding}"


def fitted(job: Job, run: int, engine: EngineModel) -> Profile | None:
    """Return what a step cost in a run, None where too little was measured."""
    return fit(measured_in(job, run), knee_tokens=free_tokens(engine))
