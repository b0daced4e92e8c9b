"""How long a step takes, in compiled form; `planning.engine_model` explains the formulas."""

from typing import NamedTuple

from blend.core.kernels.compiled import compiled


class Clock(NamedTuple):
    """Seconds of a prompt token, a decode, an attended pair, a read token, weights, a step."""

    token_s: float
    decode_s: float
    pair_s: float
    read_s: float
    weights_s: float
    overhead_s: float
    interference: float
    overlapped: bool
    shared_bandwidth: bool


@compiled
def compute_seconds(clock: Clock, prefill: int, decode: int, squares: float) -> float:
    """Return the seconds of a step's products; *squares* sums end² - start² of its prefills."""
    return clock.token_s * prefill + clock.decode_s * decode + clock.pair_s * squares


@compiled
def step_seconds(clock: Clock, compute: float, read: int) -> float:
    """Return the seconds of a step that computes so long and reads so many cached tokens."""
    memory = clock.read_s * read
    if clock.overlapped and clock.shared_bandwidth:
        memory += clock.weights_s
    else:
        compute = max(compute, clock.weights_s)
    if not clock.overlapped:
        return compute + memory + clock.overhead_s
    longer, shorter = max(compute, memory), min(compute, memory)
    return longer + clock.interference * shorter + clock.overhead_s
