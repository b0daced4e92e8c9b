"""What runs in a simulated engine while the plan is made, handed over to the plan's scanner."""

from typing import TYPE_CHECKING, Any

import numpy as np

from blend.core.engines import StepReport
from blend.core.running.carried import Carried, open_carrying
from blend.core.schedule import Schedule

if TYPE_CHECKING:
    from blend.core.planning.virtual_run import World


def handed_over(schedule: Schedule, world: "World", engine: Any) -> Any:
    """Return the state of a blending *schedule*'s scanner, which counts all inside *engine*."""
    from blend.core.running.blend_scan import BlendScanner  # numba is slow to import

    ones = np.ones(len(world.prompts), np.int64)
    scanner = open_carrying(
        schedule,
        prompt_tokens=world.prompts,
        sequences=ones,
        capacity=world.engine.capacity,
        carried=Carried(ages_of(engine), ones, _gauges(engine)),
    )
    assert isinstance(scanner, BlendScanner)
    return scanner.state


def ages_of(engine: Any) -> dict[int, int]:
    """Return the output tokens of each row inside."""
    from blend.core.kernels.engine import DECODE, WAITING

    rows = engine.rows[:-1]
    inside = np.flatnonzero((rows["state"] >= WAITING) & (rows["state"] <= DECODE))
    one = rows[inside]
    # What a row that decodes has is known from the step in which it began.
    since = np.where(one["state"] == DECODE, engine.now[0]["step"] - one["since"], 0)
    ages = one["tokens"] - one["prompt"] + since
    return dict(zip(inside.tolist(), ages.tolist(), strict=True))


def _gauges(engine: Any) -> StepReport:
    from blend.core.kernels.engine import waiting

    now, limits = engine.now[0], engine.limits
    held = int(limits.blocks - now["free"]) * limits.block_tokens
    return StepReport((), int(now["running"]), int(waiting(engine)), held, 0, 0, 0, 0, 0, 0.0)
