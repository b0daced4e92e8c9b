"""The paper's dual scan in compiled form: `running.dual_scan` over arrays (§5.3, §5.4)."""

from typing import Any, NamedTuple

import numpy as np

from blend.core.kernels.compiled import compiled
from blend.core.kernels.flight import STARTED, Flight, enter, next_started, room
from blend.core.running.dual_scan import START_STEPS

LEFT, RIGHT = 0, 1
NONE = -1
DENSEST = 1e12

STATE = np.dtype(
    [
        ("left", np.int64),
        ("right", np.int64),
        ("step", np.int64),
        ("inside", np.int64),
    ]
)


class Dual(NamedTuple):
    """The state of one scanner; ``state`` has one element, ``used`` and ``count`` one a side."""

    flight: Flight
    order: Any
    uncached: Any  # by position, like `awaited` and `density`
    awaited: Any
    density: Any
    root: float
    prompt: Any  # by row, like what follows
    side: Any
    expected: Any
    footprint: Any
    started: Any
    deadline: Any
    following: Any  # the next row with a deadline in the same slot
    slots: Any
    used: Any
    count: Any
    state: Any


def new_dual(flight: Flight, schedule: Any, *, prompt: Any) -> Dual:
    """Return a scanner that has admitted nothing."""
    n = len(prompt)
    state = np.zeros(1, STATE)
    state["right"] = len(schedule) - 1
    return Dual(
        flight,
        schedule.order.astype(np.int64),
        schedule.uncached_tokens.astype(np.int64),
        schedule.expected_tokens.astype(np.float64),
        schedule.density.astype(np.float64),
        float(schedule.root_density),
        prompt.astype(np.int64),
        np.zeros(n, np.int8),
        np.zeros(n),
        np.zeros(n),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.full(n, NONE, np.int64),
        np.full(1 << 17, NONE, np.int64),
        np.zeros(2),
        np.zeros(2, np.int64),
        state,
    )


def dealt_dual(dual: Dual, schedule: Any) -> Dual:
    """Return the scanner with the rows of *schedule* in the place of those not admitted."""
    dual.state["left"], dual.state["right"] = 0, len(schedule) - 1
    return dual._replace(
        order=schedule.order.astype(np.int64),
        uncached=schedule.uncached_tokens.astype(np.int64),
        awaited=schedule.expected_tokens.astype(np.float64),
        density=schedule.density.astype(np.float64),
    )


@compiled
def _left_share(dual: Dual) -> float:
    """Return M_L over M for the nodes under the pointers."""
    state = dual.state[0]
    left = min(dual.density[state.left], DENSEST)
    right = min(dual.density[state.right], DENSEST)
    root = min(dual.root, DENSEST)
    if left - right <= 1e-9 * abs(left):
        return 1.0 if left >= root else 0.0
    return min(max((root - right) / (left - right), 0.0), 1.0)


@compiled
def admit_dual(dual: Dual, admitted: Any) -> int:
    """Put the rows that fill up both sides into *admitted*, and return how many there are."""
    count = 0
    while dual.state[0].left <= dual.state[0].right:
        row = _admit_one(dual)
        if row == NONE:
            break
        admitted[count] = row
        count += 1
    return count


@compiled
def _admit_one(dual: Dual) -> int:
    memory = float(dual.flight.counts[0].max_kv_tokens)
    left = memory * _left_share(dual)
    right = memory - left
    filled_left = dual.used[LEFT] / left if left > 0.0 else np.inf
    filled_right = dual.used[RIGHT] / right if right > 0.0 else np.inf
    side = LEFT if filled_left <= filled_right else RIGHT
    for _ in range(2):
        share = left if side == LEFT else right
        position = dual.state[0].left if side == LEFT else dual.state[0].right
        footprint = _footprint(dual, position, side)
        fits = dual.used[LEFT] + dual.used[RIGHT] + footprint <= memory
        if dual.state[0].inside == 0 or (share > 0.0 and dual.count[side] == 0):
            # Whatever wants memory and holds nothing goes first.
            if not fits and dual.state[0].inside:
                return NONE
            return _enter(dual, position, side, footprint)
        if fits and dual.used[side] + footprint <= share:
            return _enter(dual, position, side, footprint)
        side = 1 - side
    return NONE


@compiled
def _footprint(dual: Dual, position: int, side: int) -> float:
    row = dual.order[position]
    prompt = dual.uncached[position] if dual.count[side] else dual.prompt[row]
    return prompt + dual.awaited[position] / 2


@compiled
def _enter(dual: Dual, position: int, side: int, footprint: float) -> int:
    tokens = dual.uncached[position]
    row = dual.order[position]
    if not room(dual.flight, row, tokens):
        return NONE
    enter(dual.flight, row, tokens)
    dual.side[row] = side
    dual.expected[row] = dual.awaited[position]
    dual.footprint[row] = footprint
    dual.used[side] += footprint
    dual.count[side] += 1
    state = dual.state[0]
    state.inside += 1
    if side == LEFT:
        state.left += 1
    else:
        state.right -= 1
    return row


@compiled
def finish_dual(dual: Dual, row: int) -> None:
    """Free what a row held that has ended."""
    dual.used[dual.side[row]] -= dual.footprint[row]
    dual.count[dual.side[row]] -= 1
    dual.state[0].inside -= 1


@compiled
def observe_dual(dual: Dual) -> None:
    """Note which rows have started, and move what runs past its estimate to the right side."""
    state = dual.state[0]
    row = next_started(dual.flight)
    while row >= 0:
        dual.started[row] = state.step
        _set_deadline(dual, row)
        row = next_started(dual.flight)
    slot = (state.step - 1) & (len(dual.slots) - 1)
    row, dual.slots[slot] = dual.slots[slot], NONE
    while row != NONE:
        following = dual.following[row]
        if dual.flight.mark[row] == STARTED:
            if dual.deadline[row] < state.step:
                _run_over(dual, row)
            else:
                _put(dual, row)
        row = following


@compiled
def _set_deadline(dual: Dual, row: int) -> None:
    prefill_steps = dual.flight.tokens[row] // dual.flight.counts[0].step_tokens
    steps = int(dual.expected[row]) + prefill_steps + START_STEPS
    # One that has passed already is due at the next look.
    dual.deadline[row] = max(dual.started[row] + steps, dual.state[0].step)
    _put(dual, row)


@compiled
def _put(dual: Dual, row: int) -> None:
    slot = dual.deadline[row] & (len(dual.slots) - 1)
    dual.following[row] = dual.slots[slot]
    dual.slots[slot] = row


@compiled
def _run_over(dual: Dual, row: int) -> None:
    more_tokens = max(dual.expected[row], 1.0)
    dual.used[dual.side[row]] -= dual.footprint[row]
    dual.count[dual.side[row]] -= 1
    dual.side[row] = RIGHT
    dual.expected[row] += more_tokens
    dual.footprint[row] += more_tokens / 2
    dual.used[RIGHT] += dual.footprint[row]
    dual.count[RIGHT] += 1
    _set_deadline(dual, row)
