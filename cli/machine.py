"""Which machine is this? The GPU that nvidia-smi names, or a generic CPU."""

import subprocess

from blend.core.planning.hardware import (
    DEFAULT_HARDWARE,
    Hardware,
    hardware_for_gpu,
    hardware_preset,
)


def gpu_name() -> str | None:
    """Return the name of the first GPU, None where there is none."""
    try:
        listed = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    names = listed.stdout.strip().splitlines()
    return names[0].strip() if names else None


def this_hardware(name: str | None) -> Hardware:
    """Return the preset called *name*, or the one of this machine's first GPU, or a CPU's."""
    if name:
        return hardware_preset(name)
    gpu = gpu_name()
    return (gpu and hardware_for_gpu(gpu)) or hardware_preset(DEFAULT_HARDWARE)
