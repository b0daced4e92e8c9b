"""What will the rows inside hold at every horizon ahead? In compiled form.

Symbols: u prompt tokens that a row computes and holds once, n its sequences, x their age, s steps
ahead, S the survival of its class. A row that runs has at least one sequence left, so with
D = 1 - (1 - S(x))^n its prompt is held at x + s with probability P = (1 - (1 - S(x + s))^n) / D,
and K sequences go on:

    E[K] = n·S(x + s) / D        Var[K] = (n·S·(1 - S) + n²·S²) / D - E[K]²,  S at x + s
    load = P·u + E[K]·(x + s)    variance = u²·P(1 - P) + 2u(x + s)·E[K](1 - P) + (x + s)²·Var[K]

Rows of a kind, a class and a number of sequences, share these by age. So a row only adds its part
to the ages at the two bin edges around its own, and kinds are forecast edge by edge: the time goes
with the kinds and not with the rows.
"""

from typing import Any, NamedTuple

import numpy as np

from blend.core.kernels.compiled import compiled
from blend.core.kernels.inside import age_bin, age_of
from blend.core.kernels.survival import BINS, EDGE, GONE, Beliefs, alive_after, survives

NO_KIND = -1
_LEAST = 1e-3
"""Probability below which what a row holds is left out."""

# Sums over the rows at an edge, weighted by nearness: 1, u, u², x, ux, x².
_SUMS = 6
# Sums over rows of known length, by the horizon at which they have ended: u, n, n·x.
_KNOWN_SUMS = 3


class Forecast(NamedTuple):
    """The forecast at h horizons; k kinds. ``marks`` holds the touched edges and the estimate."""

    horizon: Any
    middle: Any
    load: Any  # mean and variance of the tokens held, and the sequences that go on
    variance: Any
    living: Any
    kind: Any  # by row: NO_KIND where the length is known
    of_class: Any  # by kind
    copies: Any  # by row: n
    kind_copies: Any
    held: Any  # (k, edges, h): P, E[K] and Var[K]
    going: Any
    spread: Any
    until: Any  # (k, edges): horizons worth looking at
    stamp: Any  # (k, edges): the estimate they are of
    sums: Any
    known: Any
    touched: Any
    marks: Any


def new_forecast(beliefs: Beliefs, copies: Any) -> Forecast:
    """Return the forecast of an empty engine."""
    horizon = _horizons(float(max(beliefs.limit.max(initial=1.0), beliefs.known.max(initial=1.0))))
    middle = horizon.copy()
    middle[:-1] = 0.5 * (horizon[:-1] + horizon[1:])
    h, edges = len(horizon), BINS + 1
    pairs = np.stack([beliefs.label.astype(np.int64), copies.astype(np.int64)], axis=1)
    unknown = beliefs.known == 0
    kinds, number = np.unique(pairs[unknown], axis=0, return_inverse=True)
    kind = np.full(len(copies), NO_KIND, np.int32)
    kind[unknown] = number.reshape(-1)
    k = max(len(kinds), 1)
    return Forecast(
        horizon,
        middle,
        np.zeros(h),
        np.zeros(h),
        np.zeros(h),
        kind,
        kinds[:, 0].astype(np.int32),
        copies.astype(np.int32),
        kinds[:, 1].astype(np.int32),
        # Pages that no row touches are never made.
        np.zeros((k, edges, h), np.float32),
        np.zeros((k, edges, h), np.float32),
        np.zeros((k, edges, h), np.float32),
        np.zeros((k, edges), np.int32),
        np.full((k, edges), -1, np.int64),
        np.zeros((k, edges, _SUMS)),
        np.zeros((h + 1, _KNOWN_SUMS)),
        np.empty((k * edges, 2), np.int32),
        np.zeros(2, np.int64),
    )


def _horizons(longest: float) -> Any:
    grid = [0, 4, 8, 12, 16, 20, 24, 32]
    while grid[-1] < longest:
        grid.append(int(grid[-1] * 1.12) + 1)
    return np.array(grid, np.float64)


class Sight(NamedTuple):
    """What is left of the rows inside, of all their sequences.

    Tokens to decode; tokens to read; tokens held over the steps to come, of the memory side; and
    tokens held now.
    """

    decodes: float
    reads: float
    token_steps: float
    held: float


