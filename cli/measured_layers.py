"""What do the steps of a model's layers take in torch, and what does that say of the device?"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from blend.cli.calibrating import CalibrationModel
from blend.core.errors import RESUMABLE, BlendError
from blend.core.planning.calibration import (
    BESIDE,
    BESIDE_SHARES,
    NOTHING,
    MachineFigures,
    StepPoint,
    cache_tokens_of,
    machine_figures,
    step_costs,
    step_points,
)
from blend.core.planning.engine_model import StepCosts, engine_model
from blend.core.planning.hardware import Hardware
from blend.core.planning.interference import fit_interference
from blend.core.planning.parameters import LayerWidths, layer_widths
from blend.core.planning.profile import Validated
from blend.core.planning.ways import free_tokens

if TYPE_CHECKING:
    from blend.core.engines.torch_steps import TorchSteps

LEAST_ROUNDS, TELL_S = 2, 20.0
_ROUNDS = 8  # to aim at, by measuring fewer layers of a large model
_PROBED_LAYERS, _PROBED_S = 2, 0.2
_LEAST_LAYERS = 8  # that their weights are not all in the caches of a processor
_THIN = 8

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class LayersMeasured:
    """The steps of a model's layers in torch, their fit, and what they say of the device."""

    points: Sequence[StepPoint]
    found: Validated
    figures: MachineFigures
    layers: int
    rounds: int


def measure_layers(
    model: CalibrationModel,
    device: Literal["cpu", "cuda"],
    *,
    seconds: float,
    hardware: Hardware,
    engine: StepCosts | None,
    tell: Tell,
) -> LayersMeasured:
    """Measure the steps of a model for about *seconds*; the fastest round of each counts.

    Whatever else a machine does only adds to a step, never takes from it. ``engine``: what steps
    cost an engine with this model, None where none has run. BlendError where the layers have no
    room, or their steps do not grow with their tokens.
    """
    widths, points = layer_widths(model.config, name=model.name), step_points(many=device == "cuda")
    nothing_s = _nothing_s(widths, device)
    layers = _affordable_layers(widths, device, points, seconds / _ROUNDS)
    steps = _steps(widths, device, cache_tokens_of(points), layers)
    best_s, rounds = _fastest_of_rounds(steps, points, seconds=seconds, tell=tell)
    knee = free_tokens(engine_model(hardware, model.shape(on_cpu=device == "cpu")))
    found = step_costs(points, best_s.tolist(), knee_tokens=knee)
    if found.profile.costs.token_s <= 0.0:
        raise BlendError(
            "the machine cannot be measured: steps of many tokens took no longer than of few",
            hint="calibrate again when nothing else runs, or with more `--seconds`",
            exit_code=RESUMABLE,
        )
    figures = machine_figures(
        found,
        widths,
        kv_bytes_per_token=steps.kv_bytes_per_token,
        weight_bytes=steps.weight_bytes,
        one_token_s=float(best_s[0]),
        nothing_s=nothing_s,
        engine=engine,
        interference=fit_interference(*np.array(steps.at_once(BESIDE, BESIDE_SHARES)).T),
    )
    return LayersMeasured(points, found, figures, steps.layers, rounds)


def _fastest_of_rounds(
    steps: "TorchSteps", points: Sequence[StepPoint], *, seconds: float, tell: Tell
) -> tuple[npt.NDArray[np.float64], int]:
    """Return the fastest seconds of each point, and in how many rounds of about *seconds*."""
    began_s = told_s = time.monotonic()
    best_s = np.full(len(points), np.inf)
    rounds = 0
    while rounds < LEAST_ROUNDS or _another_fits(began_s, seconds, rounds):
        best_s = np.minimum(best_s, [steps.seconds(point) for point in points])
        rounds += 1
        if time.monotonic() - told_s > TELL_S:
            told_s = time.monotonic()
            tell(f"{rounds} rounds measured")
    return best_s, rounds


def _another_fits(began_s: float, seconds: float, rounds: int) -> bool:
    spent_s = time.monotonic() - began_s
    return spent_s * (1.0 + 1.0 / rounds) < seconds


def _nothing_s(widths: LayerWidths, device: Literal["cpu", "cuda"]) -> float:
    """Return the seconds of a step with as many layers and next to nothing to compute in them."""
    thin = replace(widths, hidden=_THIN, heads=1, kv_heads=1, head_size=_THIN, inner=1)
    steps = _steps(replace(thin, vocabulary=_THIN), device, 1, widths.layers)
    return min(steps.seconds(NOTHING) for _ in range(_ROUNDS))


def _affordable_layers(
    widths: LayerWidths,
    device: Literal["cpu", "cuda"],
    points: Sequence[StepPoint],
    round_s: float,
) -> int:
    """Return how many layers can be measured at every point in *round_s*."""
    probed_steps = _steps(widths, device, 1, _PROBED_LAYERS)
    large, small = StepPoint(64, 0, 0), NOTHING
    each_s = [probed_steps.seconds(one, least_s=_PROBED_S) for one in (large, small)]
    tokens = sum(point.prefill + point.decodes for point in points)
    whole_s = each_s[0] / large.prefill * tokens + each_s[1] * len(points)
    return max(_LEAST_LAYERS, int(widths.layers * round_s / whole_s))


def _steps(
    widths: LayerWidths, device: Literal["cpu", "cuda"], cache_tokens: int, layers: int
) -> "TorchSteps":
    from blend.core.engines.torch_steps import TorchSteps

    try:
        return TorchSteps(
            widths,
            device,
            cache_tokens=cache_tokens,
            most_layers=layers,
            clock=time.perf_counter,
        )
    except RuntimeError as error:  # also torch's own of a device without memory
        raise BlendError(
            f"the layers of the model cannot be measured: {error}",
            hint="name a smaller model with `--model`, or free memory",
        ) from error
