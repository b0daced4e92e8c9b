"""The loop of a run: what the scanner admits goes in, what the engine reports comes out.

The invariant: a row is given to ``on_admit`` before the engine sees it, and every report that the
engine has returned is yielded, whatever else goes wrong.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from blend.core.engines import Engine, StepReport
from blend.core.request import Request
from blend.core.running.scan import Scanner


def _ignore(_rows: Sequence[int]) -> None:
    pass


def _never() -> bool:
    return False


def run(
    scanner: Scanner,
    request_of: Callable[[int], Request],
    engine: Engine,
    *,
    on_admit: Callable[[Sequence[int]], None] = _ignore,
    stopping: Callable[[], bool] = _never,
    inside: set[int] | None = None,
) -> Iterator[StepReport]:
    """Run every row the scanner names and yield each report of the engine as it arrives.

    ``on_admit`` gets the rows just before they are submitted; a row it has seen may have been
    lost before it reached the engine, and one that a replica has lost may be given to it again.
    Once ``stopping`` is true nothing more is admitted and the loop ends when what is inside has
    finished. Closing the generator drops what is inside. The set ``inside`` is kept up to date with
    the rows that the engine was given and has not answered.

    Raises:
        EngineDiedError: the engine is gone; completions yielded so far stand.
    """
    inside = set() if inside is None else inside
    admit = partial(_admit, scanner, request_of, engine, on_admit, inside)
    admitted = False
    while True:
        stopped = stopping()
        if not (stopped or admitted):
            admit()
        if not inside:
            if not stopped and not scanner.done:
                raise RuntimeError("the scanner has rows left but admits none to an idle engine")
            return
        engine.pace(scanner.pace)
        report = engine.step()
        try:
            inside.difference_update(completion.row for completion in report.completions)
            inside.difference_update(row for lost in report.lost for row in lost.rows)
            if not report.silent:
                scanner.observe(report)
            # A scanner is asked once a report. Where there are results, before these are taken:
            # to save them can take a while.
            admitted = bool(report.completions) and not stopping()
            if admitted:
                admit()
        finally:
            # An interrupt must not cost what has already arrived.
            yield report


def _admit(
    scanner: Scanner,
    request_of: Callable[[int], Request],
    engine: Engine,
    on_admit: Callable[[Sequence[int]], None],
    inside: set[int],
) -> None:
    """Submit what may enter now."""
    if rows := scanner.admit():
        on_admit(rows)
        for row in rows:
            engine.submit(request_of(row))
            inside.add(row)
