"""Is this machine fit to run jobs? Versions, devices, disks, limits, and what is known of it.

Nothing heavy is imported: versions are those of the installed packages.
"""

import os
import resource
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from blend.cli.health import Check, disk_check, fail, gigabytes, ok, warn
from blend.cli.machine import listed_gpus, processor_name
from blend.cli.profile_store import profiles_path, read_section
from blend.cli.wording import counted
from blend.core.engines.scratch import left_behind
from blend.core.engines.vllm_version import installed_version, tested_range, untested

OLDEST_PYTHON = (3, 11)
OLDEST_SQLITE = (3, 37)  # strict tables
LEAST_OPEN_FILES = 1024
LEAST_SHARED_BYTES = 256e6
SCARCE_BYTES = 5e9
SECONDS_A_DAY = 86_400


def machine_checks() -> Iterator[Check]:
    """Yield what there is to say of this machine, for whatever job."""
    yield from _versions()
    gpus = listed_gpus("name", "memory.total", "driver_version", timeout_s=5)
    yield _device(gpus)
    yield _memory()
    temporary = Path(tempfile.gettempdir())
    yield disk_check("disk, temporary", temporary, needed_bytes=50e6, scarce_bytes=1e9)
    yield _shared_memory(Path("/dev/shm"))
    yield _open_files()
    yield from _model_cache()
    yield _profile(gpus[0].split(",")[0] if gpus else processor_name())
    yield _left_behind()


def _versions() -> Iterator[Check]:
    python = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info >= OLDEST_PYTHON:
        yield ok("python", python)
    else:
        yield fail("python", python, "install Python 3.11 or newer")
    yield ok("blend", version("blend-batch"))
    yield _vllm()
    for name in ("torch", "transformers"):
        found = _installed(name)
        if found is None:
            yield fail(name, "not installed", "`pip install 'blend-batch[gpu]'` brings it")
        else:
            yield ok(name, found)
    if sqlite3.sqlite_version_info >= OLDEST_SQLITE:
        yield ok("sqlite", sqlite3.sqlite_version)
    else:
        yield fail("sqlite", sqlite3.sqlite_version, "use a Python with SQLite 3.37 or newer")


def _vllm() -> Check:
    found = installed_version() or _installed("vllm")
    if found is None:
        return warn(
            "vllm",
            "not installed: only `--engine openai` and `--engine sim` run here",
            "`pip install 'blend-batch[gpu]'` brings it",
        )
    if words := untested(found):
        return warn("vllm", words, f"install one of {tested_range()} if something goes wrong")
    return ok("vllm", f"{found}, tested: {tested_range()}")


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _device(gpus: list[str] | None) -> Check:
    if gpus is None:
        return warn("device", "nvidia-smi does not answer", "reload the driver, or reboot")
    return ok("device", "; ".join(gpus) or f"no GPU, {processor_name()}")


def _memory() -> Check:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return ok("memory", f"{gigabytes(total)}, {gigabytes(free)} of it unused")


def _shared_memory(folder: Path) -> Check:
    if not folder.is_dir():
        return ok("shared memory", "no /dev/shm on this system")
    usage = shutil.disk_usage(folder)
    found = f"{gigabytes(usage.free)} free of {gigabytes(usage.total)} at {folder}"
    if usage.free < LEAST_SHARED_BYTES:
        return warn("shared memory", found, "in a container: `--shm-size=2g`, or `--ipc=host`")
    return ok("shared memory", found)


def _open_files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= LEAST_OPEN_FILES:
        return ok("open files", "unlimited" if soft == resource.RLIM_INFINITY else counted(soft))
    return warn("open files", f"{counted(soft)} at most", f"`ulimit -n {min(hard, 65536)}`")


def hub_cache() -> Path:
    """Return the folder in which the model hub's client keeps what it fetched."""
    if named := os.environ.get("HF_HUB_CACHE"):
        return Path(named)
    if home := os.environ.get("HF_HOME"):
        return Path(home) / "hub"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    with suppress(RuntimeError):  # a user without a home, as in a container
        cache = cache.expanduser()
    return cache / "huggingface" / "hub"


def _model_cache() -> Iterator[Check]:
    cache = hub_cache()
    try:
        there = sorted(cache.glob("models--*")) if cache.is_dir() else []
    except PermissionError:
        yield warn("model cache", f"{cache}: may not be read", "set HF_HOME to a folder of yours")
        return
    yield ok("model cache", f"{counted(len(there), 'models')} in {cache}")
    yield disk_check("disk, model cache", cache, needed_bytes=0, scarce_bytes=SCARCE_BYTES)


def _profile(device: str) -> Check:
    path = profiles_path()
    machine = read_section("machines").get(device)
    models = {
        key
        for section in ("profiles", "calibrated")
        for key in read_section(section)
        if key.endswith(f"x {device}")
    }
    known = f"steps of {counted(len(models), 'models')} known in {path}"
    if machine is None:
        return warn("profile", f"not calibrated; {known}", "`blend calibrate` on a quiet machine")
    days = int((time.time() - float(machine.get("measured", 0.0))) // SECONDS_A_DAY)
    when = "today" if days < 1 else f"{counted(days, 'days')} ago"
    return ok("profile", f"calibrated {when}; {known}")


def _left_behind() -> Check:
    folders = left_behind()
    if not folders:
        return ok("left behind", "no engine of a dead blend")
    named = ", ".join(str(folder) for folder in folders)
    return warn(
        "left behind",
        f"{counted(len(folders), 'folders')} of engines whose blend is dead: {named}",
        "the next start of vLLM by `blend` clears them away",
    )
