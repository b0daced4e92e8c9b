"""Which machine is this? The GPU that nvidia-smi names, or a CPU; as calibrated where it was."""

import os
import platform
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from blend.cli.profile_store import profiles_path, read_section
from blend.core.command_line import command_line
from blend.core.errors import BlendError
from blend.core.planning.hardware import (
    DEFAULT_HARDWARE,
    Hardware,
    hardware_for_gpu,
    hardware_preset,
    stored_hardware,
)


def gpu_name() -> str | None:
    """Return the name of the first GPU, None where there is none."""
    names = listed_gpus("name", timeout_s=20)
    return names[0] if names else None


def listed_gpus(*fields: str, timeout_s: float) -> list[str] | None:
    """Return a line of *fields* for each GPU, none without nvidia-smi, None where it fails."""
    try:
        listed = subprocess.run(
            ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=True,
        )
    except FileNotFoundError:
        return []
    except (OSError, subprocess.SubprocessError):
        return None
    return [line.strip() for line in listed.stdout.splitlines() if line.strip()]


CALIBRATED = "calibrated"


def device_name() -> str:
    """Return what this machine computes on: its first GPU, or its processor and cores."""
    return gpu_name() or processor_name()


def processor_name() -> str:
    """Return what the processors of this machine are called, and how many they are."""
    return f"{platform.machine()} x {os.cpu_count()}"


def this_hardware(name: str | None) -> Hardware:
    """Return the preset called *name*, or of a file of profiles; without a name this machine.

    That is what was calibrated of it, else the datasheet of its first GPU or a generic CPU.
    BlendError where the name is of nothing.
    """
    if name == CALIBRATED:
        return _required(device_name(), None, "this machine was not calibrated")
    if name and is_file_of_profiles(name):
        device = device_in(Path(name))
        return _required(device, Path(name), f"no machine is described in {name}")
    if name:
        return hardware_preset(name)
    found, name = None, device_name()
    # Another version's entry with other fields counts as none.
    with suppress(KeyError, TypeError, ValueError):
        found = _calibrated(name, None)
    return found or datasheet()


def datasheet() -> Hardware:
    """Return the preset of this machine's first GPU, or of a generic CPU."""
    gpu = gpu_name()
    return (gpu and hardware_for_gpu(gpu)) or hardware_preset(DEFAULT_HARDWARE)


def is_file_of_profiles(name: str) -> bool:
    """Tell whether a name of a device is in fact a path."""
    return name.endswith(".json") or Path(name).is_file()


def device_in(path: Path) -> str:
    """Return the device that a file of profiles describes, "" for none."""
    return next(iter(read_section("machines", path)), "")


def _calibrated(device: str, path: Path | None) -> Hardware | None:
    entry: Mapping[str, Any] | None = read_section("machines", path).get(device)
    if entry is None:
        return None
    return replace(stored_hardware(entry["hardware"]), source=CALIBRATED)


def _required(device: str, path: Path | None, lacking: str) -> Hardware:
    hint = f"`{command_line('blend', 'calibrate')}` measures it"
    try:
        found = _calibrated(device, path)
    except (KeyError, TypeError, ValueError) as error:
        raise BlendError(
            f"{path or profiles_path()}: the entry of {device} cannot be used: {error}", hint=hint
        ) from None
    if found is None:
        raise BlendError(lacking, hint=hint)
    return found
