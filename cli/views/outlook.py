"""Simulated runs as a table: how long each policy takes, and how far it is from the best."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from blend.cli.console import table
from blend.cli.wording import counted, percent, significant

UNITS = (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3))


def unit_of(seconds: float) -> tuple[str, float]:
    """Return the unit to tell this time in, and its seconds."""
    return next((one for one in UNITS if seconds >= one[1]), UNITS[-1])


def policies_table(policies: Sequence[Mapping[str, Any]], *, draws: int) -> Table:
    """Return a line for each of *policies*, as `Outlook.described` has them, the fastest first."""
    unit, unit_s = unit_of(policies[0]["seconds"])
    ranges = ("10-90 %",) if draws > 1 else ()
    headers = ("policy", unit, *ranges, "tokens/s", "shared", "preempted", "KV", "bound", "behind")
    drawn = table(
        headers,
        (_cells(one, unit_s, draws) for one in policies),
        numbers=set(range(1, len(headers))),
        gap=1,
    )
    # On a narrow terminal a name takes two lines, and no figure is cut off.
    drawn.columns[0].no_wrap = False
    return drawn


def _cells(one: Mapping[str, Any], unit_s: float, draws: int) -> tuple[str, ...]:
    kept, behind = one["sharing_kept"], one["behind"]
    low, high = (significant(one[name] / unit_s) for name in ("low_s", "high_s"))
    return (
        one["name"],
        significant(one["seconds"] / unit_s),
        *((f"{low}-{high}",) if draws > 1 else ()),
        counted(one["tokens_s"]),
        "none" if kept is None else percent(kept),
        counted(one["preemptions"]),
        f"{one['peak_kv_share']:.0%}",
        f"{one['bound_share']:.0%}",
        f"{behind:.1%}" if behind < 1.0 else f"{behind:.0%}",
    )
