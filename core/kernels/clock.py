"""How long a step takes, in compiled form; `planning.engine_model` explains the formulas."""

from typing import NamedTuple

from blend.core.kernels.compiled import compiled


class Clock(NamedTuple):
    """Seconds of a computed token, an attended token pair, a read token, all weights, a step."""

    token_s: float
    pair_s: float
    read_s: float
    weights_s: float
    overhead_s: float
    interference: float
    overlapped: bool
    shared_bandwidth: bool


@compiled
def step_seconds(clock: Clock, tokens: int, squares: float, read: int) -> float:
    """Return the seconds of a step; *squares* is the sum of end² - start² of its prefills."""
    compute = clock.token_s * tokens + clock.pair_s * squares
    memory = clock.read_s * read
    if clock.overlapped and clock.shared_bandwidth:
        memory += clock.weights_s
    else:
        compute = max(compute, clock.weights_s)
    if not clock.overlapped:
        return compute + memory + clock.overhead_s
    longer, shorter = max(compute, memory), min(compute, memory)
    return longer + clock.interference * shorter + clock.overhead_s
