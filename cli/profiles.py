"""What steps cost on this machine: measured by runs, or calibrated; kept for the plans to come.

An entry is of a model in its data types, on a device, and so many of them. What enough of a run has
measured goes before what was calibrated, and that before the device's own figures.
"""

import os
from dataclasses import asdict
from pathlib import Path

from blend.cli.engine_options import EngineOptions, parallel_in
from blend.cli.job_model import shape_of
from blend.cli.machine import device_name, this_hardware
from blend.cli.profile_store import Section, keep_entry, read_section
from blend.cli.wording import counted
from blend.core.planning.engine_model import EngineModel, StepCosts, engine_model
from blend.core.planning.hardware import ALONE, ModelShape, Parallel
from blend.core.planning.profile import Measured, Profile, fit, measured_of
from blend.core.planning.ways import free_tokens
from blend.store.job import Job

REPLICAS = "data-parallel-size"
"""Where a run's settings say how many replicas it had."""

ENOUGH_LINES = 60
LATER_SHARE = 0.5
"""What was measured later counts more, unless it has less than this share of the steps."""
TRUSTED_LINES = 20
"""Of a run, before it goes before a calibration."""


def profile_key(model: ModelShape, parallel: Parallel = ALONE, *, device: str | None = None) -> str:
    """Return what a profile is of: a model in its data types, on this machine's devices."""
    shape = f"{model.parameters:.0f} parameters, {model.weight_bytes:.0f} B"
    where = f"{parallel.tensor} x {device or device_name()}"
    stages = f" in {parallel.stages} stages" if parallel.stages > 1 else ""
    return f"{shape}, {model.kv_bytes_per_token:.0f} B/token on {where}{stages}"


def load_profile(
    key: str, section: Section = "profiles", *, path: Path | None = None
) -> Profile | None:
    """Return the profile under *key* in a section of the file, None where there is none."""
    entry = read_section(section, path).get(key)
    if entry is None:
        return None
    try:
        costs = StepCosts(**entry["costs"])
        known = {name: entry[name] for name in ("lines", "steps", "seconds", "error")}
        return Profile(costs, **known, source=entry.get("source", "runs"))
    except (KeyError, TypeError):
        return None


def known_profile(key: str) -> Profile | None:
    """Return the best that is known under *key*: of enough of a run, calibrated, or of little.

    An engine that ran for this alone, after the run, goes before it.
    """
    ran, calibrated = load_profile(key), load_profile(key, "calibrated")
    if ran is None or calibrated is None:
        return ran or calibrated
    later = _measured_at(key, "calibrated") > _measured_at(key, "profiles")
    if ran.lines < TRUSTED_LINES or (calibrated.source == "engine" and later):
        return calibrated
    return ran


def _measured_at(key: str, section: Section) -> float:
    return float(read_section(section).get(key, {}).get("measured", 0.0))


def save_profile(key: str, profile: Profile) -> None:
    """Keep *profile*, unless one of far more steps is there; a full disk keeps nothing.

    By steps, not by lines, which a run has more of the slower it was.
    """
    known = load_profile(key)
    few = known is not None and profile.steps < LATER_SHARE * known.steps
    if few and profile.lines < ENOUGH_LINES:
        return
    keep_entry("profiles", key, asdict(profile))


def save_calibrated(key: str, profile: Profile) -> None:
    """Keep a calibrated profile; one of layers alone does not replace one of an engine."""
    known = load_profile(key, "calibrated")
    if known is not None and (known.source, profile.source) == ("engine", "torch"):
        return
    keep_entry("calibrated", key, asdict(profile))


def measured_in(job: Job, run: int) -> Measured:
    """Return what the timeline of a run measured of one engine's steps."""
    lines = job.steps(run)
    columns = ("seconds", "steps", "prefill_tokens", "decode_tokens", "kv_tokens")
    measured = [[float(getattr(line, name)) for name in columns] for line in lines]
    replicas = next((int(r.settings.get(REPLICAS, 1)) for r in job.runs() if r.id == run), 1)
    # Replicas' steps are added up, their clocks go beside each other, and the cache is all theirs.
    return measured_of(
        [[line[0] * replicas, *line[1:4], line[4] / replicas] for line in measured]
        if replicas > 1
        else measured
    )


def best_profile(job: Job, options: EngineOptions, engine: EngineModel) -> Profile | None:
    """Return what the job's last run here has measured, unless what is known counts more."""
    host = os.uname().nodename
    ran = [run.id for run in job.runs() if (run.engine, run.host) == (options.name, host)]
    found = fitted(job, ran[-1], engine) if ran else None
    if options.name != "vllm":
        return found
    known = known_profile(profile_key(engine.model, parallel_of(options)))
    if found is None or (known and _counts_more(known, found)):
        return known or found
    return found


def _counts_more(known: Profile, found: Profile) -> bool:
    return found.steps < LATER_SHARE * known.steps or found.lines < TRUSTED_LINES


def keep_profile(job: Job, options: EngineOptions) -> None:
    """Keep what the job's last run measured on this machine."""
    device = this_hardware(None)
    shape = shape_of(job, options.arguments, on_cpu=device.name == "cpu")
    engine = engine_model(device, shape)
    if (found := fitted(job, job.runs()[-1].id, engine)) is not None:
        save_profile(profile_key(engine.model, parallel_of(options)), found)


def parallel_of(options: EngineOptions) -> Parallel:
    """Return how devices share the model."""
    return parallel_in(options.arguments)


def measured_line(profile: Profile) -> str:
    """Return what steps cost, and how that is known."""
    known = {
        "runs": f"steps as measured in {counted(profile.steps)} of them",
        "engine": "steps as calibrated on an engine",
        "torch": "steps as calibrated on the model's layers",
    }
    return f"{known[profile.source]}: {costs_in_words(profile.costs)}"


def costs_in_words(costs: StepCosts) -> str:
    """Return what a step costs, for a person."""
    free = costs.weights_s / costs.token_s if costs.token_s else 0.0
    riding = f", the first {free:,.0f} tokens free" if free >= 1.0 else ""
    fixed = 1000 * (costs.overhead_s + costs.weights_s)
    return f"{fixed:.3g} ms a step, {1000 * costs.token_s:.3g} ms a token{riding}"


def fitted(job: Job, run: int, engine: EngineModel) -> Profile | None:
    """Return what a step cost in a run, None where too little was measured."""
    return fit(measured_in(job, run), knee_tokens=free_tokens(engine))
