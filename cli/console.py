"""What goes to the terminal: data to stdout, everything else to stderr, user text inert."""

import csv
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.table import Table


def opened(*, stderr: bool) -> Console:
    """Return a console that minds what rich does not: `CLICOLOR=0` and `CLICOLOR_FORCE`."""
    plain = os.environ.get("CLICOLOR") == "0" and not os.environ.get("FORCE_COLOR")
    forced = os.environ.get("CLICOLOR_FORCE", "0") not in ("", "0") and "NO_COLOR" not in os.environ
    return Console(
        stderr=stderr,
        soft_wrap=True,
        highlight=False,
        emoji=False,
        no_color=True if plain and not forced else None,
        force_terminal=True if forced else None,
    )


out = opened(stderr=False)
err = opened(stderr=True)

# C0 and C1 controls, and the marks that reorder text: what could act on a terminal. And what
# cannot be written to one: the bytes of a file name that is not UTF-8.
_ACTIVE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(text: str) -> str:
    """Return *text* with what could act on a terminal written out."""
    return _ACTIVE.sub(lambda m: m[0].encode("unicode_escape").decode(), text)


def inert(text: str) -> str:
    """Return *text* so that neither a terminal nor rich markup acts on it."""
    return escape(plain(text))


def shortened(text: str, width: int) -> str:
    """Return *text* cut to *width* characters, an ellipsis last where it was cut."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


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


def end_of(text: str, width: int) -> str:
    """Return the last *width* characters of *text*, an ellipsis first where it was cut."""
    return text if len(text) <= width else "…" + text[len(text) - width + 1 :]


def print_error(message: str, hint: str | None) -> None:
    """Say what went wrong on stderr, and what helps."""
    # A message of ours may have lines; a line break inside user text was never in it.
    text = "\n".join(inert(line) for line in message.split("\n"))
    with _heard():
        err.print(f"[bold red]error:[/] {text}")
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
    """Return a plain table; the columns in *numbers* are right-aligned. Cells must be inert."""
    drawn = Table(box=None, pad_edge=False, header_style="bold", padding=(0, gap, 0, 0))
    for index, header in enumerate(headers):
        drawn.add_column(header, justify="right" if index in numbers else "left", no_wrap=True)
    for row in rows:
        drawn.add_row(*row)
    return drawn


_PLURAL_S = re.compile(r"(?<=ss)es\b|(?<=\w)s\b")


def counted(number: float, noun: str = "") -> str:
    """Return a count with thousands separators, of a plural: ``12,345 requests``, ``1 request``."""
    text = f"{number:,.0f}"
    if not noun:
        return text
    return f"{text} {_PLURAL_S.sub('', noun, count=1) if text == '1' else noun}"


def abbreviated(number: float) -> str:
    """Return a count in at most five characters: ``9,876``, ``48.1k``, ``164M``."""
    if number < 9_999.5:
        return f"{number:,.0f}"
    scales = (("k", 1e3), ("M", 1e6), ("G", 1e9))
    unit, scale = next((one for one in scales if number < 999.5 * one[1]), scales[-1])
    number /= scale
    return f"{number:.1f}{unit}" if number < 99.95 else f"{number:,.0f}{unit}"


def duration(seconds: float) -> str:
    """Return a time in its two largest units: ``2 h 5 min``, ``0.4 s``, ``7 ms``, ``30 µs``."""
    if 0 < seconds < 0.001:
        return f"{1e6 * seconds:.0f} µs"
    if seconds < 0.1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60} min"


def time_unit(seconds: float) -> tuple[str, float]:
    """Return the unit that suits a time, and its seconds."""
    units = (("h", 3600.0), ("min", 60.0), ("s", 1.0))
    return next((unit for unit in units if seconds >= 2 * unit[1]), ("ms", 1e-3))


def percent(share: float) -> str:
    """Return a share of one as a percentage."""
    return f"{100 * share:.1f} %"


def significant(value: float) -> str:
    """Return a number, such as a density, with three significant digits."""
    if not math.isfinite(value):
        return "∞"
    digits = max(0, 2 - math.floor(math.log10(value))) if value > 0 else 0
    return f"{value:,.{min(digits, 6)}f}"
