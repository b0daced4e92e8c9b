"""The place that an engine has in a session: when it dies, a fresh one takes it."""

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from blend.core.engines import Capacity, Engine
from blend.core.running.carried import Carried, open_carrying
from blend.core.running.scan import Scanner
from blend.core.schedule import Schedule


class OpenScanner(Protocol):
    """Returns what scans a schedule for the engine."""

    def __call__(
        self,
        schedule: Schedule,
        *,
        prompt_tokens: npt.NDArray[np.integer],
        sequences: npt.NDArray[np.integer],
        capacity: Capacity,
        carried: Carried | None,
    ) -> Scanner:
        """Return a scanner that has admitted nothing; what is *carried* is inside already."""
        ...


def _by_policy(_engine: Engine) -> OpenScanner:
    return open_carrying


class Seat:
    """Holds one engine, started at once; *start* starts one without waiting for it.

    ``scanned_by`` says what scans a schedule for an engine.
    """

    def __init__(
        self,
        start: Callable[[], Engine],
        scanned_by: Callable[[Engine], OpenScanner] = _by_policy,
    ):
        self._start = start
        self._scanned_by = scanned_by
        self.engine = start()

    @property
    def open_scanner(self) -> OpenScanner:
        """What scans a schedule for the present engine."""
        return self._scanned_by(self.engine)

    def renew(self) -> None:
        """Stop what is left of the present engine, and start a fresh one."""
        self.engine.close()
        self.engine = self._start()

    def close(self) -> None:
        """Stop the engine."""
        self.engine.close()
