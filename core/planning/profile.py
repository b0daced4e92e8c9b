"""What does a step cost on this machine? Fitted to what runs have measured.

    seconds = o·steps + c·max(n, K) + b·decodes' share of n + r·reads       summed over a stretch

o: overhead of a step; n: its tokens; c, b: of a prefill and a decode token; K: the tokens that ride
free on reading the weights, W = c·K; r: to read the cache of one token. All are at least 0. K is
that of the device's datasheet unless the measurements say clearly otherwise: where no step was
near it, overhead and weights cannot be told apart. A stretch does not say how its prompt tokens
were spread over its steps: evenly, as under a pace, or in a few large ones, as without. That which
fits better is believed.

Lines that something else held up are outliers: the fit weighs them down.

One short run leaves open what is overhead, what a knee, and what reads; another order of the same
requests then looks dearer or cheaper than it is. So several runs are fitted together. A machine is
not as fast at all times: each run has a factor of its own, and the costs are at the last one's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations
from typing import Literal

import numpy as np
import numpy.typing as npt

from blend.core.planning.engine_model import EngineModel, StepCosts
from blend.core.planning.tree import Floats

LEAST_LINES, MOST_LINES = 4, 2000
KNEES = (0.0, 16.0, 32.0, 64.0, 96.0, 128.0, 192.0, 256.0, 384.0, 512.0)
CLEARLY, NOISE = 0.8, 0.01
"""The part of the misfit that another knee must come down to, to be believed; the part of a stretch
that no fit need explain."""

KEPT_LINES = 150
"""Of each run, to be fitted with later ones."""
HELD_UP = 2.0
"""A line that took so many times what is expected of it was held up by something else."""
SPEED_LINES = 4
"""So many lines of the common speed count beside those of a run."""

TOLERATED = 0.1
"""Mean share by which held-out stretches may be mispredicted."""

HOLD_OUT_EVERY = 3

Source = Literal["runs", "engine", "torch"]

_PASSES = 8
_OUTLIER = 2.5  # deviations
_ALIKE_SHARE = 1e-10
_ALIKE = 0.05  # how much a decode token is taken to cost what a prefill token does


@dataclass(frozen=True, slots=True)
class Measured:
    """Stretches of runs, (k,): what each did and how long it took.

    ``read_tokens``: cached tokens that the decodes of a step could have read, summed over steps.
    """

    seconds: Floats
    steps: Floats
    prefill_tokens: Floats
    decode_tokens: Floats
    read_tokens: Floats

    def __len__(self) -> int:
        return len(self.seconds)

    def faster(self, times: float) -> "Measured":
        """Return the same stretches on a machine so many times as fast."""
        return replace(self, seconds=self.seconds / times)


@dataclass(frozen=True, slots=True)
class Profile:
    """What steps cost on a machine, how much was measured to know it, and of what.

    ``error``: of the time of what was fitted. ``source``: runs of the model, an engine that ran
    for this alone, or the model's layers in torch.
    """

    costs: StepCosts
    lines: int
    steps: int
    seconds: float
    error: float
    source: Source = "runs"


@dataclass(frozen=True, slots=True)
class Validated:
    """A profile and how it predicts stretches that it was not fitted to.

    Arrays (k,): ``predicted_s`` of each stretch; ``held_out``, whether the fit did not see it.
    """

    profile: Profile
    measured: Measured
    predicted_s: Floats
    held_out: npt.NDArray[np.bool_]

    @property
    def off(self) -> Floats:
        """Return by which share of the measured time each stretch is mispredicted, (k,)."""
        off: Floats = self.predicted_s / self.measured.seconds - 1.0
        return off

    @property
    def held_out_error(self) -> float:
        """Return the mean share by which the held-out stretches are mispredicted."""
        return float(np.abs(self.off[self.held_out]).mean())

    @property
    def worst_error(self) -> float:
        """Return the largest share by which a held-out stretch is mispredicted."""
        return float(np.abs(self.off[self.held_out]).max())

    @property
    def holds(self) -> bool:
        """Tell whether the profile predicts what it did not see as well as one must."""
        return self.held_out_error <= TOLERATED


def measured_of(columns: Sequence[Sequence[float]]) -> Measured:
    """Return stretches from the lines of one run: time so far, steps, prefill, decodes, cache.

    What a stretch read lies between the cache in use before it and after it.
    """
    table = np.asarray(columns, np.float64).reshape(-1, 5)
    so_far, steps, prefill, decode, held = table.T
    seconds = np.diff(so_far, prepend=0.0)
    between = 0.5 * (held + np.concatenate([[0.0], held[:-1]])) if len(held) else held
    read = np.where(decode > 0, steps * between, 0.0)
    ran = (steps > 0) & (seconds > 0)
    return Measured(seconds[ran], steps[ran], prefill[ran], decode[ran], read[ran])


def thinned(measured: Measured, most: int = MOST_LINES) -> Measured:
    """Return stretches from all over a long run, at most so many."""
    every = -(-len(measured) // most) or 1
    return Measured(*(column[::every] for column in columns_of(measured)))


def joined(runs: Sequence[Measured]) -> Measured:
    """Return the stretches of several runs as those of one."""
    columns = zip(*map(columns_of, runs), strict=True)
    return Measured(*(np.concatenate(column) for column in columns))


def columns_of(measured: Measured) -> list[Floats]:
    """Return the columns of *measured*, each (k,), as `Measured` takes them."""
    return [getattr(measured, field.name) for field in fields(Measured)]


def fit(*runs: Measured, knee_tokens: float) -> Profile | None:
    """Return what steps cost at the speed of the last of *runs*, None for too few stretches.

    *knee_tokens* is the datasheet's K.
    """
    kept = [thinned(run) for run in runs if len(run)]
    found = _fitted(joined(kept), knee_tokens=knee_tokens) if kept else None
    if found is None:
        return None
    slower = [_times_as_long(run, *found) for run in kept]
    level = joined([run.faster(times) for run, times in zip(kept, slower, strict=True)])
    found = _fitted(level, knee_tokens=knee_tokens) or found
    profile, evenly = found
    return replace(profile, costs=profile.costs.times(_times_as_long(kept[-1], profile, evenly)))


def _times_as_long(run: Measured, profile: Profile, evenly: bool) -> float:
    """Return how many times as long as with the costs of *profile* a run took."""
    expected = predicted_s(run, profile.costs, evenly=evenly)
    took = float(np.minimum(run.seconds, HELD_UP * expected).sum())
    common = SPEED_LINES * float(expected.mean())
    return (took + common) / (float(expected.sum()) + common) if common else 1.0


def validated(measured: Measured, *, knee_tokens: float, source: Source) -> Validated | None:
    """Return the fit to all but every third stretch and what it says of all; None for too few."""
    measured = thinned(measured)
    held_out = np.arange(len(measured)) % HOLD_OUT_EVERY == 1
    found = _fitted(_some(measured, ~held_out), knee_tokens=knee_tokens)
    if found is None:
        return None
    profile, evenly = found
    predicted = predicted_s(measured, profile.costs, evenly=evenly)
    return Validated(replace(profile, source=source), measured, predicted, held_out)


def _some(measured: Measured, chosen: npt.NDArray[np.bool_]) -> Measured:
    return Measured(*(column[chosen] for column in columns_of(measured)))


def _fitted(measured: Measured, *, knee_tokens: float) -> tuple[Profile, bool] | None:
    """Return what steps cost, and whether prefill was spread evenly over them."""
    if len(measured) < LEAST_LINES or measured.prefill_tokens.sum() <= 0:
        return None
    found = {
        (knee, evenly): _fit_at(measured, knee, evenly=evenly)
        for knee in {knee_tokens, *KNEES}
        for evenly in (True, False)
    }
    by_misfit = sorted(found, key=lambda one: found[one][1])
    likely = next(one for one in by_misfit if one[0] == knee_tokens)
    best = by_misfit[0]
    noise_s = NOISE * float(measured.seconds.mean())
    clearer = found[best][1] + noise_s < CLEARLY * (found[likely][1] + noise_s)
    chosen = best if clearer else likely
    costs, _ = found[chosen]
    told = float(predicted_s(measured, costs, evenly=chosen[1]).sum())
    total = float(measured.seconds.sum())
    steps = int(measured.steps.sum())
    profile = Profile(costs, len(measured), steps, total, error=abs(told / total - 1.0))
    return profile, chosen[1]


def predicted_s(measured: Measured, costs: StepCosts, *, evenly: bool) -> Floats:
    """Return how long each stretch takes with these costs, its prefill spread so."""
    knee = costs.weights_s / costs.token_s if costs.token_s > 0 else 0.0
    coefficients = np.array([costs.overhead_s, costs.token_s, costs.decode_s, costs.read_s])
    seconds: Floats = _columns(measured, knee, evenly=evenly) @ coefficients
    return seconds


def with_costs(engine: EngineModel, costs: StepCosts) -> EngineModel:
    """Return *engine* with measured steps: of one kind, prefill attention in the cost of tokens.

    In the steps of several devices is also what these said to each other.
    """
    costs = costs.of_round(engine.hardware.stages)
    flops = 2.0 * engine.model.active_parameters / max(costs.token_s, 1e-12)
    bandwidth = engine.hardware.bandwidth_bytes_s
    if costs.read_s > 0.0:  # else reads took too little to be seen, and the datasheet stays
        bandwidth = engine.model.kv_bytes_per_token / costs.read_s
    hardware = replace(
        engine.hardware,
        flops=flops,
        bandwidth_bytes_s=bandwidth,
        source="steps measured on this machine",
        step_overhead_s=costs.overhead_s,
        weights_s=costs.weights_s,
        link_bytes_s=None,
    )
    return replace(
        engine,
        hardware=hardware,
        mode="sequential",
        overhead_s=costs.overhead_s,
        attention=False,
        measured=costs,
    )


def _columns(measured: Measured, knee: float, *, evenly: bool) -> Floats:
    """Return what the four costs are multiplied by, (k, 4), below a knee nothing of the tokens."""
    tokens = measured.prefill_tokens + measured.decode_tokens
    decodes = measured.decode_tokens / np.maximum(tokens, 1.0)
    computed = np.maximum(tokens, knee * measured.steps)
    if not evenly:
        small = np.maximum(measured.decode_tokens, knee * measured.steps)
        computed = measured.prefill_tokens + small
    return np.stack(
        [
            measured.steps,
            computed * (1.0 - decodes),
            computed * decodes,
            measured.read_tokens,
        ],
        axis=1,
    )


def _fit_at(measured: Measured, knee: float, *, evenly: bool) -> tuple[StepCosts, float]:
    """Return the costs for one knee, and the misfit: seconds a line, outliers counted little."""
    columns, seconds = _columns(measured, knee, evenly=evenly), measured.seconds
    alike = _ALIKE * float(np.abs(columns[:, 1:3]).sum(axis=0).max()) / len(columns) ** 0.5
    tie = np.array([[0.0, alike, -alike, 0.0]])
    weight, misfit, deviation = np.ones(len(seconds)), seconds, 0.0
    found = np.zeros(4)
    for _ in range(_PASSES):
        rows = np.vstack([columns * weight[:, None], tie])
        found = _least_squares(rows, np.append(seconds * weight, 0.0))
        misfit = np.abs(columns @ found - seconds)
        deviation = 1.4826 * float(np.median(misfit)) + 1e-9
        weight = np.sqrt(np.minimum(1.0, _OUTLIER * deviation / np.maximum(misfit, 1e-12)))
    overhead_s, token_s, decode_s, read_s = found.tolist()
    costs = StepCosts(overhead_s, token_s, decode_s, read_s, weights_s=token_s * knee)
    return costs, float(np.minimum(misfit, _OUTLIER * deviation).mean())


def _least_squares(columns: Floats, values: Floats) -> Floats:
    """Return the coefficients, none negative, of the least squares: the best over all supports."""
    size = np.linalg.norm(columns, axis=0)
    scaled = columns / np.where(size > 0, size, 1.0)
    # Columns that say the same leave open how they share: alike.
    gram, sides = scaled.T @ scaled + _ALIKE_SHARE * np.eye(len(size)), scaled.T @ values
    best, least = np.zeros(len(size)), 0.0
    present = np.flatnonzero(size > 0).tolist()
    for count in range(1, len(present) + 1):
        some = np.array(list(combinations(present, count)))
        among = gram[some[:, :, None], some[:, None, :]]
        found = np.linalg.solve(among, sides[some][:, :, None])[:, :, 0]
        # By so much the squares that are left are less than those of the values.
        gain = np.where((found >= 0).all(axis=1), (found * sides[some]).sum(axis=1), 0.0)
        if gain.max() > least:
            one = int(gain.argmax())
            best = np.zeros(len(size))
            best[some[one]] = found[one] / size[some[one]]
            least = float(gain[one])
    return best
