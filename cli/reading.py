"""How far the reading of a file is: live on a terminal, a plain line every 30 s elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from blend.cli.console import counted, duration, err, inert
from blend.cli.progress import PLAIN_LINE_EVERY_S

LIVE_EVERY_S = 0.2


@contextmanager
def reading_progress(name: str) -> Iterator[Callable[[int], None]]:
    """Give a function that shows how many lines are done."""
    started = shown = time.monotonic()
    every_s = LIVE_EVERY_S if err.is_terminal else PLAIN_LINE_EVERY_S
    with err.status(f"reading {inert(name)}") as status:

        def show(line: int) -> None:
            nonlocal shown
            now = time.monotonic()
            if now - shown < every_s:
                return
            shown = now
            text = f"{inert(name)}: {counted(line)} lines in {duration(now - started)}"
            if err.is_terminal:
                status.update(text)
            else:
                err.print(text)

        yield show
