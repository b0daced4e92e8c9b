"""What is a run for, who watches and ends it, and how much trouble does it bear with?"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from blend.core.engines import StepReport
from blend.core.running.breaker import Breaker
from blend.core.running.time_limit import TimeLimit
from blend.store.job import Purpose


def never() -> bool:
    """Stop or cut off nothing."""
    return False


def never_until(_report: StepReport) -> bool:
    """Hand nothing on."""
    return False


def _ignore(_report: StepReport) -> None:
    pass


def _say_nothing(_text: str) -> None:
    pass


def _no_breaker() -> Breaker:
    return Breaker(0)


@dataclass(frozen=True, slots=True)
class RunContext:
    """What a run is for, what it runs on, who watches it, and how much trouble it bears with.

    Once ``stopping`` is true what runs is finished and nothing more begun; once ``cut`` is true
    what runs is dropped, as it is when the ``breaker`` trips. Once ``until``, which is told every
    report, is true, the run ends and what runs goes on, for another run to carry; but it is dropped
    where a row is suspected of killing engines. ``max_rebuilds``: fresh engines in a
    row without any new result. A ``limit`` of time drops what runs when it is over, and what would
    not be finished by then is not begun.
    """

    purpose: Purpose
    engine_name: str
    settings: Mapping[str, object]
    stopping: Callable[[], bool] = never
    cut: Callable[[], bool] = never
    until: Callable[[StepReport], bool] = never_until
    on_report: Callable[[StepReport], None] = _ignore
    say: Callable[[str], None] = _say_nothing
    max_rebuilds: int = 3
    breaker: Breaker = field(default_factory=_no_breaker)
    limit: TimeLimit | None = None

    @property
    def cut_off(self) -> bool:
        """Whether what runs is to be dropped: somebody says so, or the time is over."""
        return self.cut() or (self.limit is not None and self.limit.over)

    @property
    def dropping(self) -> bool:
        """Whether what runs is to be dropped, for that or because too much fails."""
        return self.cut_off or self.breaker.tripped

    @property
    def ending(self) -> bool:
        """Whether nothing more is to be begun."""
        return self.stopping() or self.dropping
