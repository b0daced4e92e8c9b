"""Opening the engine that a job asks for."""

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from blend.cli.engine_options import EngineOptions, PacingName, parallel_in, whole_number
from blend.cli.job_model import (
    ModelOptions,
    loaded_tokenizer,
    model_of,
    refuse_other_model,
    settled_model,
    shape_of,
    template_text,
)
from blend.cli.machine import this_hardware
from blend.cli.server import open_server, refuse_server
from blend.cli.wording import counted
from blend.core.engines import Capacity, Engine
from blend.core.engines.scratch import clear_left_behind
from blend.core.engines.vllm_version import installed_version, is_installed, untested
from blend.core.errors import MISMATCH, BlendError
from blend.core.planning.engine_model import EngineModel
from blend.core.planning.hardware import (
    ModelShape,
    hardware_preset,
    kv_capacity_tokens,
    several,
)
from blend.core.planning.ways import PREFILL_THRESHOLD, STEP_TOKENS
from blend.core.running.seat import Seat
from blend.store.job import Job

logger = logging.getLogger(__name__)

SIM_HARDWARE = "a100-80g"

_CHANGE_ANSWERS = ("generation-config", "override-generation-config", "tokenizer")
"""Arguments that make other answers of the same request."""


def log_path(job_path: Path, replica: int | None = None) -> Path:
    """Return where the output of the engine, or of the *replica* of a number, goes: beside it."""
    number = "" if replica is None else f".{replica + 1}"
    return job_path.with_name(f"{job_path.name}.engine{number}.log")


@contextmanager
def opened_engine(job: Job, options: EngineOptions) -> Iterator[Seat]:
    """Start the engine on the job's model, in the background where it can, and stop it at the end.

    Raises BlendError when the job's results come from another kind of engine, or one that samples
    in another way.
    """
    _refuse_mixture(job, options)
    _refuse_other_sampling(job, options)
    _refuse_other_context(job, options.arguments)
    refuse_unusable(options)
    if options.name == "vllm":
        end_left_behind()
        if words := untested(installed_version()):
            logger.warning(words)
    with _seated(job, options) as seat:
        if options.name == "vllm":
            # While the engine starts: do its files still give the prompts that were planned?
            refuse_other_model(job, loaded_tokenizer(settled_model(job, asked_model(options))))
        yield seat


def refuse_unusable(options: EngineOptions) -> None:
    """Raise BlendError for an engine that cannot be started as asked for, whatever the job."""
    if options.name == "vllm" and not is_installed():
        raise BlendError(
            "vLLM is not installed",
            hint="`pip install 'blend-batch[gpu]'`; a server is used by `--engine openai`, and "
            "`--engine sim` makes answers up",
        )
    if options.name == "openai":
        refuse_server(options.arguments, options.api_key)


@contextmanager
def _seated(job: Job, options: EngineOptions) -> Iterator[Seat]:
    if options.replicas > 1:
        from blend.cli.replicas import seated_replicas  # only they need Ray

        device = this_hardware(SIM_HARDWARE if options.name == "sim" else None)
        with seated_replicas(job, options, partial(_starter, job, options), on=device) as seat:
            yield seat
        return
    seat = Seat(_starter(job, options, None))
    try:
        yield seat
    finally:
        seat.close()


def end_left_behind() -> None:
    """End the engines that a dead blend left on this machine, and say so."""
    for left in clear_left_behind():
        if left.processes:
            logger.info(
                f"ended {counted(left.processes, 'processes')} of an engine that a dead blend "
                f"(process {left.owner_pid}) had left behind"
            )


def _starter(job: Job, options: EngineOptions, replica: int | None) -> Callable[[], Engine]:
    """Return what starts the engine, or the *replica* of a number; it can be sent elsewhere."""
    arguments = _ingested_with(job) | dict(options.arguments)
    if options.name == "sim":
        shape = shape_of(job, arguments, on_cpu=False)
        return partial(_sim, arguments, shape, options.pacing)
    model = model_of(job)
    if options.name == "openai":
        return partial(
            open_server, arguments, model=model, api_key=options.api_key, seed=options.seed
        )
    from blend.core.engines.vllm import VllmEngine
    from blend.core.engines.vllm_launch import EngineSettings

    settings = EngineSettings(
        model,
        arguments.get("served-model-name") or model,
        log_path(job.path, replica).absolute(),
        arguments,
        options.seed,
        stall_s=options.tolerance.stall_s,
        pacing="step budget" if options.pacing == "step-budget" else "none",
        seeded=job.any_body_has("seed"),
    )
    return partial(VllmEngine.start, settings)


