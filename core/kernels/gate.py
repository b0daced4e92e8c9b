"""The gate in compiled form: prefill is paced by what is submitted, where an engine takes no pace.

The engine computes of every prompt inside at most ``threshold`` tokens a step. So the prefill of a
step is known when its rows are: what is left of those inside, and of those on their way. The gate
predicts the step that a submission reaches, ``lag`` steps ahead of the one heard of last, and lets
as many rows in as bring it to the pace.

    room = X + error - sum of min(left, threshold) - threshold/2

``error`` adds up what steps fell short of the pace, up to one threshold, and what they went beyond
it, up to a few steps. No more than that is made good for: all rows inside are computed in every
step, so what is let in for several steps would come in one. So a step computes at most 1.5
thresholds beyond X, however late a report is heard, and once more what ends within ``lag`` steps
where that comes late. The price is paid where prompts are computed in fewer steps than go by until
a report is heard: the engine is then left with less than X.

How many prompts came to their end is counted by the engine, and goes before what is believed: a row
that came late, or lost its blocks, is inside until then, and one whose prefix was cached is not.

Rows that would share a prefix that is not computed yet compute it again, beside each other. So the
next row to enter is the first one, within a window, whose prefix is cached or nobody's.

Invariant: everything is known from reports alone.
"""

from typing import Any, NamedTuple

import numpy as np

from blend.core.kernels.compiled import compiled
from blend.core.kernels.flight import FINISHED, QUEUED, Flight

WINDOW = 1024
NOBODY = -1
# Shared tokens that are sooner computed again than waited for.
FEW_TOKENS = 64
# Steps' worth of prompt tokens beyond the pace that are made good for.
REPAID_STEPS = 4.0

GATE_STATE = np.dtype(
    [
        ("prefilling", np.int64),
        ("error", np.float64),
        ("wanted", np.float64),  # prompt tokens of the next step
        ("ended", np.int64),  # prompts reported as computed beyond those of rows taken out
    ]
)


class Gate(NamedTuple):
    """What is being prefilled inside the engine; ``state`` has one element."""

    rows: Any  # submitted and not prefilled, in the order of submission
    left: Any  # by row: prompt tokens to compute
    opens: Any  # by row: the first step that can compute some of it
    taken: Any  # by position
    shared: Any  # by position: tokens shared with the row before it
    prompt: Any  # by row
    border: int  # the first position of those that are taken from their end
    threshold: int  # of one row in one step
    lag: int
    block: int  # tokens that are cached together or not at all
    state: Any


def new_gate(
    prompt: Any, shared: Any, *, border: int, threshold: int, lag: int, block: int
) -> Gate:
    """Return a gate through which nothing has gone; *shared* is by position."""
    rows = len(prompt)
    return Gate(
        np.empty(rows, np.int32),
        np.zeros(rows, np.int64),
        np.zeros(rows, np.int64),
        np.zeros(len(shared), np.bool_),
        shared.astype(np.int64),
        prompt.astype(np.int64),
        border,
        threshold,
        lag,
        block,
        np.zeros(1, GATE_STATE),
    )


@compiled
def let_in(gate: Gate, row: int, tokens: int, prompt: int, step: int) -> None:
    """Count a row as submitted after this step was heard of, with so many tokens to compute."""
    state = gate.state[0]
    gate.rows[state.prefilling] = row
    state.prefilling += 1
    gate.left[row] = prompt - (prompt - tokens) // gate.block * gate.block
    gate.opens[row] = step + 1 + gate.lag


@compiled
def let_out(gate: Gate, row: int) -> None:
    """Count a row out that was let in and not submitted."""
    state, kept = gate.state[0], 0
    for i in range(state.prefilling):
        if gate.rows[i] != row:
            gate.rows[kept] = gate.rows[i]
            kept += 1
    state.prefilling = kept
    gate.left[row] = 0


@compiled
def piece(gate: Gate, row: int, steps: int) -> int:
    """Return the tokens of a row that so many steps compute."""
    if steps <= 0:
        return 0
    if gate.threshold <= 0:
        return gate.left[row]
    return min(gate.left[row], gate.threshold * steps)


@compiled
def predicted(gate: Gate, step: int) -> float:
    """Return the prompt tokens of the next step that a submission reaches."""
    state, ahead = gate.state[0], step + 1 + gate.lag
    # Rows taken to be computed in the place of others.
    tokens = float(max(-state.ended, 0) * gate.threshold)
    for i in range(state.prefilling):
        row = gate.rows[i]
        before = ahead - max(gate.opens[row], step + 1)
        tokens += piece(gate, row, before + 1) - piece(gate, row, before)
    return tokens


@compiled
def room_for(gate: Gate, wanted: float, step: int) -> float:
    """Return the prompt tokens that may enter, for a step of *wanted* tokens."""
    state = gate.state[0]
    state.wanted = wanted
    return wanted + state.error - predicted(gate, step) - 0.5 * gate.threshold


@compiled
def cost(gate: Gate, tokens: int) -> float:
    """Return the part of the room that a row with so many tokens takes."""
    return float(tokens if gate.threshold <= 0 else min(tokens, gate.threshold))


