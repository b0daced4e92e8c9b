"""The blending scanner in compiled form: what enters next, and how much prefill a step gets.

Two pointers run over the schedule: compute-bound rows from the left, memory-bound rows from the
right. Symbols: u prompt tokens to compute, p prompt tokens, d answer tokens, x age of an answer,
F/C seconds to compute a token, W seconds to read the weights.

Memory side: a row enters when the forecast of what the memory side will hold, E + z·sqrt(V) at
every horizon, stays beside a reserve for the compute side. Compute side: rows enter as far as the
pace of prefill and the reserve allow. No side waits for the other.

    overlapped engine    pace X = max(g·t_m, W)·C/F tokens a step while the memory side lives, g =
                         remaining compute seconds / remaining memory seconds, within .9 and 1;
                         after it X = max(R/A, W·C/F), A steps of the last answer to begin
    sequential engine    X = W·C/F while the memory side lives: what goes beyond rides free no more
                         than later, when it is done and all of the budget is used.
                         W not measured: X = max(R/1.5S, min(W·C/F, R/0.8S)), good for any W; R
                         tokens left to compute, S steps that the memory side still needs
    reserve              1.3·X/(u + d)·(d·u + d²/2) + 2X of the class at the left pointer; where
                         operators overlap a quarter of the cache at least

Where operators overlap a step takes the longer of compute and reads, and a part of the shorter. So
nothing is lost while compute keeps up with the reads, whatever is left of either: a ratio that a
sample tells badly need not be followed, and compute that goes beyond the reads is the one thing
that may be missed later. And reads take their time however many rows share the cache, so one that
is fuller gains nothing, and starves the compute side when answers run long. Once nothing but
compute is left, shorter steps cost nothing, and the last long answer of that side ends sooner.

An engine that keeps a step budget is told X; any other is paced by what enters (`kernels.gate`),
where the memory side never waits for the pace.

What the engine says goes before what is believed: where the cache is fuller than the rows inside
account for, or emptier, forecasts are scaled by that.

Everything is known from reports alone, so that a real engine gets the same decisions.
"""

from typing import Any, NamedTuple

import numpy as np

from blend.core.kernels.compiled import compiled
from blend.core.kernels.flight import (
    Flight,
    enter,
    next_started,
    note_finished,
    note_report,
    start,
    withdraw,
)
from blend.core.kernels.forecast import (
    Forecast,
    Sight,
    add,
    fits,
    last_step,
    look_over,
    new_forecast,
    peak,
)
from blend.core.kernels.gate import (
    NOBODY,
    WINDOW,
    Gate,
    backlog,
    cached_beside,
    cost,
    let_in,
    let_out,
    next_through,
    note_prefill,
    room_for,
)
from blend.core.kernels.inside import (
    NOT_YET,
    Inside,
    age_bin,
    age_of,
    decodes,
    new_inside,
    take_out,
)
from blend.core.kernels.survival import (
    BINS,
    Beliefs,
    alive_at,
    bin_of,
    estimate_all,
    expected,
    forget,
    learn,
)
from blend.core.running.in_flight import AHEAD_STEPS, WAITING_SEQUENCES

PLAN_STEPS = 32
ESTIMATE_STEPS = 512
RETRY_STEPS = 16
UNPACED = 1 << 30
LEFT, RIGHT = 0, 1
LEAST_FREE = 16.0  # tokens riding free on a step that make a pace of their own

LEAST_RESERVE, MOST_RESERVE = 0.03, 0.35  # of the memory
BESIDE_RESERVE = 0.25  # the least where operators overlap
LEAST_BESIDE, MOST_BESIDE = 0.9, 1.0  # compute over memory seconds of a step that overlaps them
FULL, SAFE = 0.99, 0.97
DOUBT = 1.0  # deviations of the mean length, for each of the forecast's

# Reads of the weights over other work: up to the first z is as it was given, so much further on it
# is the boldest, so many deviations below the mean. Earlier where operators overlap: there only the
# memory side takes these steps, and a long answer that waits for room makes all of them more.
LEAST_WEIGHTS, LEAST_WEIGHTS_BESIDE, WEIGHTS_RANGE, BOLDEST = 0.75, 0.5, 0.5, 3.0

