"""Rows that run already when a scanner begins: it counts them, and they are not submitted again.

A plan can be ready while its sample still runs. The schedule then begins with what is inside, at
the end where each row belongs, and its scanner counts those rows first, whether it would admit them
or not: they are a fact. The invariant: of the rows of its schedule, a scanner admits all but the
carried ones, once each.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from blend.core.engines import Capacity, StepReport, silence
from blend.core.running.scan import DealtScanner, open_scanner
from blend.core.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Carried:
    """What one run leaves inside the engine for the next.

    ``ages``: the output tokens that each row has, over its ``sequences`` (n,), by row of the job;
    ``last``: the engine's last report.
    """

    ages: Mapping[int, int]
    sequences: npt.NDArray[np.integer]
    last: StepReport | None


def open_carrying(
    schedule: Schedule,
    *,
    prompt_tokens: npt.NDArray[np.integer],
    sequences: npt.NDArray[np.integer],
    capacity: Capacity,
    carried: Carried | None,
) -> DealtScanner:
    """Return the scanner of the schedule's policy, which counts what is *carried* as inside."""
    ages = carried.ages if carried else {}
    inside = np.zeros(len(sequences), np.bool_)
    inside[list(ages)] = True
    scanner = open_scanner(
        schedule.beginning_with(inside),
        prompt_tokens=prompt_tokens,
        sequences=sequences,
        capacity=capacity,
    )
    if carried:
        scanner.carry({row: age / int(sequences[row]) for row, age in ages.items()})
        scanner.observe(replace(silence(carried.last), silent=False))
    return scanner
