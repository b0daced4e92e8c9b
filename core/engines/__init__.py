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


UNKNOWN_TOKENS = 1 << 40
"""Stands for a size that a server does not tell: larger than any, so that counts decide."""


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

    ``steps``, the token counts, ``preemptions``, ``seconds`` and ``prefilled`` are differences
    since the last report; ``running``, ``waiting`` and ``prefilled``, those whose prompt was
    computed to its end for the first time, count sequences; ``kv_tokens`` is the cache in use. A
    ``silent`` report says that the engine has said nothing; its gauges are those of the last.
    Where several replicas are behind an engine, ``parts`` are their own reports, and ``lost`` is
    what was inside one that died while others live.
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
    silent: bool = False
    prefilled: int = 0
    parts: tuple["Part", ...] = ()
    lost: tuple["Lost", ...] = ()


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
        silent=all(report.silent for report in reports),
        prefilled=sum(report.prefilled for report in reports),
        parts=tuple(part for report in reports for part in report.parts),
        lost=tuple(one for report in reports for one in report.lost),
    )


def silence(last: StepReport | None) -> StepReport:
    """Return the report of an engine that has said nothing since the *last*, or nothing at all."""
    gauges = (last.running, last.waiting, last.kv_tokens) if last else (0, 0, 0)
    return StepReport((), *gauges, 0, 0, 0, 0, 0, 0.0, silent=True)


@dataclass(frozen=True, slots=True)
class Aborted:
    """What had moved when all requests were dropped, and how far the dropped ones were.

    ``tokens`` maps each dropped row to the output tokens it had, over all its sequences.
    """

    report: StepReport
    tokens: Mapping[int, int]


class EngineDiedError(Exception):
    """The engine is gone and with it every request in flight; rows without a result run again.

    ``reason`` is one line, ``log`` the last lines of the engine's output, where it has one;
    ``blameless``: whether no request can have been the cause.
    """

    def __init__(self, reason: str, *, log: str = "", blameless: bool = False):
        super().__init__(f"{reason}\n{log}" if log else reason)
        self.reason = reason
        self.log = log
        self.blameless = blameless


@dataclass(frozen=True, slots=True)
class Part:
    """What one replica has reported."""

    replica: int
    report: StepReport


@dataclass(frozen=True, slots=True)
class Lost:
    """The rows that were inside a replica when it died."""

    replica: int
    rows: tuple[int, ...]
    death: EngineDiedError


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

    @property
    def pid(self) -> int | None:
        """The process that leads the engine's process group; None where there is none of ours."""
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
        """Wait until something moved, and say what; EngineDiedError when the engine is gone.

        An engine that may be silent for long says from time to time that nothing moved, so that
        whoever waits can do something else; one that is silent for too long counts as gone.
        """
        ...

    def ages(self) -> Mapping[int, int]:
        """Return the output tokens that each row inside has, over all its sequences.

        Those whose answer is on its way may be missing; 0 where it is not told.
        """
        ...

    def abort(self) -> Aborted:
        """Drop every request inside and say what came of them; the engine can be used on."""
        ...

    def close(self) -> None:
        """Stop the engine and every process of it; requests in flight are dropped."""
        ...