# The cache as reported over that believed: told apart from 1 beyond the first, within the others.
LIKE, LEAST_SCALE, MOST_SCALE = 0.1, 0.5, 4.0

STATE = np.dtype(
    [
        ("left", np.int64),
        ("right", np.int64),
        ("step", np.int64),
        ("planned", np.int64),
        ("estimated", np.int64),
        ("retry", np.int64),
        ("inside", np.int64),
        ("decoders", np.float64),
        ("reading", np.float64),
        ("backlog", np.float64),  # prompt tokens submitted and not computed yet
        ("urgent", np.float64),  # those of the memory side, which no pace holds back
        ("pace", np.int64),
        ("ratio", np.float64),
        ("memory_steps", np.float64),
        ("answer_steps", np.float64),  # of the last answer that has not begun
        ("caution", np.float64),
        ("risk", np.float64),  # how much goes into steps that only read the weights: 0 to 1
        ("preempted", np.bool_),  # some wait to be computed again
        ("remaining_tokens", np.float64),
        ("reserve", np.float64),
        ("peak", np.float64),  # of the memory side, forecast
        ("used_left", np.float64),
        ("doubt", np.float64),  # how much more than forecast what enters may come to hold
        ("blocked", np.float64),  # room that the row at the left pointer lacks
        ("scale", np.float64),  # cache in use over what is believed
        ("lone", np.bool_),  # all that is left is memory-bound
        ("gated", np.bool_),  # the engine takes no pace
        ("several", np.bool_),  # rows have several sequences
    ]
)


class Speed(NamedTuple):
    """The constants that set the pace; ``spread`` is z."""

    token_s: float
    read_s: float
    weights_s: float
    overlapped: bool
    movable: bool
    spread: float
    reserved: bool
    paced: bool
    calibrated: bool


class Blend(NamedTuple):
    """The state of one scanner; ``state`` has one element."""

    flight: Flight
    gate: Gate
    beliefs: Beliefs
    speed: Speed
    order: Any
    uncached: Any  # by position
    prompt: Any  # by row
    charge: Any  # room that a row of the left side takes
    inside: Inside
    waiting: Any  # (c, 6): of what has not entered: sequences, sum of u, and of every sequence
    # p and known d, d² and p·d
    ages: Any  # (c, bins)
    copies: Any  # by row: its sequences
    forecast: Forecast  # of the memory side
    state: Any


def new_blend(
    flight: Flight,
    gate: Gate,
    beliefs: Beliefs,
    speed: Speed,
    *,
    order: Any,
    uncached: Any,
    prompt: Any,
    copies: Any,
    gated: bool,
) -> Blend:
    """Return a scanner that has admitted nothing."""
    n, classes = len(prompt), len(beliefs.prior)
    state = np.zeros(1, STATE)
    state["right"] = len(order) - 1
    state["planned"] = -PLAN_STEPS
    state["scale"] = state["doubt"] = 1.0
    state["gated"] = gated
    state["several"] = bool((copies > 1).any())
    blend = Blend(
        flight,
        gate,
        beliefs,
        speed,
        order.astype(np.int64),
        uncached.astype(np.int64),
        prompt.astype(np.int64),
        np.zeros(n),
        new_inside(n),
        np.zeros((classes, 6)),
        np.zeros((classes, BINS)),
        copies.astype(np.int32),
        new_forecast(beliefs, copies),
        state,
    )
    count_waiting(blend)
    return blend


def left_blended(blend: Blend) -> Any:
    """Return the rows that have not been admitted, in the order of the schedule."""
    at = blend.state[0]
    ends = slice(int(at["left"]), int(at["right"]) + 1)
    return blend.order[ends][~blend.gate.taken[ends]]


