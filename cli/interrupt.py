"""Ctrl-C once drains and saves, twice stops at once; SIGTERM counts as one Ctrl-C."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass(slots=True)
class Interrupt:
    """Whether a person has asked to stop."""

    asked: bool = False


@contextmanager
def drain_on_interrupt() -> Iterator[Interrupt]:
    """Turn the first interrupt into a request to drain, the second into KeyboardInterrupt."""
    interrupt = Interrupt()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        if interrupt.asked:
            raise KeyboardInterrupt
        interrupt.asked = True
        # os.write, not a console: the handler may have interrupted one in mid-write.
        os.write(2, b"\nstopping, and saving what there is; Ctrl-C again stops at once\n")

    previous = {s: signal.signal(s, on_signal) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupt
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
