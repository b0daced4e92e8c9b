"""The file of profiles: what was learnt of this machine, kept for the plans to come.

One JSON file for each user, `$BLEND_PROFILES` or `blend/profiles.json` in the cache folder:

    profiles    what steps cost by model and device, as runs have measured it; the last runs' lines
    calibrated  the same, as `blend calibrate` has
    machines    what a device can do for any model

It is written beside itself and renamed, so that it is whole at any moment, by one process at a
time, so that nothing is lost; one that cannot be read counts as empty.
"""

import fcntl
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

FORMAT = 1

Section = Literal["profiles", "calibrated", "machines"]
Entry = Mapping[str, Any]
Entries = Mapping[str, Entry]

_TURN_S, _POLL_S = 5.0, 0.02


def profiles_path() -> Path:
    """Return where the profiles lie."""
    if named := os.environ.get("BLEND_PROFILES"):
        return Path(named)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    try:
        return cache.expanduser() / "blend" / "profiles.json"
    except RuntimeError:  # a user without a home, as in a container
        return Path(tempfile.gettempdir()) / f"blend-profiles-{os.getuid()}.json"


def read_section(section: Section, path: Path | None = None) -> Entries:
    """Return the entries of a section by their keys, none where the file cannot be read."""
    entries = _read(path or profiles_path()).get(section, {})
    return entries if isinstance(entries, dict) else {}


def keep_entry(section: Section, key: str, entry: Entry) -> bool:
    """Put *entry* into a section, with the time; False where the disk or the file refuse."""
    return change_entry(section, key, lambda _: entry)


def change_entry(section: Section, key: str, change: Callable[[Entry], Entry | None]) -> bool:
    """Put what *change* makes of an entry in its place, as `keep_entry` does; None leaves it.

    An entry that is not there is empty.
    """
    path = profiles_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _turn(path):
            entry = change(read_section(section, path).get(key, {}))
            if entry is not None:
                write_entries(path, {section: {key: entry}}, known=_read(path))
    except OSError:
        # Only a convenience for later plans; what it was measured in has its results.
        return False
    return True


def write_entries(
    path: Path, entries: Mapping[Section, Entries], *, known: Mapping[str, Any] | None = None
) -> None:
    """Write a file of profiles with *entries* among those *known*; OSError where that fails."""
    sections = {name: dict(found) for name, found in (known or {}).items()}
    for section, by_key in entries.items():
        stamped = {key: dict(entry) | {"measured": time.time()} for key, entry in by_key.items()}
        sections[section] = sections.get(section, {}) | stamped
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        beside.write_text(json.dumps({"format": FORMAT} | sections), "utf-8")
        beside.replace(path)
    except OSError:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


def _read(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
        sections = found if found.pop("format") == FORMAT else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    return {name: entries for name, entries in sections.items() if isinstance(entries, dict)}


@contextmanager
def _turn(path: Path) -> Iterator[None]:
    """Wait until no other process writes; after a few seconds go on all the same."""
    with path.with_name(f"{path.name}.lock").open("a") as file:
        until_s = time.monotonic() + _TURN_S
        while not _locked(file.fileno()) and time.monotonic() < until_s:
            time.sleep(_POLL_S)
        yield


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