def dealt_blended(blend: Blend, *, order: Any, uncached: Any, shared: Any, border: int) -> Blend:
    """Return the scanner with other rows in the place of those not admitted; it plans anew.

    *shared* and *border* as the gate knows them.
    """
    state = blend.state
    state["left"], state["right"], state["retry"] = 0, len(order) - 1, 0
    state["planned"] = state["step"] - PLAN_STEPS
    blend.waiting[:] = 0.0
    dealt = blend._replace(
        order=order.astype(np.int64),
        uncached=uncached.astype(np.int64),
        gate=blend.gate._replace(
            taken=np.zeros(len(order), np.bool_), shared=shared.astype(np.int64), border=border
        ),
    )
    count_waiting(dealt)
    return dealt


@compiled
def count_waiting(blend: Blend) -> None:
    """Sum up what has not entered, class by class."""
    for position in range(len(blend.order)):
        _count(blend, position, 1.0)


@compiled
def _count(blend: Blend, position: int, sign: float) -> None:
    row = blend.order[position]
    sums = blend.waiting[blend.beliefs.label[row]]
    sums[1] += sign * blend.uncached[position]
    each = sign * blend.copies[row]
    sums[0] += each
    sums[2] += each * blend.prompt[row]
    length = blend.beliefs.known[row]
    sums[3] += each * length
    sums[4] += each * length * length
    sums[5] += each * length * blend.prompt[row]


@compiled
def _class_work(blend: Blend, one: int) -> tuple[float, float]:
    """Return the tokens to compute and to read of what has not entered of a class."""
    sums = blend.waiting[one]
    if sums[3] > 0.0:
        return sums[1] + sums[3], sums[5] + sums[4] / 2
    mean, square = _moments(blend, one)
    return sums[1] + sums[0] * mean, sums[2] * mean + sums[0] * square / 2


@compiled
def _moments(blend: Blend, one: int) -> tuple[float, float]:
    """Return E[d] and E[d²] of what has not entered of a class, whose lengths are known or not."""
    sums = blend.waiting[one]
    if sums[3] > 0.0:
        return sums[3] / sums[0], sums[4] / sums[0]
    return blend.beliefs.moments[one, 0], blend.beliefs.moments[one, 1]


@compiled
def admit_blended(blend: Blend, admitted: Any) -> int:
    """Put the rows to submit into *admitted* and return how many there are; sets the pace."""
    state = blend.state[0]
    _plan_when_due(blend)
    state.pace = _pace(blend)
    count, right, room = 0, state.step >= state.retry, _room(blend)
    # What stood before and waits for a prefix still does.
    left_seen, right_seen = state.left, state.right
    while state.left <= state.right and not (state.inside and _is_full(blend)):
        enough = state.inside > 0 and _enough_waits(blend)
        if enough and not (right and _urgent(blend) and not _more_waits(blend)):
            break
        position, side = NOBODY, RIGHT
        if right:
            position = _right_position(blend, min(right_seen, state.right))
            right_seen = position - 1
            right = position != NOBODY and _right_may(blend) and _right_fits(blend, position)
        if not right:
            side = LEFT
            if state.inside and (state.lone or room <= 0.0 or enough):
                break
            position = _left_position(blend, max(left_seen, state.left))
            if state.inside and (position == NOBODY or not _left_fits(blend, position)):
                break
            position = max(position, state.left)
            left_seen = position + 1
        room -= cost(blend.gate, _uncached(blend, position))
        admitted[count] = _enter(blend, position, side)
        count += 1
    if state.pace < UNPACED:
        most = blend.flight.counts[0].step_tokens - state.decoders
        state.pace = max(min(state.pace + int(state.urgent), most), 1)
    return count


@compiled
def _is_full(blend: Blend) -> bool:
    counts = blend.flight.counts[0]
    return counts.inside >= counts.max_sequences


@compiled
def _right_may(blend: Blend) -> bool:
    """Tell whether the row at the right pointer may enter as one of the memory side."""
    state = blend.state[0]
    return state.lone or _memory_bound_next(blend)


@compiled
def _urgent(blend: Blend) -> bool:
    """Tell whether a sequential engine's steps wait for the row at the right pointer.

    They are as many as the memory side needs, whatever the rest does.
    """
    return not blend.speed.overlapped and _memory_bound_next(blend)


@compiled
def _memory_bound_next(blend: Blend) -> bool:
    return _memory_bound(blend, blend.beliefs.label[blend.order[blend.state[0].right]])


