"""Simulated engines that die: at certain rows, at certain moments, or always."""

from collections.abc import Collection
from typing import Any

from blend.core.engines import EngineDiedError, StepReport
from blend.core.engines.sim import SimEngine


class MortalEngine(SimEngine):
    """Dies in every step that computes a row of ``poison``; like any engine, with all inside."""

    poison: Collection[int] = ()
    deaths = 0

    def step(self) -> StepReport:
        report = super().step()
        computed = {sequence.work.request.row for sequence in self._running}
        computed.update(completion.row for completion in report.completions)
        if computed & set(self.poison):
            self.die("a row was poison")
        return report

    def die(self, reason: str) -> None:
        type(self).deaths += 1
        raise EngineDiedError(reason, log="what it said last")


def mortal(**attributes: Any) -> type[MortalEngine]:
    """Return a class of its own, which counts the deaths of its engines alone."""
    return type("Mortal", (MortalEngine,), {"deaths": 0, **attributes})
