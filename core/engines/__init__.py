"""The one seam between planning and running: what an engine is asked, and what it reports.

An engine decides nothing about order: it runs what it is given, in the order it is given it.
"""

from dataclasses import dataclass
from typing import Protocol

from blend.core.completion import Completion
from blend.core.request import Request


@dataclass(frozen=True, slots=True)
class Capacity:
    """What an engine can hold and do in one step, in tokens and sequences."""

    kv_tokens: int
    max_sequences: int
    step_tokens: int
    context_tokens: int
    block_tokens: int


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


class EngineDied(Exception):
    """The engine is gone and with it every request in flight; rows without a result run again."""


class Engine(Protocol):
    """Something that runs requests: vLLM, a simulator, a server."""

    @property
    def capacity(self) -> Capacity:
        """What the engine can hold; constant while it lives."""
        ...

    def submit(self, request: Request) -> None:
        """Queue one request behind those submitted before it."""
        ...

    def step(self) -> StepReport:
        """Block until something moved, and say what; raise EngineDied when the engine is gone."""
        ...

    def abort(self) -> dict[int, int]:
        """Drop every request inside; return the output tokens each row had, over its sequences.

        The engine can be used on. Completions that nobody has seen yet are dropped as well.
        """
        ...

    def close(self) -> None:
        """Stop the engine and every process of it; requests in flight are dropped."""
        ...
