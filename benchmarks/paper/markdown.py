"""Tables and numbers as Markdown."""

from collections.abc import Iterable, Sequence

MISSING = "n/a"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, the first column to the left and the others to the right."""
    lines = ["| " + " | ".join(header) + " |", "|---|" + "---:|" * (len(header) - 1)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def number(value: float | None, digits: int = 2) -> str:
    """Return *value* with thousands separators, n/a when there is none."""
    return MISSING if value is None else f"{value:,.{digits}f}"


def spread(values: Sequence[float], digits: int = 3) -> str:
    """Return the mean with the least and the greatest of *values*, n/a when there are none."""
    if not values:
        return MISSING
    mean = sum(values) / len(values)
    return f"{mean:.{digits}f} [{min(values):.{digits}f}-{max(values):.{digits}f}]"