@compiled
def _room(blend: Blend) -> float:
    """Return the prompt tokens of the compute side that the gate lets in now."""
    state, counts = blend.state[0], blend.flight.counts[0]
    if not state.gated:
        return float(UNPACED)
    wanted = float(min(state.pace, max(counts.step_tokens - state.decoders, 1)))
    return room_for(blend.gate, wanted, state.step)


@compiled
def _enough_waits(blend: Blend) -> bool:
    """Tell whether the engine has as much to compute as the steps until the next report can."""
    state, counts = blend.state[0], blend.flight.counts[0]
    steps = counts.steps + blend.gate.lag
    if state.gated or state.pace >= UNPACED:
        return _more_waits(blend)
    return state.backlog >= state.pace * steps + state.urgent


@compiled
def _more_waits(blend: Blend) -> bool:
    """Tell whether the engine has more to compute than whole steps could, or takes no more rows."""
    counts, tokens = blend.flight.counts[0], blend.state[0].backlog
    steps = counts.steps + blend.gate.lag
    if counts.waiting >= WAITING_SEQUENCES and tokens >= counts.step_tokens * steps:
        return True
    return tokens >= counts.step_tokens * (steps + AHEAD_STEPS)


@compiled
def _left_position(blend: Blend, first: int) -> int:
    """Return the position of the compute side's next row, NOBODY when all should wait."""
    state = blend.state[0]
    if not state.gated:
        return state.left
    last = min(state.left + WINDOW, state.right)
    return next_through(blend.gate, blend.order, first, last, 1)


@compiled
def _right_position(blend: Blend, first: int) -> int:
    """Return the position of the memory side's next row, NOBODY when all should wait."""
    state = blend.state[0]
    if not state.gated:
        return state.right
    last = max(state.right - WINDOW, state.left)
    return next_through(blend.gate, blend.order, first, last, -1)


@compiled
def _uncached(blend: Blend, position: int) -> int:
    """Return the prompt tokens that a row computes if it enters now."""
    prompt = blend.prompt[blend.order[position]]
    cached = cached_beside(blend.gate, position, prompt - blend.uncached[position])
    return max(prompt - cached, 1)


@compiled
def _enter(blend: Blend, position: int, side: int) -> int:
    state, taken = blend.state[0], blend.gate.taken
    row, tokens = blend.order[position], _uncached(blend, position)
    if side == RIGHT and _urgent(blend):
        state.urgent += tokens
    taken[position] = True
    while state.left <= state.right and taken[state.left]:
        state.left += 1
    while state.left <= state.right and taken[state.right]:
        state.right -= 1
    _count(blend, position, -1.0)
    enter(blend.flight, row, tokens)
    if state.gated:
        let_in(blend.gate, row, tokens, blend.prompt[row], state.step)
    state.backlog += tokens
    _put_inside(blend, row, tokens, side)
    if side == LEFT:
        blend.charge[row] = tokens + blend.copies[row] * expected(blend.beliefs, row)
        state.used_left += blend.charge[row]
    else:
        add(blend.forecast, blend.beliefs, row, float(tokens))
    return row


@compiled
def carry_blended(blend: Blend, ages: Any) -> None:
    """Count the rows at the ends of the order that are inside already, whatever else would fit.

    *ages* by row: the tokens of each of its answers, 0 before the first, NaN if it is not inside.
    """
    state = blend.state[0]
    last = min(state.right, blend.gate.border - 1)
    while state.left <= last and ages[blend.order[state.left]] >= 0.0:
        _carry(blend, state.left, LEFT, ages[blend.order[state.left]])
    while state.left <= state.right and ages[blend.order[state.right]] >= 0.0:
        _carry(blend, state.right, RIGHT, ages[blend.order[state.right]])


@compiled
def _carry(blend: Blend, position: int, side: int, age: float) -> None:
    state = blend.state[0]
    urgent, tokens = state.urgent, state.backlog
    row = _enter(blend, position, side)
    if age <= 0.0:
        return
    start(blend.flight, row)
    if state.gated:
        let_out(blend.gate, row)
    state.urgent, state.backlog = urgent, tokens
    _start_decoding(blend, row)
    one = _record(blend, row)
    one.since -= int(age)
    state.reading += one.going * age
    # From here on its age is looked up, as long as it runs.
    if blend.beliefs.known[row] == 0.0:
        forget(blend.beliefs, blend.beliefs.label[row], age)


