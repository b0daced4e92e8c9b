"""Ctrl-C once drains and saves, twice stops at once; SIGTERM counts as one Ctrl-C.

Where there is nothing to drain, the first stops at once.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Self


@dataclass(slots=True)
class Interrupt:
    """Whether somebody has asked to stop: a person, or a program that sets ``asked``.

    A context manager that does nothing: `drain_on_interrupt` is one that hears Ctrl-C.
    """

    asked: bool = False
    in_place: bool = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @contextmanager
    def told_in_place(self, in_place: bool) -> Iterator[None]:
        """Say it without a new line while what is on the terminal is redrawn *in_place*."""
        self.in_place = in_place
        try:
            yield
        finally:
            self.in_place = False


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt, as Ctrl-C does, unless it is taken or ignored already.

    Elsewhere than in the main thread, where no signal is heard, it does nothing.
    """
    heard = threading.current_thread() is threading.main_thread()
    if not heard or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def drain_on_interrupt() -> Iterator[Interrupt]:
    """Turn the first interrupt into a request to drain, the second into KeyboardInterrupt."""
    interrupt = Interrupt()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        if interrupt.asked:
            raise KeyboardInterrupt
        interrupt.asked = True
        # os.write, not a console: the handler may have interrupted one in mid-write.
        said = b"stopping, and saving what there is; Ctrl-C again stops at once"
        os.write(2, b"\r\x1b[2K" + said if interrupt.in_place else b"\n" + said + b"\n")

    previous = {s: signal.signal(s, on_signal) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupt
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
