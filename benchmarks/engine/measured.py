"""What one run of one batch came to."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measured:
    """One run, without the start of its engine.

    ``cpu_s`` is of all its processes, ``around_s`` of those around the engine. That, and
    ``preemptions``, ``steps`` and ``predicted``, the times as long as foreseen, are None where
    nothing tells them.
    """

    wall_s: float
    cpu_s: float
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    preemptions: int | None = None
    steps: int | None = None
    predicted_s: float | None = None
    times_predicted: float | None = None
    policy: str | None = None
    around_s: float | None = None
