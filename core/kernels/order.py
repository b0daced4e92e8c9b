"""The scanner of a plain order in compiled form: what `running.scan.OrderScanner` does."""

from typing import Any

from blend.core.kernels.compiled import compiled
from blend.core.kernels.flight import Flight, enter, next_started, room


@compiled
def admit_in_order(flight: Flight, order: Any, uncached: Any, cursor: Any, admitted: Any) -> int:
    """Put the rows that the engine has room for into *admitted* and return how many there are."""
    count = 0
    while cursor[0] < len(order):
        row, tokens = order[cursor[0]], uncached[cursor[0]]
        if not room(flight, row, tokens):
            break
        enter(flight, row, tokens)
        cursor[0] += 1
        admitted[count] = row
        count += 1
    return count


@compiled
def observe_in_order(flight: Flight) -> None:
    """Note which rows have started."""
    while next_started(flight) >= 0:
        pass
