"""What can a half-typed word of a command become? Jobs, custom_ids, policies, devices.

Called for each press of Tab: nothing heavy is imported, and what goes wrong completes to nothing.
"""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import typer

from blend.core.errors import BlendError

ASKED = "_BLEND_COMPLETE"
"""The variable by which a shell asks; its words are in others."""

SHOWN_IDS = 50
_PLAIN = re.compile(r"[\w.:/@+=,-]+")


def completed_words() -> list[str] | None:
    """Return the words of the command line that is being completed; None where none is."""
    if ASKED not in os.environ:
        return None
    typed = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    return typed.split()


def jobs(incomplete: str) -> list[str]:
    """Return the job files that the word can become; none leaves it to the shell's own files."""
    folder, begun = os.path.split(incomplete)
    with suppress(OSError):
        names = sorted(path.name for path in Path(folder or ".").iterdir())
        return [
            os.path.join(folder, name)  # noqa: PTH118 - a Path would drop the `./` that was typed
            for name in names
            if name.endswith(".blend") and name.startswith(begun)
        ]
    return []


def custom_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the custom_ids of the job before it, those that a shell takes as they are."""
    from blend.store.job import Job

    if ctx.params.get("what") != "request" or not ctx.params.get("job_path"):
        return []
    with suppress(BlendError, OSError), Job.open(Path(ctx.params["job_path"]), wait_s=0.2) as job:
        found = job.ids_from(incomplete, most=SHOWN_IDS)
        return [one for one in found if _PLAIN.fullmatch(one)]
    return []


def policies(incomplete: str) -> list[str]:
    """Return the policies that the last of several names, parted by commas, can become."""
    from blend.core.schedule import POLICIES

    before, comma, _ = incomplete.rpartition(",")
    named = before.split(",")
    return [f"{before}{comma}{one}" for one in ("all", *POLICIES) if one not in named]


def devices(incomplete: str) -> Sequence[str]:
    """Return the devices that are known by name and begin so."""
    from blend.core.planning.hardware import hardware_names

    return [one for one in hardware_names() if one.startswith(incomplete)]


def commands(incomplete: str) -> list[str]:
    """Return the commands whose name begins so."""
    from blend.cli.commands import COMMANDS

    return [one for one in COMMANDS if one.startswith(incomplete)]
