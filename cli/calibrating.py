"""What `blend calibrate` learns from: a model, a device, an engine at work, a job's past runs."""

import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from blend.cli.engine_options import parallel_in
from blend.cli.job_model import shape_of
from blend.cli.machine import datasheet, gpu_name
from blend.cli.profiles import measured_in, profile_key
from blend.core.engines.engine_probe import probe_batches, probed
from blend.core.errors import BlendError
from blend.core.planning.engine_model import engine_model
from blend.core.planning.hardware import (
    DEFAULT_HARDWARE,
    Hardware,
    ModelShape,
    hardware_preset,
    model_config,
    model_shape,
)
from blend.core.planning.parameters import text_config
from blend.core.planning.profile import Measured, Validated, joined, validated
from blend.core.planning.ways import free_tokens
from blend.store.job import Job

DEFAULT_MODEL = "smollm2-135m"
DEFAULT_GPU_MODEL = "llama-3-8b"


@dataclass(frozen=True, slots=True)
class CalibrationModel:
    """The model whose layers are measured; ``folder`` where an engine could load it."""

    name: str
    config: Mapping[str, Any]
    folder: Path | None

    def shape(self, *, on_cpu: bool) -> ModelShape:
        """Return its shape in the data types that an engine here would use."""
        return model_shape(self.config, name=self.name, dtype="float32" if on_cpu else None)


def calibration_model(named: str | None, *, on_cpu: bool) -> CalibrationModel:
    """Return a preset, the model in a folder, or the default one; BlendError for anything else."""
    if named is None:
        named = DEFAULT_MODEL if on_cpu else DEFAULT_GPU_MODEL
    config = Path(named) / "config.json"
    if not config.is_file():
        return CalibrationModel(named, model_config(named), None)
    try:
        return CalibrationModel(named, json.loads(config.read_text("utf-8")), Path(named))
    except ValueError as error:
        raise BlendError(
            f"not a model: {config}: {error}",
            hint="give a model folder in Hugging Face's layout, or the name of a preset",
        ) from None


def torch_device(asked: Literal["cpu", "cuda", "auto"]) -> Literal["cpu", "cuda"]:
    """Return the device to measure; BlendError where torch is not there or sees none."""
    try:
        import torch
    except ImportError as error:
        raise BlendError(
            "torch is not installed: nothing can be measured",
            hint="`pip install 'blend-batch[gpu]'`",
        ) from error
    there = torch.cuda.is_available()
    if asked == "cuda" and not there:
        raise BlendError("torch sees no GPU", hint="`--device cpu` measures the processor")
    return "cuda" if there and asked != "cpu" else "cpu"


def sheet_of(device: Literal["cpu", "cuda"]) -> Hardware:
    """Return the preset of a device, with the name and memory of a GPU that has none."""
    sheet = datasheet() if device == "cuda" else hardware_preset(DEFAULT_HARDWARE)
    if device == "cpu" or sheet.name != DEFAULT_HARDWARE:
        return sheet
    import torch

    memory = float(torch.cuda.get_device_properties(0).total_memory)
    return replace(sheet, name=str(gpu_name() or "gpu").lower(), memory_bytes=memory)


def measure_engine(
    model: CalibrationModel, *, on_cpu: bool, hardware: Hardware, seconds: float
) -> Validated:
    """Run vLLM on made-up requests for about *seconds*, its start not counted, and fit its steps.

    BlendError without a model folder, or where the engine does not start.
    """
    if model.folder is None:
        raise BlendError(
            f"an engine needs the weights, and {model.name} is no folder",
            hint="name the folder of a model with `--model`",
        )
    config = text_config(model.config)
    context = min(int(config.get("max_position_embeddings") or 4096), 2048 if on_cpu else 8192)
    batches = probe_batches(many=not on_cpu, context_tokens=context)
    vocabulary = int(config.get("vocab_size") or 256)
    with _engine(model.folder, context) as engine:
        lines = probed(
            engine, batches, vocabulary=vocabulary, seconds=seconds, clock=time.monotonic
        )
    shape = model.shape(on_cpu=on_cpu)
    knee = free_tokens(engine_model(hardware, shape))
    return _fit(lines, knee_tokens=knee, source="engine")


@contextmanager
def _engine(folder: Path, context: int) -> Iterator[Any]:
    from blend.core.engines.vllm import VllmEngine
    from blend.core.engines.vllm_launch import EngineSettings

    with tempfile.TemporaryDirectory(prefix="blend-calibrate-") as logs:
        arguments = {"max-model-len": str(context)}
        log = Path(logs) / "engine.log"
        engine = VllmEngine.start(EngineSettings(str(folder), "model", log, arguments, seed=0))
        try:
            while not engine.wait_ready(1.0):
                pass
            yield engine
        finally:
            engine.close()


def learn_from(job: Job, *, hardware: Hardware) -> tuple[str, Validated]:
    """Return what all runs of a job on this machine have measured, and the key it is kept under.

    BlendError where vLLM has run too little of it here.
    """
    host = os.uname().nodename
    ran = [run for run in job.runs() if (run.engine, run.host) == ("vllm", host)]
    if not ran:
        raise BlendError(
            f"vLLM has run nothing of this job on this machine: {job.path}",
            hint="`blend calibrate --model MODEL` measures without a run",
        )
    settings: Mapping[str, Any] = ran[-1].settings
    shape = shape_of(job, settings, on_cpu=hardware.name == "cpu")
    lines = joined([measured_in(job, run.id) for run in ran])
    knee = free_tokens(engine_model(hardware, shape))
    key = profile_key(shape, parallel_in(settings))
    return key, _fit(lines, knee_tokens=knee, source="runs")


def _fit(lines: Measured, *, knee_tokens: float, source: Literal["runs", "engine"]) -> Validated:
    found = validated(lines, knee_tokens=knee_tokens, source=source)
    if found is None:
        raise BlendError(
            f"too little was measured: {len(lines)} stretches of time",
            hint="run more requests, or `blend calibrate --model MODEL` without a job",
        )
    return found
