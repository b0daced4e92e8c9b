"""Small made-up jobs for tests: requests with shared prefixes, and schedules over them."""

from collections.abc import Sequence

import numpy as np

from blend.core.engines import Capacity
from blend.core.planning.classes import Blending, LengthClasses
from blend.core.request import Request
from blend.core.running.scan import Scanner, open_scanner
from blend.core.schedule import LEFT, RIGHT, Policy, Schedule


def capacity(kv_tokens: int = 4096, *, max_sequences: int = 64, step_tokens: int = 512) -> Capacity:
    return Capacity(kv_tokens, max_sequences, step_tokens, context_tokens=2048, block_tokens=16)


def step_s(prefill_tokens: int, decode_tokens: int, read_tokens: int) -> float:
    return 1e-3 + 1e-4 * (prefill_tokens + decode_tokens) + 1e-6 * read_tokens


def request(
    row: int, prompt: Sequence[int], *, max_tokens: int = 16, sequences: int = 1
) -> Request:
    return Request(
        row,
        f"row-{row}",
        "/v1/chat/completions",
        b"{}",
        np.asarray(prompt, np.uint32),
        max_tokens,
        sequences,
    )


def grouped(groups: int, *, size: int, shared: int, own: int, max_tokens: int) -> list[Request]:
    """Return groups of requests with a common prefix each, group after group."""
    return [
        request(
            group * size + member,
            [group] * shared + [1000 + group * size + member] * own,
            max_tokens=max_tokens,
        )
        for group in range(groups)
        for member in range(size)
    ]


def schedule(
    requests: Sequence[Request],
    *,
    policy: Policy = "fcfs",
    order: Sequence[int] | None = None,
    expected: Sequence[float] | None = None,
    density: Sequence[float] | None = None,
    root_density: float = 1.0,
) -> Schedule:
    """Return a schedule in the given order; nothing shared, output as long as max_tokens."""
    rows = np.arange(len(requests)) if order is None else np.asarray(order, np.int64)
    densities = np.ones(len(rows)) if density is None else np.asarray(density, float)
    lengths = [requests[row].max_tokens for row in rows] if expected is None else expected
    return Schedule(
        policy=policy,
        order=rows,
        side=np.where(densities >= root_density, LEFT, RIGHT).astype(np.int8),
        expected_tokens=np.asarray(lengths, float),
        uncached_tokens=np.array([len(requests[row].prompt) for row in rows], np.int64),
        density=densities,
        root_density=root_density,
        blending=blending(requests) if policy == "blend" and requests else None,
    )


def blending(requests: Sequence[Request]) -> Blending:
    """Return what a scanner knows when nothing was sampled, rows in two classes."""
    n = len(requests)
    limit = float(max(one.max_tokens for one in requests))
    nothing = np.empty(0)
    classes = LengthClasses(
        label=np.arange(n, dtype=np.int32) % 2,
        known=np.zeros(n),
        centre=np.log([20.0, 40.0]),
        spread=np.array([0.7, 1.2]),
        limit=np.array([limit, limit]),
        lengths=nothing,
        length_label=nothing.astype(np.int32),
        ages=nothing,
        age_label=nothing.astype(np.int32),
    )
    return Blending(classes, token_s=1e-4, read_s=1e-6, weights_s=1e-3, mode="overlapped")


def scanner_of(requests: list[Request], plan: Schedule, capacity: Capacity) -> Scanner:
    return open_scanner(
        plan,
        prompt_tokens=np.array([len(one.prompt) for one in requests]),
        sequences=np.array([one.sequences for one in requests]),
        capacity=capacity,
    )
