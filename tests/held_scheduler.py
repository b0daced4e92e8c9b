"""vLLM's scheduler, paced as ours, which computes nothing until it is let: then it does not matter
how fast requests arrive, or how fast anybody is.

Built by vLLM in the process of its engine core.
"""

import mmap
import os
import time
from pathlib import Path
from typing import Any

from blend.core.engines.vllm_pace import paced_scheduler

SCHEDULER = f"{__name__}.held_scheduler"
HOLD_VARIABLE = "TESTS_HOLD"
"""Names the file of the hold."""

AWAITED, ALLOWED, TAKEN, TOKENS, ARRIVED = range(5)
FREE = 0


class Hold:
    """What a test and the scheduler tell each other, in a file that both have mapped.

    ``AWAITED``: requests that must be inside before the next step. ``ALLOWED``: the steps that may
    be taken in all, or FREE. ``TAKEN``, ``TOKENS``, ``ARRIVED``: steps taken, tokens computed and
    requests that came, so far.
    """

    def __init__(self, path: Path):
        with path.open("r+b") as file:
            self.cells = memoryview(mmap.mmap(file.fileno(), 40)).cast("q")

    @classmethod
    def create(cls, path: Path) -> "Hold":
        path.write_bytes(bytes(40))
        return cls(path)


def held_scheduler(**given: Any) -> Any:
    scheduler = paced_scheduler(**given)
    cells = Hold(Path(os.environ[HOLD_VARIABLE])).cells
    schedule, add_request = scheduler.schedule, scheduler.add_request
    stock = super(type(scheduler), scheduler)

    def may_go() -> bool:
        inside = len(scheduler.waiting) + len(scheduler.running)
        return inside >= cells[AWAITED] and (
            cells[ALLOWED] == FREE or cells[TAKEN] < cells[ALLOWED]
        )

    def schedule_when_let(*args: Any, **named: Any) -> Any:
        if may_go():
            cells[AWAITED] = 0
            scheduler.log_stats = True
            output = schedule(*args, **named)
            cells[TOKENS] += output.total_num_scheduled_tokens
            cells[TAKEN] += output.total_num_scheduled_tokens > 0
            return output
        # A step without tokens, which is not reported.
        time.sleep(0.001)
        scheduler.log_stats = False
        tokens, scheduler.max_num_scheduled_tokens = scheduler.max_num_scheduled_tokens, 0
        nothing = stock.schedule(*args, **named)
        scheduler.max_num_scheduled_tokens = tokens
        return nothing

    def count_and_add(*args: Any, **named: Any) -> None:
        add_request(*args, **named)
        cells[ARRIVED] += 1

    scheduler.schedule, scheduler.add_request = schedule_when_let, count_and_add
    return scheduler
