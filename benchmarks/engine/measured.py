"""What one run of one batch came to."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measured:
    """One run, without the start of its engine.

    ``cpu_s`` is of all its processes. ``preemptions`` and ``predicted_s`` are None where nothing
    tells them.
    """

    wall_s: float
    cpu_s: float
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    preemptions: int | None = None
    predicted_s: float | None = None
    policy: str | None = None