# One function with plain arrays: a call with all of the state costs as much as a row does.
@compiled
def look_over(  # noqa: PLR0912, PLR0915 - the comment above says why it is one
    forecast: Forecast, beliefs: Beliefs, inside: Any, step: int, estimate: int
) -> Sight:
    """Look over all rows *inside* once, by their records; forecast those of the memory side.

    *estimate* numbers what is believed.
    """
    survival, area = beliefs.survival, beliefs.area
    sums, touched, marks = forecast.sums, forecast.touched, forecast.marks
    begin(forecast, estimate)
    decodes, reads, token_steps, held = 0.0, 0.0, 0.0, 0.0
    for i in range(len(inside)):
        row = inside[i]
        age = age_of(row, step)
        tokens, n = row.uncached, row.going
        certain = row.known > 0.0
        b, share, overdue = 0, 0.0, False
        if certain:
            rest = row.known - age
            overdue = rest <= 0.0
            rest = max(rest, 1.0)
        else:
            one = row.label
            b = age_bin(row, age)
            share = min(max((age - EDGE[b]) / (EDGE[b + 1] - EDGE[b]), 0.0), 1.0)
            now = survival[one, b] + (survival[one, b + 1] - survival[one, b]) * share
            overdue = now < GONE
            if overdue:
                rest = age * 0.15 + 4.0
            else:
                rest = max(EDGE[b + 1] - age, 0.0) * 0.5 * (now + survival[one, b + 1])
                rest = max((area[one, b + 1] + rest) / now, 1.0)
        # E[d²] of a wide distribution is more than the square of its mean.
        decodes += n * rest
        reads += n * (rest * (row.prompt + age) + (0.5 if certain else 0.75) * rest * rest)
        held += tokens + n * age
        if not row.memory_side:
            continue
        token_steps += rest * (tokens + n * (age + 0.5 * rest))
        if overdue:
            _put_alone(forecast, beliefs, row.row, tokens, age)
        elif certain:
            _put_known(forecast.known, forecast.horizon, rest, tokens, row.copies, age)
        else:
            _put_at(sums, touched, marks, row.kind, b, 1.0 - share, tokens, age)
            _put_at(sums, touched, marks, row.kind, b + 1, share, tokens, age)
    add_up(forecast, beliefs)
    return Sight(decodes, reads, token_steps, held)


@compiled
def begin(forecast: Forecast, estimate: int) -> None:
    """Begin anew with no rows."""
    forecast.load[:] = 0.0
    forecast.variance[:] = 0.0
    forecast.living[:] = 0.0
    forecast.marks[0] = 0
    forecast.marks[1] = estimate


@compiled
def _put_known(
    known: Any, horizon: Any, rest: float, tokens: float, copies: int, age: float
) -> None:
    sums = known[np.searchsorted(horizon, rest)]
    sums[0] += tokens
    sums[1] += copies
    sums[2] += copies * age


@compiled
def _put_at(
    sums: Any,
    touched: Any,
    marks: Any,
    kind: int,
    edge: int,
    weight: float,
    tokens: float,
    age: float,
) -> None:
    if weight <= 0.0:
        return
    if sums[kind, edge, 0] == 0.0:
        touched[marks[0], 0] = kind
        touched[marks[0], 1] = edge
        marks[0] += 1
    sums[kind, edge, 0] += weight
    sums[kind, edge, 1] += weight * tokens
    sums[kind, edge, 2] += weight * tokens * tokens
    sums[kind, edge, 3] += weight * age
    sums[kind, edge, 4] += weight * tokens * age
    sums[kind, edge, 5] += weight * age * age


@compiled
def _put_alone(forecast: Forecast, beliefs: Beliefs, row: int, tokens: float, age: float) -> None:
    """Add a row that runs past all that is believed: one sequence is left of it."""
    for j in range(len(forecast.horizon)):
        alive = alive_after(beliefs, row, age, forecast.horizon[j])
        if alive < _LEAST:
            return
        held = tokens + age + forecast.middle[j]
        forecast.load[j] += alive * held
        forecast.variance[j] += alive * (1.0 - alive) * held * held
        forecast.living[j] += alive


@compiled
def add_up(forecast: Forecast, beliefs: Beliefs) -> None:
    """Add what was put in, by kind and age."""
    for i in range(forecast.marks[0]):
        kind, edge = forecast.touched[i, 0], forecast.touched[i, 1]
        _fill(forecast, beliefs, kind, edge)
        sums = forecast.sums[kind, edge]
        held, going = forecast.held[kind, edge], forecast.going[kind, edge]
        spread = forecast.spread[kind, edge]
        for j in range(forecast.until[kind, edge]):
            more, p, k = forecast.middle[j], float(held[j]), float(going[j])
            forecast.load[j] += p * sums[1] + k * (sums[3] + more * sums[0])
            forecast.variance[j] += (
                p * (1.0 - p) * sums[2]
                + 2.0 * k * (1.0 - p) * (sums[4] + more * sums[1])
                + spread[j] * (sums[5] + 2.0 * more * sums[3] + more * more * sums[0])
            )
            forecast.living[j] += k * sums[0]
        sums[:] = 0.0
    forecast.marks[0] = 0
    _add_known(forecast)


