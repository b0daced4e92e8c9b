"""What goes to the terminal: data to stdout, everything else to stderr, user text inert."""

import csv
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from blend.cli.folding import folded
from blend.cli.wording import plain

LEAST_COLUMN = 8
"""Characters that a column of text keeps on a narrow terminal."""


class _Folding(Console):
    """Breaks lines between words on a terminal; a pipe gets them whole."""

    def print(self, *objects: Any, **options: Any) -> None:
        if len(objects) == 1 and isinstance(objects[0], str) and not options and on_terminal(self):
            objects = (folded(self.render_str(objects[0]), self.width),)
        super().print(*objects, **options)


def opened(*, stderr: bool) -> Console:
    """Return a console that minds what rich does not: `CLICOLOR=0` and `CLICOLOR_FORCE`."""
    plain = os.environ.get("CLICOLOR") == "0" and not os.environ.get("FORCE_COLOR")
    forced = os.environ.get("CLICOLOR_FORCE", "0") not in ("", "0") and "NO_COLOR" not in os.environ
    return _Folding(
        stderr=stderr,
        soft_wrap=True,
        highlight=False,
        emoji=False,
        no_color=True if plain and not forced else None,
        force_terminal=True if forced else None,
    )


out = opened(stderr=False)
err = opened(stderr=True)


def inert(text: str) -> str:
    """Return *text* so that neither a terminal nor rich markup acts on it."""
    return escape(plain(text))


def on_terminal(console: Console) -> bool:
    """Return whether what is printed can be redrawn in place; colour alone may be forced."""
    return console.file.isatty() and console.is_terminal and not console.is_dumb_terminal


@contextmanager
def _heard() -> Iterator[None]:
    """Print to ``err`` even where a command is to be quiet."""
    quiet, err.quiet = err.quiet, False
    try:
        yield
    finally:
        err.quiet = quiet


def warn(message: str) -> None:
    """Warn on stderr, of what a quiet command says, too."""
    with _heard():
        err.print(f"[bold yellow]warning:[/] {inert(message)}")


class _Teller(logging.Handler):
    """Prints what the stages of a job tell."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            warn(record.getMessage())
        else:
            err.print(_lines(record.getMessage()))


@contextmanager
def told() -> Iterator[None]:
    """Print to stderr what is logged by the stages of a job, which print nothing themselves."""
    teller, stages = _Teller(), logging.getLogger("blend.cli")
    level = stages.level
    stages.addHandler(teller)
    stages.setLevel(logging.INFO)
    try:
        yield
    finally:
        stages.removeHandler(teller)
        stages.setLevel(level)


def _lines(message: str) -> str:
    """Return a message inert: one of ours may have lines, user text in it never had a break."""
    return "\n".join(map(inert, message.split("\n")))


def print_error(message: str, hint: str | None) -> None:
    """Say what went wrong on stderr, and what helps."""
    with _heard():
        err.print(f"[bold red]error:[/] {_lines(message)}")
        if hint:
            err.print(f"[bold]hint:[/] {inert(hint)}")


def print_json(document: object) -> None:
    """Write *document* to stdout as indented JSON."""
    import orjson

    options = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
    print(orjson.dumps(document, option=options).decode())  # noqa: T201 - stdout is the answer


def print_csv(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table to stdout as CSV, a record a line: control characters are written out."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(headers)
    writer.writerows([plain(one) if isinstance(one, str) else one for one in row] for row in rows)


@contextmanager
def paged() -> Iterator[None]:
    """Show what is printed to ``out`` in a pager where it is longer than the terminal."""
    if not (on_terminal(out) and sys.stdin.isatty()):
        yield
        return
    with out.capture() as captured:
        yield
    text = captured.get()
    if text.count("\n") < out.height:
        sys.stdout.write(text)
        return
    import pydoc  # slow to import

    # Colours as colours, and nothing cut off that the terminal would wrap; as git asks of it.
    os.environ.setdefault("LESS", "FRX")
    pydoc.pager(text)


def table(
    headers: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: set[int], gap: int = 2
) -> Table:
    """Return a plain table; the columns in *numbers* are right-aligned. Cells must be inert.

    Where the terminal is too narrow the others are cut.
    """
    cells = [headers, *rows]
    sizes = [[Text.from_markup(cell, emoji=False).cell_len for cell in row] for row in cells]
    widths = [max(column) for column in zip(*sizes, strict=True)]
    widths = _fitted(widths, numbers, out.width - gap * (len(headers) - 1))
    drawn = Table(box=None, pad_edge=False, header_style="bold", padding=(0, gap, 0, 0))
    for at, (header, width) in enumerate(zip(headers, widths, strict=True)):
        drawn.add_column(
            header, justify="right" if at in numbers else "left", no_wrap=True, width=width
        )
    for row in cells[1:]:
        drawn.add_row(*row)
    return drawn


def _fitted(widths: list[int], numbers: set[int], room: int) -> list[int]:
    """Return the widths of columns that share a *room*: the widest text gives way first."""
    fitted = list(widths)
    texts = [at for at in range(len(widths)) if at not in numbers]
    for _ in range(sum(widths) - room):
        widest = max(texts, key=lambda at: fitted[at], default=None)
        if widest is None or fitted[widest] <= LEAST_COLUMN:
            break
        fitted[widest] -= 1
    return fitted