def asked_model(options: EngineOptions, model: str | None = None) -> ModelOptions:
    """Return what the engine's arguments say about the model, for rendering as it does."""
    length = options.arguments.get("max-model-len")
    template = options.arguments.get("chat-template")
    return ModelOptions(
        model=model,
        revision=options.arguments.get("revision"),
        chat_template=template_text(Path(template))
        if template and Path(template).is_file()
        else template,
        trust_remote_code="trust-remote-code" in options.arguments,
        max_model_len=int(length) if length else None,
    )


def _refuse_other_context(job: Job, arguments: Mapping[str, str | None]) -> None:
    ingested, asked = str(job.meta("context_tokens")), arguments.get("max-model-len")
    if asked is not None and asked != ingested:
        raise BlendError(
            f"`--max-model-len` is {asked}, the job was ingested for a context of {ingested}",
            hint="leave it out, or ingest into a new job with it",
            exit_code=MISMATCH,
        )


def _ingested_with(job: Job) -> dict[str, str | None]:
    """Return the arguments without which the engine would see other prompts than the plan has."""
    made_with = job.meta("options") or {}
    arguments = {
        "max-model-len": job.meta("context_tokens"),
        "revision": made_with.get("revision"),
        "chat-template": made_with.get("chat_template"),
    }
    return {name: str(value) for name, value in arguments.items() if value is not None}


def _refuse_mixture(job: Job, options: EngineOptions) -> None:
    others = {run.engine for run in job.runs() if run.results} - {options.name}
    if others:
        other = ", ".join(sorted(others))
        raise BlendError(
            f"the job has results of the engine `{other}`, not `{options.name}`: "
            "they would be mixed in one output",
            hint=f"use `--engine {other}`, or ingest into a new job",
            exit_code=MISMATCH,
        )


def _refuse_other_sampling(job: Job, options: EngineOptions) -> None:
    for run in job.runs():
        for name in _CHANGE_ANSWERS if run.results else ():
            then, now = run.settings.get(name), options.arguments.get(name)
            if then != now:
                raise BlendError(
                    f"the job has results of another `{name}`: {then or 'none'}, now "
                    f"{now or 'none'}: they would be mixed in one output",
                    hint="give it as before, or ingest into a new job",
                    exit_code=MISMATCH,
                )


def _sim(
    arguments: Mapping[str, str | None], shape: ModelShape, pacing: PacingName | None
) -> Engine:
    from blend.core.engines.sim import SimEngine

    hardware = several(hardware_preset(SIM_HARDWARE), parallel_in(arguments))
    block_tokens = whole_number(arguments, "block-size", 16)
    kv_bytes = whole_number(arguments, "kv-cache-memory-bytes", 0)
    kv_tokens = int(kv_bytes / shape.kv_bytes_per_token)
    if kv_bytes and kv_tokens < block_tokens:
        raise BlendError(
            f"`--kv-cache-memory-bytes` holds no block of {block_tokens} tokens: {kv_bytes}",
            hint=f"one takes {math.ceil(block_tokens * shape.kv_bytes_per_token):,} bytes",
        )
    batched = whole_number(arguments, "max-num-batched-tokens", 8192)
    capacity = Capacity(
        kv_tokens=kv_tokens or kv_capacity_tokens(hardware, shape),
        max_sequences=whole_number(arguments, "max-num-seqs", 1024),
        step_tokens=min(batched, whole_number(arguments, STEP_TOKENS, batched)),
        context_tokens=whole_number(arguments, "max-model-len", 131_072),
        block_tokens=block_tokens,
        prefill_threshold=whole_number(arguments, PREFILL_THRESHOLD, 0),
        pacing="step budget" if pacing in (None, "step-budget") else "none",
        report_lag=whole_number(arguments, "report-lag", 0),
    )
    return SimEngine(capacity, step_s=EngineModel(capacity, hardware, shape).step_s)