@compiled
def _add_known(forecast: Forecast) -> None:
    tokens, copies, ages = 0.0, 0.0, 0.0
    for j in range(len(forecast.horizon), 0, -1):
        tokens += forecast.known[j, 0]
        copies += forecast.known[j, 1]
        ages += forecast.known[j, 2]
        forecast.load[j - 1] += tokens + ages + copies * forecast.middle[j - 1]
        forecast.living[j - 1] += copies
    forecast.known[:] = 0.0


@compiled
def _fill(forecast: Forecast, beliefs: Beliefs, kind: int, edge: int) -> None:
    """Compute the probabilities of a kind at an edge, unless they are of this estimate."""
    if forecast.stamp[kind, edge] == forecast.marks[1]:
        return
    forecast.stamp[kind, edge] = forecast.marks[1]
    survival, n = beliefs.survival[forecast.of_class[kind]], float(forecast.kind_copies[kind])
    now, until = survival[edge], 0
    for j in range(len(forecast.horizon)):
        p, going, spread = 1.0, 1.0, 0.0
        if now >= GONE:
            alive = now
            if j:
                alive = survives(survival, EDGE[edge] + forecast.horizon[j])
            some = 1.0 - (1.0 - now) ** n
            p = (1.0 - (1.0 - alive) ** n) / some
            going = n * alive / some
            square = (n * alive * (1.0 - alive) + n * n * alive * alive) / some
            spread = max(square - going * going, 0.0)
        elif j:
            p = 0.0
        if p < _LEAST:
            break
        forecast.held[kind, edge, j] = p
        forecast.going[kind, edge, j] = going
        forecast.spread[kind, edge, j] = spread
        until = j + 1
    forecast.until[kind, edge] = until


@compiled
def fits(
    forecast: Forecast,
    beliefs: Beliefs,
    row: int,
    tokens: float,
    caution: float,
    memory: float,
) -> bool:
    """Tell whether a row that has not begun stays within *memory* beside what is inside."""
    for j in range(_until(forecast, beliefs, row)):
        mean, variance = _fresh(forecast, row, tokens, j)
        load = forecast.load[j] + mean
        if load + caution * np.sqrt(forecast.variance[j] + variance) > memory:
            return False
    return True


@compiled
def add(forecast: Forecast, beliefs: Beliefs, row: int, tokens: float) -> None:
    """Add a row that begins now."""
    for j in range(_until(forecast, beliefs, row)):
        mean, variance = _fresh(forecast, row, tokens, j)
        forecast.load[j] += mean
        forecast.variance[j] += variance


@compiled
def _until(forecast: Forecast, beliefs: Beliefs, row: int) -> int:
    """Return how many horizons a row that has not begun reaches."""
    kind = forecast.kind[row]
    if kind == NO_KIND:
        return int(np.searchsorted(forecast.horizon, beliefs.known[row]))
    _fill(forecast, beliefs, kind, 0)
    return int(forecast.until[kind, 0])


@compiled
def _fresh(forecast: Forecast, row: int, tokens: float, j: int) -> tuple[float, float]:
    """Return mean and variance of what a row that begins now holds at a horizon."""
    kind, more = forecast.kind[row], forecast.middle[j]
    if kind == NO_KIND:
        return tokens + forecast.copies[row] * more, 0.0
    p, k = float(forecast.held[kind, 0, j]), float(forecast.going[kind, 0, j])
    spread = float(forecast.spread[kind, 0, j])
    variance = p * (1.0 - p) * tokens * tokens + 2.0 * k * (1.0 - p) * tokens * more
    return p * tokens + k * more, variance + spread * more * more


@compiled
def peak(forecast: Forecast, caution: float) -> float:
    """Return the most that the rows are forecast to hold at any horizon."""
    most = 0.0
    for j in range(len(forecast.horizon)):
        most = max(most, forecast.load[j] + caution * np.sqrt(forecast.variance[j]))
    return most


@compiled
def last_step(forecast: Forecast) -> float:
    """Return the last horizon at which half a sequence is expected to go on."""
    longest = 0.0
    for j in range(len(forecast.horizon)):
        if forecast.living[j] < 0.5:
            break
        longest = forecast.horizon[j]
    return longest