@compiled
def _put_inside(blend: Blend, row: int, tokens: int, side: int) -> None:
    state, beliefs = blend.state[0], blend.beliefs
    blend.inside.place[row] = state.inside
    one = blend.inside.records[state.inside]
    one.row, one.label, one.kind = row, beliefs.label[row], blend.forecast.kind[row]
    one.copies, one.going = blend.copies[row], float(blend.copies[row])
    one.prompt, one.uncached, one.known = blend.prompt[row], float(tokens), beliefs.known[row]
    one.memory_side, one.bin, one.since = side == RIGHT, 0, NOT_YET
    state.inside += 1


@compiled
def _record(blend: Blend, row: int) -> Any:
    """Return the record of a row inside."""
    return blend.inside.records[blend.inside.place[row]]


@compiled
def _fits_now(blend: Blend, tokens: float) -> bool:
    counts = blend.flight.counts[0]
    used = counts.kv_tokens + blend.state[0].backlog
    return used + tokens <= FULL * counts.max_kv_tokens


@compiled
def _right_fits(blend: Blend, position: int) -> bool:
    """Tell whether a row of the memory side fits beside the reserve at every horizon."""
    state = blend.state[0]
    row, tokens = blend.order[position], float(_uncached(blend, position))
    memory = blend.flight.counts[0].max_kv_tokens - state.reserve
    memory /= state.scale * state.doubt
    fit = _fits_now(blend, tokens) and fits(
        blend.forecast, blend.beliefs, row, tokens, state.caution, memory
    )
    if not fit:
        state.retry = state.step + RETRY_STEPS
    return fit


@compiled
def _left_fits(blend: Blend, position: int) -> bool:
    """Tell whether a row of the compute side fits into the reserve or what the right leaves."""
    state = blend.state[0]
    row, tokens = blend.order[position], float(_uncached(blend, position))
    if not _fits_now(blend, tokens):
        return False
    memory = blend.flight.counts[0].max_kv_tokens
    needs = tokens + blend.copies[row] * expected(blend.beliefs, row)
    room = max(state.reserve, SAFE * memory - state.peak)
    if state.scale * (state.used_left + needs) <= room:
        return True
    if needs > 0.5 * room:
        state.blocked = needs + 4096.0
    return state.used_left < 1.0 and needs < 0.98 * memory


@compiled
def _plan_when_due(blend: Blend) -> None:
    """Look over all that is inside and all that is left: balance, forecast, reserve."""
    state = blend.state[0]
    if state.step - state.planned < PLAN_STEPS:
        return
    state.planned = state.step
    if state.step - state.estimated >= ESTIMATE_STEPS:
        state.estimated = state.step
        _estimate(blend)
    if state.several:
        _set_going(blend)
    sight = look_over(
        blend.forecast,
        blend.beliefs,
        blend.inside.records[: state.inside],
        state.step,
        state.estimated,
    )
    _set_ratio(blend, sight)
    _set_scale(blend, sight)
    state.memory_steps = _memory_steps(blend, sight)
    state.answer_steps = _answer_steps(blend)
    _set_caution(blend, sight)
    state.doubt = _doubt(blend)
    state.peak = state.scale * peak(blend.forecast, state.caution)
    if state.left <= state.right:
        _set_reserve(blend)


@compiled
def _set_ratio(blend: Blend, sight: Sight) -> None:
    """Set what is left to compute, and its seconds over those left to read the cache."""
    state = blend.state[0]
    tokens, reads = state.backlog + sight.decodes, sight.reads
    for one in range(len(blend.waiting)):
        if blend.waiting[one, 0] > 0.0:
            compute, read = _class_work(blend, one)
            tokens += compute
            reads += read
    state.remaining_tokens = tokens
    state.ratio = tokens * blend.speed.token_s / max(reads * blend.speed.read_s, 1e-9)


