"""What a device can do and what a model asks of it: the constants of the cost model (paper §4.1).

Presets lie in data/gpus.json and data/models.json, each with its source; any other model is read
from its Hugging Face config.json.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blend.core.errors import BlendError
from blend.core.planning.parameters import (
    attention_width,
    count_parameters,
    dtype_bytes,
    kv_copies,
    kv_values_per_token,
    text_config,
    weight_bits,
)

if TYPE_CHECKING:
    from blend.core.planning.interference import Interference

DEFAULT_HARDWARE = "cpu"

_PRESETS = Path(__file__).parent / "data"


@dataclass(frozen=True, slots=True)
class Hardware:
    """Peak dense 16-bit FLOP/s, memory bytes/s and memory bytes of one device.

    Where it was measured: ``step_overhead_s``, what a step takes beside compute and memory;
    ``weights_s``, the seconds to read a model's weights, None where their bytes have to say it; and
    ``interference``, what of the lesser of compute and memory is left where both go on at once.

    ``link_bytes_s`` leave a device for others that share its model, None where that takes no time;
    over so many links to ``link_peers`` others, 0 where a switch or a bus gives all of it to each.
    An exchange takes ``link_start_s``, and ``link_hop_s`` for each device that it passes.

    Of several devices as one, ``tensor`` share each layer and ``stages`` hold the layers in turn;
    what the links do stays that of one device.
    """

    name: str
    flops: float
    bandwidth_bytes_s: float
    memory_bytes: float
    source: str = ""
    step_overhead_s: float = 0.0
    weights_s: float | None = None
    interference: "Interference | None" = None
    link_bytes_s: float | None = None
    link_start_s: float = 0.0
    link_hop_s: float = 0.0
    link_peers: int = 0
    tensor: int = 1
    stages: int = 1


@dataclass(frozen=True, slots=True)
class Parallel:
    """How devices share a model: ``tensor`` of them each layer, ``stages`` the layers in turn."""

    tensor: int = 1
    stages: int = 1

    @property
    def devices(self) -> int:
        """Return how many there are."""
        return self.tensor * self.stages


ALONE = Parallel()


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What a model costs a token.

    ``parameters`` are stored, ``active_parameters`` compute each token (fewer in a mixture of
    experts); ``hidden`` is the width of attention, heads times head size (the paper's H);
    ``activation_bytes`` is what goes from one layer to the next.
    """

    name: str
    parameters: float
    active_parameters: float
    layers: int
    hidden: int
    kv_bytes_per_token: float
    weight_bytes: float
    activation_bytes: float = 0.0


def hardware_names() -> tuple[str, ...]:
    """Return the names that `hardware_preset` knows."""
    return tuple(_read("gpus.json"))


def hardware_preset(name: str) -> Hardware:
    """Return the built-in device called *name*; BlendError when there is none."""
    presets = _read("gpus.json")
    if name.lower() not in presets:
        raise BlendError(f"unknown hardware: {name}", hint=f"known: {', '.join(presets)}")
    return _hardware(name.lower(), presets[name.lower()])


def stored_hardware(stored: Mapping[str, Any]) -> Hardware:
    """Return the device that was stored with these fields; TypeError, ValueError for others."""
    from blend.core.planning.interference import read_interference  # numpy is slow to import

    found = Hardware(**stored)
    return replace(found, interference=read_interference(found.interference))


def hardware_for_gpu(gpu_name: str) -> Hardware | None:
    """Return the preset of a card as nvidia-smi or rocm-smi names it, None for an unknown card."""
    for name, preset in _read("gpus.json").items():
        # The first match counts: the file lists the special variants of a card before the card.
        if preset["match"] and re.search(preset["match"], gpu_name, re.IGNORECASE):
            return _hardware(name, preset)
    return None


def several(hardware: Hardware, parallel: Parallel) -> Hardware:
    """Return devices that share one model in equal parts as one larger device (paper §5.5).

    Its step is a round of `communication`, with the overhead of each of the round's batches.
    """
    devices = parallel.devices
    if devices == 1:
        return hardware
    return replace(
        hardware,
        name=f"{devices} x {hardware.name}",
        flops=devices * hardware.flops,
        bandwidth_bytes_s=devices * hardware.bandwidth_bytes_s,
        memory_bytes=devices * hardware.memory_bytes,
        step_overhead_s=parallel.stages * hardware.step_overhead_s,
        tensor=parallel.tensor,
        stages=parallel.stages,
    )


def model_names() -> tuple[str, ...]:
    """Return the names that `model_preset` knows."""
    return tuple(_read("models.json"))


def model_preset(name: str) -> ModelShape:
    """Return the built-in model called *name*; BlendError when there is none."""
    return model_shape(model_config(name), name=name.lower())


def model_config(name: str) -> Mapping[str, Any]:
    """Return the config.json of the built-in model called *name*; BlendError when there is none."""
    presets = _read("models.json")
    if name.lower() not in presets:
        raise BlendError(
            f"unknown model preset: {name}", hint=f"a model folder, or: {', '.join(presets)}"
        )
    config: Mapping[str, Any] = presets[name.lower()]["config"]
    return config


def model_shape(
    config: Mapping[str, Any],
    *,
    name: str,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    tensor: int = 1,
) -> ModelShape:
    """Return the shape of the model that a Hugging Face config.json describes.

    Knows grouped, multi-query and latent attention, mixtures of experts and quantised weights;
    ``dtype`` and ``kv_dtype`` override the stored types. What more than one of the ``tensor``
    devices of a layer hold, and read, of a token's cache counts for each of them. Sliding windows
    count as full attention. BlendError names a field that is missing.
    """
    text = text_config(config)
    value_bytes = dtype_bytes(dtype or text.get("dtype") or text.get("torch_dtype") or "bfloat16")
    kv_bytes = dtype_bytes(kv_dtype) if kv_dtype and kv_dtype != "auto" else value_bytes
    count = count_parameters(text, name=name)
    bits = weight_bits(config, text) or 8 * value_bytes
    kv_values = kv_values_per_token(text, name=name) * kv_copies(text, tensor, name=name)
    return ModelShape(
        name=name,
        parameters=count.total,
        active_parameters=count.active,
        layers=count.layers,
        hidden=attention_width(text, name=name),
        kv_bytes_per_token=kv_values * kv_bytes,
        weight_bytes=(count.total - count.embedding) * bits / 8 + count.embedding * value_bytes,
        activation_bytes=count.hidden * value_bytes,
    )


def kv_capacity_tokens(
    hardware: Hardware, model: ModelShape, *, memory_fraction: float = 0.9
) -> int:
    """Return the tokens whose KV cache fits beside the weights; 0 when the weights do not fit."""
    free_bytes = hardware.memory_bytes * memory_fraction - model.weight_bytes
    return max(0, int(free_bytes / model.kv_bytes_per_token))


def _hardware(name: str, preset: Mapping[str, Any]) -> Hardware:
    return Hardware(
        name,
        flops=preset["flops"],
        bandwidth_bytes_s=preset["bandwidth_bytes_s"],
        memory_bytes=preset["memory_bytes"],
        source=preset["source"],
        link_bytes_s=preset["link_bytes_s"],
        link_start_s=preset["link_start_s"],
        link_hop_s=preset["link_hop_s"],
        link_peers=preset.get("link_peers", 0),
    )


def _read(file: str) -> dict[str, Any]:
    presets: dict[str, Any] = json.loads((_PRESETS / file).read_text(encoding="utf-8"))
    return presets
