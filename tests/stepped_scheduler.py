"""A scheduler that takes its next step when the test says so, so that no machine is too slow."""

import mmap
import os
import time
from pathlib import Path
from typing import Any

STEPS_VARIABLE = "BLEND_TEST_STEPS"
SCHEDULER = f"{__name__}.stepped_scheduler"

ALLOWED, TAKEN, TOKENS, ARRIVED = range(4)
FREE = 0  # as many steps as it likes


class Steps:
    """What test and scheduler tell each other, in a file that both have mapped."""

    def __init__(self, path: Path):
        with path.open("r+b") as file:
            self.cells = memoryview(mmap.mmap(file.fileno(), 32)).cast("q")

    @classmethod
    def create(cls, path: Path) -> "Steps":
        path.write_bytes(bytes(32))
        return cls(path)


def stepped_scheduler(*, vllm_config: Any, **rest: Any) -> Any:
    """Build blend's scheduler, which waits for leave to take a step that computes anything."""
    from blend.core.engines.vllm_pace import paced_scheduler

    scheduler = paced_scheduler(vllm_config=vllm_config, **rest)
    cells = Steps(Path(os.environ[STEPS_VARIABLE])).cells
    take_step, add_request = scheduler.schedule, scheduler.add_request
    stock_step = type(scheduler).__mro__[1].schedule

    def schedule(*given: Any, **named: Any) -> Any:
        if cells[ALLOWED] != FREE and cells[TAKEN] >= cells[ALLOWED]:
            # A step without tokens, of which nothing is reported.
            time.sleep(0.001)
            scheduler.max_num_scheduled_tokens, scheduler.log_stats = 0, False
            return stock_step(scheduler, *given, **named)
        scheduler.log_stats = True
        output = take_step(*given, **named)
        if output.total_num_scheduled_tokens:
            cells[TOKENS] += output.total_num_scheduled_tokens
            cells[TAKEN] += 1
        return output

    def add(*given: Any, **named: Any) -> None:
        add_request(*given, **named)
        cells[ARRIVED] += 1

    scheduler.schedule, scheduler.add_request = schedule, add
    return scheduler
