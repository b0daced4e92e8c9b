"""The one seam between planning and running: what an engine is asked, and what it reports.

An engine decides nothing about order: it runs what it is given, in the order it is given it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from blend.core.completion import Completion
from blend.core.request import Request

Pacing = Literal["step budget", "none"]
"""Whether an engine keeps the pace it is asked for, step by step, or computes what it is given."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What an engine can hold and do in one step, in tokens and sequences.

    ``prefill_threshold``: the most prompt tokens of one sequence that a step computes, 0 for no
    limit but ``step_tokens``. An engine without ``pacing`` is paced by what is submitted to it.
    ``report_lag``: steps that have begun before the report of one is heard.
    """

    kv_tokens: int
    max_sequences: int
    step_tokens: int
    context_tokens: int
    block_tokens: int
    prefill_threshold: int = 0
    pacing: Pacing = "none"
    report_lag: int = 0


@dataclass(frozen=True, slots=True)
class StepReport:
    """What moved since the last report, and how full the engine is now.

    ``steps``, the token counts, ``preemptions`` and ``seconds`` are differences since the last
    report; ``running`` and ``waiting`` count sequences; ``kv_tokens`` is the cache in use.
    """

    completions: tuple[Completion, ...]
    running: int
    waiting: int
    kv_tokens: int
    steps: int
    prefill_tokens: int
    decode_tokens: int
    cached_tokens: int
    preemptions: int
    seconds: float


def total(reports: Sequence[StepReport]) -> StepReport:
    """Return *reports*, at least one, as one: the counts summed, the gauges of the last."""
    return StepReport(
        completions=tuple(c for report in reports for c in report.completions),
        running=reports[-1].running,
        waiting=reports[-1].waiting,
        kv_tokens=reports[-1].kv_tokens,
        steps=sum(report.steps for report in reports),
        prefill_tokens=sum(report.prefill_tokens for report in reports),
        decode_tokens=sum(report.decode_tokens for report in reports),
        cached_tokens=sum(report.cached_tokens for report in reports),
        preemptions=sum(report.preemptions for report in reports),
        seconds=sum(report.seconds for report in reports),
    )


@dataclass(frozen=True, slots=True)
class Aborted:
    """What had moved when all requests were dropped, and how far the dropped ones were.

    ``tokens`` maps each dropped row to the output tokens it had, over all its sequences.
    """

    report: StepReport
    tokens: Mapping[int, int]


class EngineDiedError(Exception):
    """The engine is gone and with it every request in flight; rows without a result run again."""


class Engine(Protocol):
    """Something that runs requests: vLLM, a simulator, a server."""

    def wait_ready(self, timeout_s: float | None = None) -> bool:
        """Wait until the engine runs, but no longer than *timeout_s*; say whether it does.

        Raises BlendError when it refuses to start, EngineDiedError when it died while starting.
        """
        ...

    @property
    def capacity(self) -> Capacity:
        """What the engine can hold; constant while it lives. Waits until the engine runs."""
        ...

    def submit(self, request: Request) -> None:
        """Queue one request behind those submitted before it."""
        ...

    def pace(self, prefill_tokens: int | None) -> None:
        """Compute at most so many prompt tokens a step from now on, where the engine can.

        None lifts the limit.
        """
        ...

    def step(self) -> StepReport:
        """Block until something moved, and say what; EngineDiedError when the engine is gone."""
        ...

    def abort(self) -> Aborted:
        """Drop every request inside and say what came of them; the engine can be used on."""
        ...

    def close(self) -> None:
        """Stop the engine and every process of it; requests in flight are dropped."""
        ...
