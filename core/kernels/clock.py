"""How long a step takes, in compiled form; `planning.engine_model` explains the formulas."""

from typing import NamedTuple

from blend.core.kernels.compiled import compiled


class Clock(NamedTuple):
    """Seconds of a prompt token, a decode, an attended pair, a read token, weights, a step.

    ``interference``: its coefficients.
    ``network_token_s``, ``network_step_s``: that devices talk for each token, and in each step.
    """

    token_s: float
    decode_s: float
    pair_s: float
    read_s: float
    weights_s: float
    overhead_s: float
    network_token_s: float
    network_step_s: float
    interference: tuple[float, float, float]
    overlapped: bool
    shared_bandwidth: bool


@compiled
def compute_seconds(clock: Clock, prefill: int, decode: int, squares: float) -> float:
    """Return the seconds of a step's products; *squares* sums end² - start² of its prefills."""
    return clock.token_s * prefill + clock.decode_s * decode + clock.pair_s * squares


@compiled
def step_seconds(clock: Clock, compute: float, tokens: int, read: int) -> float:
    """Return the seconds of a step that computes so long, *tokens*, and reads so many of them."""
    memory = clock.read_s * read
    network = clock.network_token_s * tokens + clock.network_step_s
    if clock.overlapped and clock.shared_bandwidth:
        memory += clock.weights_s
    else:
        compute = max(compute, clock.weights_s)
    if not clock.overlapped:
        return compute + memory + network + clock.overhead_s
    longest = max(compute, memory, network)
    others = compute + memory + network - longest
    return longest + _added(clock.interference, longest, others) + clock.overhead_s


@compiled
def _added(interference: tuple[float, float, float], longest: float, others: float) -> float:
    """Return what the others add to the longest: `planning.interference.added_s`."""
    constant, linear, square = interference
    if linear == square == 0.0:
        return constant * others
    near = min(others, longest)
    share = near / longest if longest > 0.0 else 0.0
    added = near * (constant + share * (linear + share * square))
    return added + (others - near) * (constant + 2.0 * linear + 3.0 * square)
