"""What a calibration has found: the steps that were measured, their fit, and how far it is off."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from blend.cli.console import inert, out, table
from blend.cli.measured_layers import LayersMeasured
from blend.cli.profile_store import Entries, Section, profiles_path
from blend.cli.profiles import costs_in_words
from blend.cli.wording import counted, duration, percent, significant
from blend.core.planning.hardware import Hardware
from blend.core.planning.profile import Validated


class Part(NamedTuple):
    """One fit, and what it was fitted to."""

    name: str
    found: Validated


@dataclass(frozen=True, slots=True)
class Learnt:
    """What a calibration has found: ``steps`` of an engine, ``layers`` in torch, or both.

    ``key``: that of the model's own steps, None where the layers are of no model in particular.
    """

    device: str
    model: str
    key: str | None
    steps: Validated | None = None
    layers: LayersMeasured | None = None
    hardware: Hardware | None = None

    @property
    def parts(self) -> list[Part]:
        """Return the fits, that of the layers first."""
        found = [Part("the layers in torch", self.layers.found)] if self.layers else []
        if self.steps is not None:
            runs = self.steps.profile.source == "runs"
            found.append(Part("the job's runs" if runs else "the steps of vLLM", self.steps))
        return found

    def entries(self) -> Mapping[Section, Entries]:
        """Return what is to be kept, by section: what predicts what it did not see."""
        kept: dict[Section, Entries] = {}
        if self.layers and self.hardware and self.layers.found.holds:
            error = self.layers.found.held_out_error
            machine = {"hardware": asdict(self.hardware), "model": self.model, "error": error}
            kept["machines"] = {self.device: machine}
        for part in self.parts:
            if self.key is not None and part.found.holds:
                kept["calibrated"] = {self.key: asdict(part.found.profile)}
        return kept


def draw(learnt: Learnt) -> None:
    """Print what was measured, what was fitted to it, and how far that is off."""
    if learnt.layers and learnt.hardware:
        layers, machine = learnt.layers, learnt.hardware
        out.print(
            f"{inert(learnt.device)}, {inert(learnt.model)}: {counted(layers.layers, 'layers')} "
            f"measured, the fastest of {counted(layers.rounds, 'rounds')}\n"
        )
        out.print(_points_table(layers))
        out.print(
            f"\nproducts {machine.flops / 1e12:.4g} TFLOP/s, "
            f"reading {machine.bandwidth_bytes_s / 1e9:.4g} GB/s, "
            f"a step {duration(machine.step_overhead_s)}; both at once leave "
            f"{machine.interference} of the lesser"
        )
    for name, found in learnt.parts:
        out.print(
            f"{name}: {costs_in_words(found.profile.costs)}; {counted(len(found.measured))} "
            f"measured, {counted(int(found.held_out.sum()))} of them held out: "
            f"off by {percent(found.held_out_error)} on the average, "
            f"{percent(found.worst_error)} at worst"
        )


def _points_table(layers: LayersMeasured) -> Any:
    found = layers.found
    each = found.measured.seconds / found.measured.steps
    told = found.predicted_s / found.measured.steps
    rows = [
        (
            counted(point.prefill),
            counted(point.decodes),
            counted(point.read_tokens),
            significant(1000 * seconds),
            significant(1000 * predicted),
            f"{100 * off:+.1f} %",
            "held out" if held_out else "",
        )
        for point, seconds, predicted, off, held_out in zip(
            layers.points, each, told, found.off, found.held_out, strict=True
        )
    ]
    headers = ["prefill", "decodes", "cached", "ms", "fit", "off", ""]
    return table(headers, rows, numbers={0, 1, 2, 3, 4, 5})


def document(learnt: Learnt) -> dict[str, Any]:
    """Return the calibration as JSON values; docs/json.md says what each means."""
    layers = learnt.layers
    return {
        "device": learnt.device,
        "model": learnt.model,
        "path": str(profiles_path()),
        "hardware": asdict(learnt.hardware) if learnt.hardware else None,
        "layers": layers.layers if layers else None,
        "rounds": layers.rounds if layers else None,
        "fits": [_fit_document(part.found) for part in learnt.parts],
    }


def _fit_document(found: Validated) -> dict[str, Any]:
    measured = found.measured
    columns = {
        "steps": measured.steps,
        "prefill_tokens": measured.prefill_tokens,
        "decode_tokens": measured.decode_tokens,
        "read_tokens": measured.read_tokens,
        "measured_s": measured.seconds,
        "predicted_s": found.predicted_s,
        "held_out": found.held_out,
    }
    return {
        "source": found.profile.source,
        "costs": asdict(found.profile.costs),
        "error": found.profile.error,
        "held_out_error": found.held_out_error,
        "worst_error": found.worst_error,
        "holds": found.holds,
        "stretches": [
            dict(zip(columns, values, strict=True))
            for values in zip(*(np.asarray(one).tolist() for one in columns.values()), strict=True)
        ],
    }
