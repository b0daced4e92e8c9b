"""How far the reading of a file is: live on a terminal, a plain line every 30 s elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from blend.cli.console import counted, duration, err, inert
from blend.cli.progress import PLAIN_LINE_EVERY_S


@contextmanager
def reading_progress(name: str) -> Iterator[Callable[[int], None]]:
    """Give a function that shows how many lines are done."""
    started = shown = time.monotonic()
    with err.status(f"reading {inert(name)}") as status:

        def show(line: int) -> None:
            nonlocal shown
            now = time.monotonic()
            text = f"{inert(name)}: {counted(line)} lines in {duration(now - started)}"
            if err.is_terminal:
                status.update(text)
            elif now - shown >= PLAIN_LINE_EVERY_S:
                shown = now
                err.print(text)

        yield show