@compiled
def _set_going(blend: Blend) -> None:
    """Set how many sequences of each row inside go on: one at least, for the row has not ended."""
    state = blend.state[0]
    state.decoders, state.reading = 0.0, 0.0
    for i in range(state.inside):
        one = blend.inside.records[i]
        n, age = float(one.copies), age_of(one, state.step)
        alive = alive_at(blend.beliefs, one.row, age)
        some = 1.0 - (1.0 - alive) ** n
        one.going = max(n * alive / some, 1.0) if some > 1e-9 else 1.0
        if decodes(one):
            state.decoders += one.going
            state.reading += one.going * (one.prompt + age)


@compiled
def _set_scale(blend: Blend, sight: Sight) -> None:
    """Set how much more the cache holds than what is believed of the rows inside."""
    state, counts = blend.state[0], blend.flight.counts[0]
    believed = sight.held - state.backlog
    # Blocks that are not full, and prefixes whose row has ended, are nothing to speak of.
    if counts.kv_tokens <= 0 or believed < LEAST_RESERVE * counts.max_kv_tokens:
        return
    scale = counts.kv_tokens / believed
    like = abs(scale - 1.0) <= LIKE
    state.scale = 1.0 if like else min(max(scale, LEAST_SCALE), MOST_SCALE)


@compiled
def _estimate(blend: Blend) -> None:
    blend.ages[:] = blend.beliefs.censored
    for i in range(blend.state[0].inside):
        one = blend.inside.records[i]
        if decodes(one):
            blend.ages[one.label, age_bin(one, age_of(one, blend.state[0].step))] += one.going
    estimate_all(blend.beliefs, blend.ages)


@compiled
def _memory_bound(blend: Blend, one: int) -> bool:
    compute, read = _class_work(blend, one)
    density = compute * blend.speed.token_s / max(read * blend.speed.read_s, 1e-12)
    return density < min(blend.state[0].ratio, 1.0)


@compiled
def _class_held(blend: Blend, one: int) -> float:
    """Return the tokens that what has not entered of a class holds, over all its steps."""
    sums = blend.waiting[one]
    mean, square = _moments(blend, one)
    return sums[1] * mean + sums[0] * square / 2


@compiled
def _memory_steps(blend: Blend, sight: Sight) -> float:
    """Return the steps that the memory side still needs: its tokens held, or its last answer."""
    held, longest = sight.token_steps, last_step(blend.forecast)
    for one in range(len(blend.waiting)):
        if blend.waiting[one, 0] > 0.0 and _memory_bound(blend, one):
            held += _class_held(blend, one)
            longest = max(longest, _last_waiting(blend, one))
    memory = blend.flight.counts[0].max_kv_tokens - blend.state[0].reserve
    return max(held / (0.9 * memory), longest)


@compiled
def _answer_steps(blend: Blend) -> float:
    """Return the steps that the last answer of what has not entered is expected to take."""
    longest = 1.0
    for one in range(len(blend.waiting)):
        if blend.waiting[one, 0] > 0.0:
            longest = max(longest, _last_waiting(blend, one))
    return longest


@compiled
def _set_caution(blend: Blend, sight: Sight) -> None:
    """Set how much of the memory is risked.

    Where the time goes into steps that only read the weights, fewer of them are worth more than
    what preempted rows compute again, which rides free. A row that waits may begin in another
    replica, and one that has begun stays: where operators overlap, a replica risks nothing.
    """
    state, speed = blend.state[0], blend.speed
    held = sight.token_steps
    for one in range(len(blend.waiting)):
        if blend.waiting[one, 0] > 0.0:
            held += _class_held(blend, one)
    steps = max(held / (0.9 * blend.flight.counts[0].max_kv_tokens), state.memory_steps)
    others = state.remaining_tokens * speed.token_s
    if speed.overlapped:
        others = max(others, others / max(state.ratio, 1e-9))
    weights = steps * speed.weights_s / max(others, 1e-9)
    least = LEAST_WEIGHTS_BESIDE if speed.overlapped else LEAST_WEIGHTS
    risk = min(max((weights - least) / WEIGHTS_RANGE, 0.0), 1.0)
    state.risk = 0.0 if speed.overlapped and speed.movable else risk
    state.caution = speed.spread - state.risk * (speed.spread + BOLDEST)


