"""One thing that `blend doctor` looks at: is it as it should be, and what helps if not?"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """What was found of one thing; ``remedy`` is what helps where it is not ok."""

    name: str
    state: State
    found: str
    remedy: str | None = None


def ok(name: str, found: str) -> Check:
    """Return that a thing is as it should be."""
    return Check(name, "ok", found)


def warn(name: str, found: str, remedy: str) -> Check:
    """Return that a thing may make trouble."""
    return Check(name, "warn", found, remedy)


def fail(name: str, found: str, remedy: str) -> Check:
    """Return that something will not work."""
    return Check(name, "fail", found, remedy)


def gigabytes(size_bytes: float) -> str:
    """Return a size in GB, with a digit more where it is small."""
    size = size_bytes / 1e9
    return f"{size:,.2f} GB" if size < 1 else f"{size:,.1f} GB"


def disk_check(name: str, folder: Path, *, needed_bytes: float, scarce_bytes: float) -> Check:
    """Return whether the disk of *folder*, or of what will hold it, has room."""
    there = next(one for one in (folder, *folder.parents) if one.exists())
    try:
        free_bytes = shutil.disk_usage(there).free
    except OSError as error:
        return fail(name, f"{folder}: {error.strerror}", "check the path and its permissions")
    found = f"{gigabytes(free_bytes)} free at {folder}"
    if free_bytes < needed_bytes:
        lacking = f"{found}, about {gigabytes(needed_bytes)} are needed"
        return fail(name, lacking, "free some space, or move it to a larger disk")
    if free_bytes < scarce_bytes:
        return warn(name, found, "free some space: a full disk stops a run, which can be resumed")
    return ok(name, found)
