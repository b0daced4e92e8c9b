"""How a run is going, on stderr: redrawn in place on a terminal, a line now and then elsewhere.

Nothing is drawn but when the engine reports, so that no second thread reads what changes.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Annotated, Literal, Self

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from blend.cli.console import err, inert, on_terminal
from blend.cli.interrupt import Interrupt
from blend.cli.progress import RunProgress, Seen, Watch
from blend.cli.progress_words import (
    gauges,
    progress_line,
    replica_lines,
    rows_done,
    speed,
    time_left,
    worst_failure,
)
from blend.cli.wording import plain

ProgressStyle = Literal["auto", "plain", "live", "none"]

REDRAW_EVERY_S = 0.25
PLAIN_LINES_S = (2.0, 5.0, 10.0, 20.0, 30.0)
PLAIN_LINE_EVERY_S = 30.0
WIDEST_BAR = 60

_DISPLAY = "Display"


def display_options(
    progress: Annotated[
        ProgressStyle,
        typer.Option(
            help="How a run tells how far it is: redrawn live, by plain lines, or not at all; auto "
            "is live on a terminal.",
            rich_help_panel=_DISPLAY,
        ),
    ] = "auto",
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet", "-q", help="Say nothing but warnings and errors.", rich_help_panel=_DISPLAY
        ),
    ] = False,
) -> ProgressStyle:
    """Collect how a command tells what it does."""
    return "none" if quiet else progress


def settled(style: ProgressStyle, console: Console = err) -> ProgressStyle:
    """Return how progress is shown here: what moves needs a terminal that can do it."""
    able = on_terminal(console)
    if style == "auto":
        return "live" if able else "plain"
    return "plain" if style == "live" and not able else style


@dataclass(slots=True)
class Display:
    """Shows a run while it lasts; ``stopping`` tells that a person has asked it to end."""

    progress: RunProgress
    style: ProgressStyle = "auto"
    stopping: Callable[[], bool] = lambda: False
    console: Console = field(default_factory=lambda: err)
    _live: Live | None = None
    _next_s: float = 0.0
    _told: tuple[int, str] | None = None

    def __enter__(self) -> Self:
        self.style = settled(self.style, self.console)
        if self.style == "live":
            self._live = Live(
                console=self.console, auto_refresh=False, transient=True, redirect_stdout=False
            )
            self._live.start()
            self.show()
        elif self.style == "plain":
            self._next_s = PLAIN_LINES_S[0]
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _e: BaseException | None, _tb: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    @property
    def in_place(self) -> bool:
        """Whether what is shown is redrawn in place."""
        return self._live is not None

    def show(self) -> None:
        """Show how far the run is, if it is time to."""
        now_s = self.progress.elapsed_s
        if self.style == "none" or now_s < self._next_s:
            return
        if self._live is not None:
            self._next_s = now_s + REDRAW_EVERY_S
            self._live.update(self.drawn(self.console.width), refresh=True)
            return
        later = (moment for moment in PLAIN_LINES_S if moment > now_s)
        self._next_s = next(later, now_s + PLAIN_LINE_EVERY_S)
        # Why most have failed is said once, and again when it is something else.
        cause, before = self.progress.worst_cause, self._told
        self._told = cause
        line = progress_line(self.progress, causes=cause != before)
        self.console.print(f"{self.progress.label}: {inert(line)}")

    def drawn(self, width: int) -> RenderableType:
        """Return the run as a few lines that are no wider than *width*."""
        progress = self.progress
        head = Table.grid(padding=(0, 1))
        for _ in range(4):
            head.add_column(no_wrap=True)
        bar = min(WIDEST_BAR, max(width - 52, 8))
        head.add_row(
            f"[bold]{progress.label}[/]",
            # Colours of the terminal's own palette: they can be seen on light and on dark.
            ProgressBar(
                total=1.0,
                completed=progress.shown_share,
                width=bar,
                style="bright_black",
                complete_style="cyan",
                finished_style="green",
            ),
            f"{100 * progress.shown_share:5.1f} %",
            rows_done(progress),
        )
        lines = [", ".join(speed(progress.lately)), ", ".join(gauges(progress))]
        left = time_left(progress) or "time left: not known yet"
        lines = [left, *(line for line in lines if line), *replica_lines(progress)]
        if worst := worst_failure(progress, width):
            lines.append(worst)
        if self.stopping():
            lines.append("stopping: what runs is finished and saved; Ctrl-C again stops at once")
        return Group(
            head,
            *(Text(plain(f"  {line}"), no_wrap=True, overflow="ellipsis") for line in lines),
        )


def shown(style: ProgressStyle) -> Watch:
    """Return what shows a run on stderr while it lasts."""

    @contextmanager
    def watch(progress: RunProgress, interrupt: Interrupt) -> Iterator[Seen]:
        display = Display(progress, style, stopping=lambda: interrupt.asked)
        with display, interrupt.told_in_place(display.in_place):
            yield lambda _report: display.show()

    return watch
