"""What runs in a simulated engine while the plan is made, handed over to the plan's scanner.

By the objects that hand it over in an execution: until the scanner has named all that is inside,
steps are taken one by one, and then its state goes on as machine code.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from blend.core.completion import Completion
from blend.core.engines import StepReport
from blend.core.running.carried import Carried, CarryingScanner
from blend.core.schedule import Schedule

if TYPE_CHECKING:
    from blend.core.planning.virtual_run import World


def handed_over(
    schedule: Schedule, world: "World", engine: Any, step: Callable[[int | None], StepReport]
) -> Any:
    """Return the state of the scanner of *schedule*, with all counted that is inside *engine*.

    ``step`` runs the engine on at a pace and returns what it reports.
    """
    from blend.core.kernels.engine import submit
    from blend.core.running.blend_scan import BlendScanner

    ages, ones = ages_of(engine), np.ones(len(world.prompts), np.int64)
    inside = np.zeros(len(ones), np.bool_)
    inside[list(ages)] = True
    scanner = BlendScanner(
        schedule.beginning_with(inside),
        prompt_tokens=world.prompts,
        sequences=ones,
        capacity=world.engine.capacity,
    )
    carrying = CarryingScanner(scanner, Carried(ages, ones, _gauges(engine)))
    while True:
        for row in carrying.admit():
            submit(engine, row)
        if not carrying.unnamed:
            return scanner.state
        carrying.observe(step(carrying.pace))


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


def report_of(unheard: Any, at: int) -> StepReport:
    """Return the report at a place of the ring as an object; it says nothing of times."""
    report = unheard.reports[at]
    ended = slice(int(report["ended"]))
    pairs = zip(unheard.ended[at, ended].tolist(), unheard.answers[at, ended].tolist(), strict=True)
    done = tuple(Completion(row, 200, b"", completion_tokens=tokens) for row, tokens in pairs)
    return StepReport(
        done,
        running=int(report["running"]),
        waiting=int(report["waiting"]),
        kv_tokens=int(report["kv_tokens"]),
        steps=1,
        prefill_tokens=int(report["prefill"]),
        decode_tokens=int(report["decode"]),
        cached_tokens=0,
        preemptions=0,
        seconds=0.0,
        prefilled=int(report["prefilled"]),
    )


def _gauges(engine: Any) -> StepReport:
    from blend.core.kernels.engine import waiting

    now, limits = engine.now[0], engine.limits
    held = int(limits.blocks - now["free"]) * limits.block_tokens
    return StepReport((), int(now["running"]), int(waiting(engine)), held, 0, 0, 0, 0, 0, 0.0)
