"""What steps cost on this machine: measured by runs, or calibrated; kept for the plans to come.

An entry is of a model in its data types, on a device, and so many of them. What enough of the last
runs has measured goes before what was calibrated, and that before the device's own figures.
"""

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np

from blend.cli.engine_options import EngineOptions, parallel_in
from blend.cli.job_model import shape_of
from blend.cli.machine import device_name, this_hardware
from blend.cli.profile_store import Entry, Section, change_entry, keep_entry, read_section
from blend.cli.wording import counted, significant
from blend.core.planning.engine_model import EngineModel, StepCosts, engine_model
from blend.core.planning.hardware import ALONE, ModelShape, Parallel
from blend.core.planning.profile import (
    KEPT_LINES,
    Measured,
    Profile,
    columns_of,
    fit,
    measured_of,
    thinned,
)
from blend.core.planning.ways import free_tokens
from blend.store.job import Job, Run

REPLICAS = "data-parallel-size"
"""Where a run's settings say how many replicas it had."""

KEPT_RUNS = 8
"""So many runs say together what steps cost, at the speed of the last."""
TRUSTED_LINES = 20
"""Of runs, before they go before a calibration."""


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


def save_profile(key: str, profile: Profile, runs: Mapping[str, Measured] | None = None) -> None:
    """Keep *profile*, and the *runs* that it was fitted to; a full disk keeps nothing."""
    keep_entry("profiles", key, _entry(profile, runs or {}))


def keep_run(key: str, began: str, run: Measured, *, knee_tokens: float) -> None:
    """Fit what steps cost anew, with one more run, or with more of the run that *began* then.

    Runs follow each other as the words for when they began do. A run too short to tell anything
    alone counts with others.
    """

    def with_run(known: Entry) -> Entry | None:
        runs = dict(sorted((_runs_in(known) | {began: run}).items())[-KEPT_RUNS:])
        profile = fit(*runs.values(), knee_tokens=knee_tokens)
        return _entry(profile, runs) if profile else None

    if len(run):
        change_entry("profiles", key, with_run)


def _entry(profile: Profile, runs: Mapping[str, Measured]) -> Entry:
    lines = {
        name: np.stack(columns_of(thinned(run, KEPT_LINES)), axis=1).tolist()
        for name, run in runs.items()
    }
    return asdict(profile) | {"runs": lines}


def _runs_in(entry: Entry) -> dict[str, Measured]:
    try:
        tables = {
            name: np.array(lines, np.float64).reshape(-1, 5)
            for name, lines in entry.get("runs", {}).items()
        }
    except (AttributeError, TypeError, ValueError):
        return {}
    return {name: Measured(*table.T) for name, table in tables.items()}


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
    """Return what is known of vLLM's steps on this machine, else what the job's runs measured."""
    ran = _runs_here(job, options)
    if options.name == "vllm":
        if ran and ran[-1].outcome is None:
            # What goes on has measured how fast the machine is now; what has ended is kept.
            _keep_run(job, ran[-1], options, engine)
        known = known_profile(profile_key(engine.model, parallel_of(options)))
        if known is not None:
            return known
    measured = [measured_in(job, run.id) for run in ran[-KEPT_RUNS:]]
    return fit(*measured, knee_tokens=free_tokens(engine))


def keep_profile(job: Job, options: EngineOptions) -> None:
    """Keep what the job's last run measured on this machine."""
    device = this_hardware(None)
    shape = shape_of(job, options.arguments, on_cpu=device.name == "cpu")
    _keep_run(job, _runs_here(job, options)[-1], options, engine_model(device, shape))


def _runs_here(job: Job, options: EngineOptions) -> list[Run]:
    host = os.uname().nodename
    return [run for run in job.runs() if (run.engine, run.host) == (options.name, host)]


def _keep_run(job: Job, run: Run, options: EngineOptions, engine: EngineModel) -> None:
    keep_run(
        profile_key(engine.model, parallel_of(options)),
        moment(run.started),
        measured_in(job, run.id),
        knee_tokens=free_tokens(engine),
    )


def moment(unix_time: float) -> str:
    """Return a time as the name of the run that began then."""
    return f"{unix_time:.6f}"


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
    return f"{significant(fixed)} ms a step, {significant(1000 * costs.token_s)} ms a token{riding}"