@compiled
def _doubt(blend: Blend) -> float:
    """Return how much more than forecast the rows at the right pointer may come to hold.

    Their lengths vary together, where all that is known of them is the few that ended before their
    sample was cut off; a cache that is full in the end starves the compute side beside it.
    """
    state, beliefs = blend.state[0], blend.beliefs
    if not blend.speed.overlapped or state.left > state.right:
        return 1.0
    row = blend.order[state.right]
    one = beliefs.label[row]
    if not beliefs.doubted[one] or beliefs.known[row] > 0.0:
        return 1.0
    return 1.0 + DOUBT * max(state.caution, 0.0) / np.sqrt(1.0 + beliefs.events[one].sum())


@compiled
def _last_waiting(blend: Blend, one: int) -> float:
    """Return the last step at which half an answer of a class that has not begun is expected."""
    count, longest = blend.waiting[one, 0], 0.0
    if blend.waiting[one, 3] > 0.0:
        return blend.waiting[one, 3] / count
    horizon = blend.forecast.horizon
    for j in range(len(horizon)):
        b = bin_of(horizon[j])
        if count * blend.beliefs.survival[one, b] < 0.5:
            break
        longest = horizon[j]
    return longest


@compiled
def _set_reserve(blend: Blend) -> None:
    state, speed = blend.state[0], blend.speed
    # Of the class, never of the row at the pointer, which may be a giant.
    one = blend.beliefs.label[blend.order[state.left]]
    uncached = blend.waiting[one, 1] / blend.waiting[one, 0]
    length, square = _moments(blend, one)
    memory = blend.flight.counts[0].max_kv_tokens
    pace = min(_target(blend), float(blend.flight.counts[0].step_tokens))
    held = length * uncached + square / 2
    reserve = 1.3 * pace / (uncached + length) * held + 2.0 * pace
    least = LEAST_RESERVE
    if speed.overlapped:
        least += (1.0 - state.risk) * (BESIDE_RESERVE - LEAST_RESERVE)
    reserve = min(max(reserve, least * memory), MOST_RESERVE * memory)
    if state.blocked > 0.0:
        reserve = max(reserve, min(state.blocked, 0.9 * memory))
    state.blocked = 0.0
    compute, read = _class_work(blend, one)
    density = compute * speed.token_s / max(read * speed.read_s, 1e-12)
    state.lone = density < 1.15 * state.ratio and state.ratio < 0.5
    state.reserve = 0.0 if state.lone or not speed.reserved else reserve


@compiled
def _target(blend: Blend) -> float:
    """Return the tokens that the next step should compute, decodes included."""
    state, speed = blend.state[0], blend.speed
    free = speed.weights_s / speed.token_s
    if state.memory_steps < 1.0:
        if speed.overlapped:
            return max(state.remaining_tokens / state.answer_steps, free)
        return float(UNPACED)
    if speed.overlapped:
        beside = min(max(state.ratio, LEAST_BESIDE), MOST_BESIDE)
        return max(beside * state.reading * speed.read_s / speed.token_s, free)
    tokens, steps = state.remaining_tokens, state.memory_steps
    if speed.calibrated and free >= LEAST_FREE:
        return free
    return max(tokens / (1.5 * steps), min(free, tokens / (0.8 * steps)))


@compiled
def _pace(blend: Blend) -> int:
    """Return the prompt tokens that the next step should compute."""
    state = blend.state[0]
    if state.left > state.right or state.lone or not blend.speed.paced:
        return UNPACED
    most = blend.flight.counts[0].step_tokens - state.decoders
    target = _target(blend)
    if state.preempted:
        target = max(target, blend.speed.weights_s / blend.speed.token_s)
    return int(max(min(target - state.decoders, float(most)), 1.0))