@compiled
def note_prefill(
    gate: Gate, flight: Flight, tokens: int, ended: int, step: int, steps: int, moved: bool
) -> int:
    """Take in the prompt tokens of the last steps; return how many rows are prefilled by them.

    Those rows stand at the end of ``rows``, behind what goes on. *ended*: how many prompts came to
    their end, those of rows that have finished too. *moved* if the engine took a step.
    """
    state = gate.state[0]
    if moved and state.wanted > 0.0:
        short = (state.wanted - tokens / steps) / (1.0 + 2.0 * gate.lag)
        most = max(float(gate.threshold), 0.0 if gate.threshold > 0 else state.wanted)
        least = -REPAID_STEPS * state.wanted
        state.error = min(max(state.error + short, least), most)
    state.ended += ended
    _spread(gate, flight, tokens, step, steps)
    if moved and tokens == 0:
        # Nobody was inside whose end could have been missed.
        state.ended = 0
    done = _take_out_ended(gate, flight, step)
    for i in range(state.prefilling):
        # More was to compute than believed: nobody knows how much.
        if gate.left[gate.rows[i]] == 0:
            gate.left[gate.rows[i]] = max((gate.lag + 2) * gate.threshold, 1)
    return done


@compiled
def _spread(gate: Gate, flight: Flight, tokens: int, step: int, steps: int) -> None:
    """Take the tokens off what is left of the rows inside, and drop those that have finished."""
    state, kept = gate.state[0], 0
    for i in range(state.prefilling):
        row = gate.rows[i]
        if flight.mark[row] == FINISHED:
            state.ended -= flight.copies[row]
            gate.left[row] = 0
            continue
        if flight.mark[row] != QUEUED and gate.opens[row] <= step:
            part = piece(gate, row, min(steps, step - gate.opens[row] + 1))
            part = min(part, tokens)
            tokens -= part
            gate.left[row] -= part
        gate.rows[kept] = row
        kept += 1
    state.prefilling = kept


@compiled
def _take_out_ended(gate: Gate, flight: Flight, step: int) -> int:
    """Move as many rows as were reported to be prefilled behind the others; return how many."""
    state, done = gate.state[0], 0
    while state.prefilling > 0 and state.ended > 0:
        at = _nearest(gate, flight, step)
        row = gate.rows[at]
        if flight.copies[row] > state.ended:
            break
        state.ended -= flight.copies[row]
        state.prefilling -= 1
        for i in range(at, state.prefilling):
            gate.rows[i] = gate.rows[i + 1]
        gate.rows[state.prefilling] = row
        gate.left[row] = 0
        done += 1
    if state.prefilling == 0:
        state.ended = min(state.ended, 0)
    return done


@compiled
def _nearest(gate: Gate, flight: Flight, step: int) -> int:
    """Return the place of the row that is nearest to the end of its prompt."""
    best, nearest = 0, 1 << 62
    for i in range(gate.state[0].prefilling):
        row = gate.rows[i]
        left = gate.left[row]
        if flight.mark[row] == QUEUED or gate.opens[row] > step:
            left += 1 << 40
        if left < nearest:
            best, nearest = i, left
    return best


@compiled
def backlog(gate: Gate) -> float:
    """Return the prompt tokens submitted and not computed yet."""
    tokens = 0.0
    for i in range(gate.state[0].prefilling):
        tokens += gate.left[gate.rows[i]]
    return tokens


@compiled
def cached_beside(gate: Gate, position: int, planned: int) -> int:
    """Return the tokens of a row that others have computed, given what they do in planned order."""
    before = position + 1 if position >= gate.border else position - 1
    cached = 0
    for other in (position - 1, position + 1):
        if other < 0 or other >= len(gate.taken) or not gate.taken[other]:
            continue
        cached = max(cached, planned if other == before else gate.shared[max(position, other)])
    return cached


@compiled
def next_through(gate: Gate, order: Any, first: int, last: int, ahead: int) -> int:
    """Return the next position, from *first* to *last*, of a row whose prefix nobody is computing.

    NOBODY if all wait; *ahead* is 1 or -1.
    """
    behind = first - ahead
    waits = 0 <= behind < len(order) and not gate.taken[behind]
    for position in range(first, last + ahead, ahead):
        if gate.taken[position]:
            waits = False
            continue
        waits = _waits(gate, order, position, position - ahead if waits else NOBODY)
        if not waits:
            return position
    return NOBODY


@compiled
def _waits(gate: Gate, order: Any, position: int, waiting: int) -> bool:
    """Tell whether a row shares a prefix with one beside it that is not computed yet.

    *waiting*: the position beside it that waits itself.
    """
    if gate.threshold <= 0:
        return False
    for other in (position - 1, position + 1):
        if other < 0 or other >= len(order):
            continue
        shared = gate.shared[max(position, other)]
        if shared < max(FEW_TOKENS, gate.threshold):
            continue
        if other == waiting:
            return True
        row = order[other]
        if gate.left[row] > 0 and gate.prompt[row] - gate.left[row] < shared:
            return True
    return False
