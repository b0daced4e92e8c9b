"""What requests cost a device: seconds of compute, seconds of memory traffic (paper §4.1).

    Comp = (2·(p + d)·P + 4·p²·H·L) / C      Mem = (p·d + d²/2) · KV bytes per token / B
    density rho = Comp / Mem                  of a set: (1 - s)·ΣComp / ΣMem

p prompt tokens, d output tokens, P active parameters, H attention width, L layers, C FLOP/s,
B bytes/s, s the share of compute that cached prefixes save. Cache hits save compute, never reads.

Differs from the paper: where a tree is at hand s is not needed, for the computed tokens are
counted exactly; the paper's figures take s as the share of *prompt tokens*, see `set_density`.
"""

import numpy as np
import numpy.typing as npt

from blend.core.planning.hardware import Hardware, ModelShape

Floats = npt.NDArray[np.float64]
Tokens = npt.NDArray[np.int64] | npt.NDArray[np.float64]


def segment_comp_s(
    start_depth: Tokens, end_depth: Tokens, *, hardware: Hardware, model: ModelShape
) -> Floats:
    """Return the seconds to prefill each prompt from *start_depth* on, what lies before cached.

    Additive along a path: a prompt costs what its segments cost. The attention term 4·p²·H·L of
    a whole prompt is the difference of the squares of its depths.
    """
    start = np.asarray(start_depth, dtype=np.float64)
    end = np.asarray(end_depth, dtype=np.float64)
    linear = 2.0 * model.active_parameters * (end - start)
    attention = 4.0 * model.hidden * model.layers * (end * end - start * start)
    seconds: Floats = (linear + attention) / hardware.flops
    return seconds


def decode_comp_s(output_tokens: Tokens, *, hardware: Hardware, model: ModelShape) -> Floats:
    """Return the seconds that the matrix products of these output tokens take."""
    tokens = np.asarray(output_tokens, dtype=np.float64)
    seconds: Floats = 2.0 * model.active_parameters * tokens / hardware.flops
    return seconds


def comp_s(
    prompt_tokens: Tokens,
    output_tokens: Tokens,
    *,
    hardware: Hardware,
    model: ModelShape,
    attention: bool = True,
) -> Floats:
    """Return the compute seconds of each request alone, nothing cached.

    ``output_tokens`` counts all its sequences, which share one prefill. ``attention=False`` drops
    the p² term as the paper does in its derivations.
    """
    prompt = np.asarray(prompt_tokens, dtype=np.float64)
    decode = decode_comp_s(output_tokens, hardware=hardware, model=model)
    if not attention:
        return decode_comp_s(prompt, hardware=hardware, model=model) + decode
    return segment_comp_s(np.zeros_like(prompt), prompt, hardware=hardware, model=model) + decode


def read_token_steps(prompt_tokens: Tokens, output_tokens: Tokens) -> Floats:
    """Return the cached tokens read by one sequence over all its decode steps: p·d + d²/2."""
    prompt = np.asarray(prompt_tokens, dtype=np.float64)
    output = np.asarray(output_tokens, dtype=np.float64)
    steps: Floats = prompt * output + output * output / 2.0
    return steps


def mem_s(
    prompt_tokens: Tokens, output_tokens: Tokens, *, hardware: Hardware, model: ModelShape
) -> Floats:
    """Return the seconds one sequence of each request spends reading the KV cache in decode."""
    read_bytes = read_token_steps(prompt_tokens, output_tokens) * model.kv_bytes_per_token
    seconds: Floats = read_bytes / hardware.bandwidth_bytes_s
    return seconds


def weights_s(*, hardware: Hardware, model: ModelShape) -> float:
    """Return the seconds to read all weights once, as measured where that was done.

    A stage of a pipeline reads its own for each batch of a round.
    """
    if hardware.weights_s is not None:
        return hardware.weights_s
    return hardware.stages * model.weight_bytes / hardware.bandwidth_bytes_s


def set_density(total_comp_s: float, total_mem_s: float, *, sharing: float) -> float:
    """Return (1 - s)·ΣComp / ΣMem, the paper's density of a set with prefix-sharing ratio s."""
    return (1.0 - sharing) * total_comp_s / total_mem_s
