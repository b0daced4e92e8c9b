"""Which engine runs a job, with which arguments, and how much trouble does a run bear with?"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from blend.core.errors import BlendError
from blend.core.planning.hardware import Parallel

EngineName = Literal["vllm", "openai", "sim"]
PacingName = Literal["step-budget", "gate", "none"]
Argument = str | float | bool | None


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
    not. ``replicas``: so many engines, on the Ray cluster at ``ray_address`` or one of our own.
    """

    name: EngineName
    arguments: Mapping[str, str | None] = field(default_factory=dict)
    seed: int = 0
    pacing: PacingName | None = None
    api_key: str | None = field(default=None, repr=False)
    tolerance: Tolerance = TOLERANCE
    replicas: int = 1
    ray_address: str | None = None


def engine_options(
    name: EngineName = "vllm",
    arguments: Mapping[str, Argument] | None = None,
    *,
    seed: int = 0,
    pacing: PacingName | None = None,
    api_key: str | None = None,
    tolerance: Tolerance = TOLERANCE,
    replicas: int = 1,
    ray_address: str | None = None,
) -> EngineOptions:
    """Return the choice of an engine; *arguments* are those of `vllm serve`, without their dashes.

    True is a bare flag, None and False leave an argument out; an underscore may stand for a dash.
    So many ``replicas`` need Ray, whose cluster is at ``ray_address`` or one of our own.
    Raises BlendError for what a server is told, where the engine is none.
    """
    given = {
        key.replace("_", "-"): None if value is True else str(value)
        for key, value in (arguments or {}).items()
        if value is not None and value is not False
    }
    for server in ("base-url", "concurrency"):
        if server in given and name != "openai":
            raise BlendError(f"`--{server}` is for a server", hint="add `--engine openai`")
    _refuse_replicas_elsewhere(name, replicas, ray_address, given)
    key = given.pop("api-key", None) or api_key
    key = key and key.strip()
    return EngineOptions(name, given, seed, pacing, key, tolerance, replicas, ray_address)


def _refuse_replicas_elsewhere(
    name: EngineName, replicas: int, ray_address: str | None, arguments: Mapping[str, str | None]
) -> None:
    if ray_address is not None and replicas == 1:
        raise BlendError(
            "`--ray-address` is for several replicas", hint="add `--data-parallel-size N`"
        )
    if replicas > 1 and name == "openai":
        raise BlendError(
            "`--data-parallel-size` is for engines of our own",
            hint="a server has its own replicas; leave the option out",
        )
    if "data-parallel-size" in arguments:
        raise BlendError(
            "vLLM's own data parallelism would take rows out of the plan's order",
            hint="use `--data-parallel-size N` without `--engine-arg`",
        )


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


def parallel_in(arguments: Mapping[str, str | None]) -> Parallel:
    """Return how the devices of an engine of these arguments share its model."""
    return Parallel(
        whole_number(arguments, "tensor-parallel-size", 1),
        whole_number(arguments, "pipeline-parallel-size", 1),
    )
