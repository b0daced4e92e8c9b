"""How much of a job to run now: so many rows, so long, or as many as can be finished by then."""

import time
from dataclasses import dataclass, field

from blend.core.running.time_limit import TimeLimit


@dataclass(frozen=True, slots=True)
class RunLimits:
    """At most so many ``rows``, and ``seconds`` from when these limits were made.

    ``most_rows``: which rows run is up to what finishes the most of them in time.
    """

    rows: int | None = None
    seconds: float | None = None
    most_rows: bool = False
    made_s: float = field(default_factory=time.monotonic, compare=False)

    def time_limit(self, *, virtual: bool) -> TimeLimit | None:
        """Return the time that is left; of an engine in virtual time, all of it in that."""
        if self.seconds is None:
            return None
        if virtual:
            return TimeLimit(self.seconds)
        left_s = self.seconds - (time.monotonic() - self.made_s)
        return TimeLimit(left_s, clock=time.monotonic)


NO_LIMITS = RunLimits()