@compiled
def withdraw_blended(blend: Blend, row: int) -> None:
    """Take a row back that was admitted last and not submitted."""
    state, tokens = blend.state[0], float(blend.flight.tokens[row])
    memory_side = _leave(blend, row)
    withdraw(blend.flight, row)
    state.backlog = max(state.backlog - tokens, 0.0)
    if state.gated:
        let_out(blend.gate, row)
    if memory_side:
        state.urgent = max(state.urgent - tokens, 0.0)
        # The forecast is made anew: it holds sums alone.
        state.planned = state.step - PLAN_STEPS


@compiled
def _leave(blend: Blend, row: int) -> bool:
    """Count a row out of what is inside, and free the room that it took.

    Tell whether it was one of the memory side.
    """
    state, memory_side = blend.state[0], _record(blend, row).memory_side != 0
    take_out(blend.inside, row, state.inside)
    state.inside -= 1
    if memory_side:
        state.retry = 0
    else:
        state.used_left -= blend.charge[row]
    return memory_side


@compiled
def _learn(blend: Blend, row: int, tokens: float, age: float) -> None:
    """Learn the lengths of a row's sequences: of several, the last to end ran to the row's age."""
    n = float(blend.copies[row])
    if n == 1.0:
        learn(blend.beliefs, row, tokens, 1.0)
        return
    mean = tokens / n
    # Fewer tokens than sequences: who counted did not count all of them.
    longest = max(min(max(age, mean), tokens - n + 1.0), 1.0)
    learn(blend.beliefs, row, longest, 1.0)
    learn(blend.beliefs, row, max((tokens - longest) / (n - 1.0), 1.0), n - 1.0)


# One call for a whole report: handing all of the state over costs as much as what is done with it.
@compiled
def hear_blended(
    blend: Blend,
    ended: Any,
    answers: Any,
    running: int,
    waiting: int,
    kv_tokens: int,
    steps: int,
    prefill_tokens: int,
    decode_tokens: int,
    prefilled: int,
) -> None:
    """Take in a report; *answers*: the tokens of all sequences of each row that has *ended*."""
    state = blend.state[0]
    state.step += steps
    state.reading += state.decoders * steps
    for i in range(len(ended)):
        note_finished(blend.flight, ended[i])
        _finish(blend, ended[i], answers[i])
    note_report(blend.flight, running, waiting, kv_tokens, steps)
    _observe(blend, prefill_tokens, decode_tokens, prefilled, waiting)


@compiled
def _finish(blend: Blend, row: int, tokens: int) -> None:
    """Take in that a row has ended, with so many answer tokens."""
    state, one = blend.state[0], _record(blend, row)
    age = age_of(one, state.step)
    if decodes(one):
        state.decoders -= one.going
        state.reading -= one.going * (one.prompt + age)
    _leave(blend, row)
    if tokens > 0:
        _learn(blend, row, float(tokens), age)


@compiled
def _observe(
    blend: Blend, prefill_tokens: int, decode_tokens: int, prefilled: int, waiting: int
) -> None:
    """Take in what a report has moved; its finished rows have been noted before."""
    state, steps = blend.state[0], blend.flight.counts[0].steps
    row = next_started(blend.flight)
    while row >= 0:
        if not state.gated:
            _start_decoding(blend, row)
        row = next_started(blend.flight)
    state.preempted = waiting > blend.flight.counts[0].queued
    if state.gated:
        gate, moved = blend.gate, prefill_tokens + decode_tokens > 0
        done = note_prefill(gate, blend.flight, prefill_tokens, prefilled, state.step, steps, moved)
        for i in range(done):
            _start_decoding(blend, gate.rows[gate.state[0].prefilling + i])
        state.backlog = backlog(gate)
        return
    # What the engine says waits has not been computed, whatever was believed of its prefixes.
    state.backlog = max(state.backlog - prefill_tokens, float(blend.flight.counts[0].queued_tokens))
    state.urgent = min(max(state.urgent - prefill_tokens, 0.0), state.backlog)
    if waiting == 0 and prefill_tokens < state.pace:
        # It could have computed more, so nothing is left to compute.
        state.backlog = state.urgent = 0.0


@compiled
def _start_decoding(blend: Blend, row: int) -> None:
    state, one = blend.state[0], _record(blend, row)
    one.since = state.step
    state.decoders += one.going
    state.reading += one.going * one.prompt
