"""Is the installed vLLM one that blend is tested with?

Answered without importing vLLM, which takes seconds: its modules move between releases, so that
one outside the tested range may fail in any way, or answer differently.
"""

import re
from importlib.util import find_spec
from pathlib import Path

FIRST_RELEASE = (0, 26)
LAST_RELEASE = (0, 33)

_VERSION = re.compile(r"__version__\s*(?:=\s*version\s*)?=\s*['\"](?P<version>[^'\"]+)['\"]")


def is_installed() -> bool:
    """Return whether there is a vLLM to import."""
    return find_spec("vllm") is not None


def installed_version() -> str | None:
    """Return the version of the installed vLLM; None where there is none, or it does not say."""
    spec = find_spec("vllm")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).with_name("_version.py")
    found = _VERSION.search(path.read_text()) if path.is_file() else None
    return found["version"] if found else None


def untested(version: str | None) -> str | None:
    """Return what to tell a person who has this *version*, None when it is tested."""
    release = re.match(r"(\d+)\.(\d+)", version or "")
    if not release or FIRST_RELEASE <= (int(release[1]), int(release[2])) <= LAST_RELEASE:
        return None
    return f"vLLM {version} is installed, but blend is tested with {tested_range()}"


def tested_range() -> str:
    """Return the first and the last release that blend is tested with."""
    first, last = (".".join(map(str, release)) for release in (FIRST_RELEASE, LAST_RELEASE))
    return f"{first} to {last}"
