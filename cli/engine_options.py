"""Which engine runs a job, with which arguments, and how much trouble does a run bear with?"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from blend.core.errors import BlendError

EngineName = Literal["vllm", "openai", "sim"]
PacingName = Literal["step-budget", "gate", "none"]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How much trouble a run bears with.

    ``max_rebuilds``: fresh engines in a row without any new result; ``give_up_after``: so many
    first results that are all failures, 0 for any; ``stall_s``: an engine that is silent for so
    long hangs.
    """

    max_rebuilds: int = 3
    give_up_after: int = 100
    stall_s: float = 600.0


TOLERANCE = Tolerance()


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Which engine runs the job, and its arguments under vLLM's names (None: a bare flag).

    ``seed`` is that of the engine and of everything else that is drawn. ``pacing`` is None where
    the plan may choose. The arguments are stored with every run; the API key stands apart, and is
    not.
    """

    name: EngineName
    arguments: Mapping[str, str | None]
    seed: int
    pacing: PacingName | None = None
    api_key: str | None = field(default=None, repr=False)
    tolerance: Tolerance = TOLERANCE


def whole_number(arguments: Mapping[str, str | None], name: str, default: int) -> int:
    """Return the argument called *name* as a number; raise BlendError when it is none."""
    value = arguments.get(name)
    if value is None:
        return default
    if not value.isdecimal() or not int(value):
        raise BlendError(
            f"`{name}` must be a positive whole number: {value}",
            hint="correct it, or leave it out",
        )
    return int(value)
