"""Is it worth going on? When the first results are failures all, the fault is not in the rows."""

from collections.abc import Iterable

from blend.core.completion import Completion


class Breaker:
    """Trips once the first *limit* results are all failures; never after an answer, or at 0."""

    def __init__(self, limit: int):
        self.failed = 0
        self._limit = limit
        self._answered = False

    @property
    def tripped(self) -> bool:
        """Whether to stop."""
        return bool(self._limit) and not self._answered and self.failed >= self._limit

    def add(self, completions: Iterable[Completion]) -> None:
        """Take in results in the order of their arrival."""
        for completion in completions:
            if not self.tripped:
                self.failed += completion.failed
                self._answered = self._answered or not completion.failed
