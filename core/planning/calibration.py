"""Which steps show what a machine can do, and what do they say of it?

Four kinds of steps are measured: products alone, from one token (where reading the weights is the
floor) to many; decodes that read a cache; both together; and steps with next to nothing in them,
which leave the overhead. Each counts the same, however long it takes: a fit to a step of 500 tokens
alone would say nothing of one of 5.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from blend.core.planning.engine_model import StepCosts
from blend.core.planning.interference import Interference
from blend.core.planning.parameters import LayerWidths
from blend.core.planning.profile import Measured, Validated, validated


@dataclass(frozen=True, slots=True)
class StepPoint:
    """One step: prompt tokens, decodes, and the cached tokens that each of these reads."""

    prefill: int
    decodes: int
    context: int

    @property
    def read_tokens(self) -> int:
        """Return the cached tokens that the step reads."""
        return self.decodes * self.context


PRODUCTS = tuple(
    StepPoint(tokens, 0, 0) for tokens in (1, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 512)
)
MANY_PRODUCTS = tuple(StepPoint(tokens, 0, 0) for tokens in (768, 1024, 1536, 2048, 4096))
"""Where they take no time: on a GPU."""

READS = tuple(
    StepPoint(0, decodes, context) for decodes in (1, 4, 16, 32) for context in (64, 192, 512)
)
MANY_READS = tuple(StepPoint(0, decodes, 1024) for decodes in (64, 128, 256))
TOGETHER = (StepPoint(32, 8, 128), StepPoint(64, 16, 256), StepPoint(256, 32, 128))

BESIDE = StepPoint(64, 32, 512)
"""The step whose products and reads are tried at once."""

BESIDE_SHARES = (0.25, 0.5, 0.75, 1.0)
"""How long the lesser of them goes on, of the time of the greater."""

NOTHING = StepPoint(1, 0, 0)


@dataclass(frozen=True, slots=True)
class MachineFigures:
    """What a device does with the layers of a model, whatever the model.

    ``interference``: what of the lesser of compute and memory is left where both go on at once.
    """

    flops: float
    bandwidth_bytes_s: float
    overhead_s: float
    interference: Interference


def step_points(*, many: bool) -> tuple[StepPoint, ...]:
    """Return the steps to measure, *many* tokens where a device takes them in no time."""
    products = PRODUCTS + (MANY_PRODUCTS if many else ())
    reads = READS + (MANY_READS if many else ())
    return (*products, *reads, *TOGETHER)


def cache_tokens_of(points: Sequence[StepPoint]) -> int:
    """Return the tokens of the KV cache that these steps read."""
    return max(BESIDE.read_tokens, *(point.read_tokens for point in points))


def measured_points(points: Sequence[StepPoint], seconds: Sequence[float]) -> Measured:
    """Return measured steps as stretches of the same length, each of one kind of step."""
    each = np.array(seconds, np.float64)
    steps = np.maximum(np.rint(each.max() / each), 1.0)
    columns = np.array(
        [(point.prefill, point.decodes, point.read_tokens) for point in points], np.float64
    ).T
    return Measured(steps * each, steps, *(steps * column for column in columns))


def step_costs(
    points: Sequence[StepPoint], seconds: Sequence[float], *, knee_tokens: float
) -> Validated:
    """Return the fit to measured steps, every third held out."""
    found = validated(measured_points(points, seconds), knee_tokens=knee_tokens, source="torch")
    if found is None:
        raise ValueError(f"too few steps were measured: {len(points)}")
    return found


def machine_figures(
    found: Validated,
    widths: LayerWidths,
    *,
    kv_bytes_per_token: float,
    weight_bytes: float,
    one_token_s: float,
    nothing_s: float,
    interference: Interference,
    engine: StepCosts | None,
) -> MachineFigures:
    """Return what the steps say of the device.

    ``one_token_s``: the step of one token; ``nothing_s``: that of layers of next to no width.
    ``engine``: what steps cost an engine with these layers, None where none has run; what it takes
    beside them is its overhead.
    """
    costs = found.profile.costs
    flops = 2.0 * widths.layers * widths.layer_parameters / costs.token_s
    weights = weight_bytes / max(one_token_s - nothing_s, 1e-9)
    bandwidth = kv_bytes_per_token / costs.read_s if costs.read_s > 0.0 else weights
    beside_s = engine.overhead_s + engine.weights_s - one_token_s if engine else 0.0
    return MachineFigures(flops, bandwidth, max(nothing_s, beside_s), interference)
