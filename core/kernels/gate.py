"""The gate in compiled form: prefill is paced by what is submitted, where an engine takes no pace.

The engine computes of every prompt inside at most ``threshold`` tokens a step. So the prefill of a
step is known when its rows are: what is left of those inside, and of those on their way. The gate
predicts the step that a submission reaches, ``lag`` steps ahead of the one heard of last, and lets
as many rows in as bring it to the pace.

    room = X + error - sum of min(left, threshold) - threshold/2

``error`` adds up what steps fell short of the pace or went beyond it, within one row's threshold.

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

GATE_STATE = np.dtype(
    [
        ("prefilling", np.int64),
        ("error", np.float64),
        ("wanted", np.float64),  # prompt tokens of the next step
    ]
)


class Gate(NamedTuple):
    """What is being prefilled inside the engine; ``state`` has one element."""

    rows: Any  # submitted and not prefilled, in the order of submission
    left: Any  # by row: prompt tokens to compute
    opens: Any  # by row: the first step that can compute some of it
    taken: Any  # by position
    threshold: int  # of one row in one step
    lag: int
    state: Any


def new_gate(rows: int, positions: int, *, threshold: int, lag: int) -> Gate:
    """Return a gate through which nothing has gone."""
    return Gate(
        np.empty(rows, np.int32),
        np.zeros(rows, np.int64),
        np.zeros(rows, np.int64),
        np.zeros(positions, np.bool_),
        threshold,
        lag,
        np.zeros(1, GATE_STATE),
    )


@compiled
def let_in(gate: Gate, row: int, tokens: int, step: int) -> None:
    """Count a row as submitted after this step was heard of."""
    state = gate.state[0]
    gate.rows[state.prefilling] = row
    state.prefilling += 1
    gate.left[row] = tokens
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
def predicted(gate: Gate, step: int, steps: int) -> float:
    """Return the prompt tokens of the next steps that a submission reaches."""
    ahead, tokens = step + 1 + gate.lag, 0.0
    for i in range(gate.state[0].prefilling):
        row = gate.rows[i]
        before = ahead - max(gate.opens[row], step + 1)
        tokens += piece(gate, row, before + steps) - piece(gate, row, before)
    return tokens


@compiled
def room_for(gate: Gate, wanted: float, step: int, steps: int) -> float:
    """Return the prompt tokens that may enter, for steps of *wanted* tokens each."""
    state = gate.state[0]
    state.wanted = wanted
    room = (wanted + state.error) * steps - predicted(gate, step, steps)
    return room - 0.5 * gate.threshold


@compiled
def cost(gate: Gate, tokens: int, steps: int) -> float:
    """Return the part of the room that a row with so many tokens takes."""
    return float(tokens if gate.threshold <= 0 else min(tokens, gate.threshold * steps))


@compiled
def note_prefill(
    gate: Gate, flight: Flight, tokens: int, step: int, steps: int, full: bool, moved: bool
) -> int:
    """Take in the prompt tokens of the last steps; return how many rows are prefilled by them.

    Those rows stand at the end of ``rows``, behind what goes on. *full* if the engine could not
    have computed more than it did: else what it left out was cached. *moved* if it took a step.
    """
    state = gate.state[0]
    if moved and state.wanted > 0.0:
        short = (state.wanted - tokens / steps) / (1.0 + 2.0 * gate.lag)
        most = max(float(gate.threshold), 0.0 if gate.threshold > 0 else state.wanted)
        state.error = min(max(state.error + short, -most), most)
    budget, kept, done = tokens, 0, 0
    ended = np.empty(state.prefilling, np.int32)
    for i in range(state.prefilling):
        row = gate.rows[i]
        if flight.mark[row] == FINISHED:
            continue
        if flight.mark[row] != QUEUED and gate.opens[row] <= step:
            part = piece(gate, row, min(steps, step - gate.opens[row] + 1))
            part = min(part, budget) if full else part
            gate.left[row] -= part
            budget -= part
        if gate.left[row] > 0:
            gate.rows[kept] = row
            kept += 1
        else:
            ended[done] = row
            done += 1
    for i in range(done):
        gate.rows[kept + i] = ended[i]
    state.prefilling = kept
    return done


@compiled
def backlog(gate: Gate) -> float:
    """Return the prompt tokens submitted and not computed yet."""
    tokens = 0.0
    for i in range(gate.state[0].prefilling):
        tokens += gate.left[gate.rows[i]]
    return tokens


@compiled
def next_through(
    gate: Gate, flight: Flight, order: Any, uncached: Any, prompt: Any, first: int, last: int
) -> int:
    """Return the position, from *first* to *last*, of a row whose prefix nobody is computing.

    NOBODY if all wait.
    """
    for position in range(first, last + 1):
        if not gate.taken[position] and not _waits(gate, flight, order, uncached, prompt, position):
            return position
    return NOBODY


@compiled
def _waits(
    gate: Gate, flight: Flight, order: Any, uncached: Any, prompt: Any, position: int
) -> bool:
    """Tell whether a row shares a prefix with the one before it that is not computed yet."""
    row = order[position]
    shared = prompt[row] - uncached[position]
    if gate.threshold <= 0 or position == 0 or shared < max(FEW_TOKENS, gate.threshold):
        return False
    before = order[position - 1]
    if flight.mark[before] == 0:
        return True
    return gate.left[before] > 0 and prompt[before] - gate.left[before] < shared
