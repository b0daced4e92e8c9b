"""How far the reading of a file is: live on a terminal, a plain line every 30 s elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from blend.cli.console import err, inert
from blend.cli.display import PLAIN_LINE_EVERY_S, REDRAW_EVERY_S, ProgressStyle, settled
from blend.cli.wording import counted, duration


@contextmanager
def reading_progress(
    name: str, lines: int | None = None, *, style: ProgressStyle = "auto"
) -> Iterator[Callable[[int], None]]:
    """Give a function that shows how many lines are done, of all *lines* where that is known."""
    of = f" of {counted(lines)}" if lines else ""
    started = shown = time.monotonic()
    style = settled(style)
    live = style == "live"
    every_s = REDRAW_EVERY_S if live else PLAIN_LINE_EVERY_S
    watched = err.status(f"reading {inert(name)}", refresh_per_second=4) if live else nullcontext()
    with watched as status:

        def show(line: int) -> None:
            nonlocal shown
            now = time.monotonic()
            if style == "none" or now - shown < every_s:
                return
            shown = now
            text = f"{inert(name)}: {counted(line)}{of} lines in {duration(now - started)}"
            if status is not None:
                status.update(text)
            else:
                err.print(text)

        yield show
