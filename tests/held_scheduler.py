"""vLLM's scheduler, paced as ours, which computes nothing until as many requests have arrived as
it is told: then it does not matter how fast they do.

Built by vLLM in the process of its engine core.
"""

import os
from pathlib import Path
from typing import Any

from blend.core.engines.vllm_pace import paced_scheduler

SCHEDULER = f"{__name__}.held_scheduler"
ARRIVING_VARIABLE = "TESTS_ARRIVING"
"""Names the file with the number of requests that are waited for."""


def held_scheduler(**given: Any) -> Any:
    scheduler = paced_scheduler(**given)
    arriving = Path(os.environ[ARRIVING_VARIABLE])
    schedule = scheduler.schedule
    stock = super(type(scheduler), scheduler)

    def schedule_when_all_are_there(*args: Any, **named: Any) -> Any:
        if len(scheduler.waiting) + len(scheduler.running) >= int(arriving.read_text()):
            arriving.write_text("0")
            scheduler.log_stats = True
            return schedule(*args, **named)
        # A step without tokens, which is not reported.
        scheduler.log_stats = False
        tokens, scheduler.max_num_scheduled_tokens = scheduler.max_num_scheduled_tokens, 0
        nothing = stock.schedule(*args, **named)
        scheduler.max_num_scheduled_tokens = tokens
        return nothing

    scheduler.schedule = schedule_when_all_are_there
    return scheduler
