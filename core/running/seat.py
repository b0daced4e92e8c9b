"""The place that an engine has in a session: when it dies, a fresh one takes it."""

from collections.abc import Callable

from blend.core.engines import Engine


class Seat:
    """Holds one engine, started at once; *start* starts one without waiting for it."""

    def __init__(self, start: Callable[[], Engine]):
        self._start = start
        self.engine = start()

    def renew(self) -> None:
        """Stop what is left of the present engine, and start a fresh one."""
        self.engine.close()
        self.engine = self._start()

    def close(self) -> None:
        """Stop the engine."""
        self.engine.close()
