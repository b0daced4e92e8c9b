"""`blend calibrate`: measure this machine for the plans to come, or learn it from a job's runs."""

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from blend.cli.calibrating import (
    calibration_model,
    learn_from,
    measure_engine,
    sheet_of,
    torch_device,
)
from blend.cli.completion import jobs
from blend.cli.console import err, inert, print_json, warn
from blend.cli.machine import CALIBRATED, datasheet, device_name, processor_name
from blend.cli.measured_layers import measure_layers
from blend.cli.options import JsonOption
from blend.cli.profile_store import keep_entry, profiles_path, write_entries
from blend.cli.profiles import load_profile, moment, profile_key, save_calibrated, save_profile
from blend.cli.views.calibration import Learnt, document, draw
from blend.cli.wording import counted, percent
from blend.core.errors import RESUMABLE, BlendError
from blend.core.planning.profile import TOLERATED, Validated
from blend.store.job import Job

DeviceChoice = Literal["cpu", "cuda", "auto"]

BUSY_SHARE = 0.5
"""Of the processors, what others may use before it is said."""

QUIET = "stop what else runs on this machine, and run the same command again"


def calibrate_command(
    job: Annotated[
        Path | None,
        typer.Argument(
            metavar="JOB",
            autocompletion=jobs,
            help="Learn from what the runs of this job have measured here.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="M",
            help="Measure the layers of this model, a folder or a preset; a small one if absent.",
        ),
    ] = None,
    device: Annotated[DeviceChoice, typer.Option(help="What to measure.")] = "auto",
    seconds: Annotated[float, typer.Option(min=1, help="Seconds to measure for, about.")] = 120.0,
    engine_steps: Annotated[
        bool,
        typer.Option(
            "--engine-steps",
            help="Start vLLM on the model's folder, too, and measure the steps that it takes.",
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the profile there as well."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure what this machine can do, for plans and simulations, or learn it from a job."""
    if job is not None:
        learnt = _learnt_from(job, model, engine_steps=engine_steps)
    else:
        _say_if_busy()
        learnt = _measured(model, device, seconds=seconds, engine_steps=engine_steps)
        _say_if_busy()
    if as_json:
        print_json(document(learnt))
    else:
        draw(learnt)
    _keep(learnt, output)


def _learnt_from(path: Path, model: str | None, *, engine_steps: bool) -> Learnt:
    if model is not None or engine_steps:
        raise BlendError(
            "a job has its own model and its own runs",
            hint="give either the job, or `--model` and `--engine-steps`",
        )
    with Job.open(path) as job:
        key, found = learn_from(job, hardware=datasheet())
        return Learnt(device_name(), str(job.meta("model")), key, found)


def _measured(
    named: str | None, choice: DeviceChoice, *, seconds: float, engine_steps: bool
) -> Learnt:
    device = torch_device(choice)
    on_cpu = device == "cpu"
    model = calibration_model(named, on_cpu=on_cpu)
    where = processor_name() if on_cpu else device_name()
    sheet = sheet_of(device)
    # The default model is nobody's: it stands in for any.
    key = profile_key(model.shape(on_cpu=on_cpu), device=where) if named is not None else None
    steps: Validated | None = None
    if engine_steps:
        # Before the layers: what torch has taken of a GPU's memory here, vLLM would lack there.
        err.print("measuring the steps of vLLM, once it has started")
        steps = measure_engine(model, on_cpu=on_cpu, hardware=sheet, seconds=seconds / 2)
    err.print(f"measuring {inert(where)} with the layers of {inert(model.name)}")
    known = steps.profile if steps else load_profile(key or "")
    layers = measure_layers(
        model,
        device,
        seconds=seconds / 2 if engine_steps else seconds,
        hardware=sheet,
        engine=known.costs if known else None,
        tell=err.print,
    )
    figures = layers.figures
    # What it says to others of its kind no machine measures alone.
    machine = replace(
        sheet,
        flops=figures.flops,
        bandwidth_bytes_s=figures.bandwidth_bytes_s,
        source=CALIBRATED,
        step_overhead_s=figures.overhead_s,
        interference=figures.interference,
    )
    return Learnt(where, model.name, key, steps, layers, machine)


def _say_if_busy() -> None:
    cores, load = os.cpu_count() or 1, os.getloadavg()[0]
    if load > BUSY_SHARE * cores:
        warn(
            f"this machine is busy: a load of {load:.1f} on {counted(cores, 'processors')}; "
            "what is measured will be off"
        )


def _keep(learnt: Learnt, output: Path | None) -> None:
    """Keep what predicts what it did not see; BlendError where something does not."""
    entries = learnt.entries()
    if "machines" in entries:
        keep_entry("machines", learnt.device, entries["machines"][learnt.device])
    for found in (one.found for one in learnt.parts if one.found.holds):
        if learnt.key is not None:
            if found.profile.source == "runs":
                save_profile(learnt.key, found.profile, {moment(time.time()): found.measured})
            else:
                save_calibrated(learnt.key, found.profile)
    if output is not None and entries:
        write_entries(output, entries)
        err.print(f"written: {inert(str(output))}")
    for part in learnt.parts:
        if not part.found.holds:
            raise BlendError(
                f"not kept: the fit of {part.name} misses what it did not see by "
                f"{percent(part.found.held_out_error)} on the average, "
                f"{percent(TOLERATED)} are tolerated",
                hint=QUIET if learnt.layers else "`blend calibrate --model MODEL` needs no run",
                exit_code=RESUMABLE,
            )
    err.print(f"kept for `plan` and `simulate`: {inert(str(profiles_path()))}")
