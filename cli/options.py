"""The options that several commands share, under vLLM's own names where vLLM has one."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from blend.cli.completion import jobs
from blend.cli.engine_options import (
    TOLERANCE,
    Argument,
    EngineName,
    EngineOptions,
    PacingName,
    Tolerance,
)
from blend.cli.engine_options import engine_options as chosen_engine
from blend.core.errors import BlendError

Command = Callable[..., None]

_ENGINE = "Engine"
_SERVER = "Engine: a server that runs"
_REPLICAS = "Engine: several replicas"
_TROUBLE = "Engine: trouble"

JobArgument = Annotated[
    Path, typer.Argument(metavar="JOB", help="The job file.", autocompletion=jobs)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON to stdout instead.")]
MaxModelLen = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Context length in tokens.", rich_help_panel="Model"),
]
# numpy takes no negative seed, vLLM none beyond 32 bits.
MAX_SEED = 2**32 - 1

# Of the engines that run a job, and of those that are simulated.
TENSOR_PARALLEL = typer.Option(
    "--tensor-parallel-size",
    "-tp",
    min=1,
    metavar="N",
    help="GPUs that share one model.",
    rich_help_panel=_ENGINE,
)
PIPELINE_PARALLEL = typer.Option(
    "--pipeline-parallel-size",
    "-pp",
    min=1,
    metavar="N",
    help="GPUs that hold one model's layers in turn.",
    rich_help_panel=_ENGINE,
)
DATA_PARALLEL = typer.Option(
    "--data-parallel-size",
    "-dp",
    min=1,
    metavar="N",
    help="Replicas of the engine, each with its part of the job.",
    rich_help_panel=_REPLICAS,
)
GPU_MEMORY = typer.Option(
    min=0,
    max=1,
    metavar="SHARE",
    help="Share of the GPU memory to use.",
    rich_help_panel=_ENGINE,
)
MAX_SEQUENCES = typer.Option(
    min=1, metavar="N", help="Sequences in one step at most.", rich_help_panel=_ENGINE
)
STEP_TOKENS = typer.Option(
    min=1, metavar="N", help="Tokens in one step at most.", rich_help_panel=_ENGINE
)
DTYPE = typer.Option(metavar="TYPE", help="Data type of the weights.", rich_help_panel=_ENGINE)


def engine_options(
    engine: Annotated[
        EngineName,
        typer.Option(
            metavar="ENGINE",
            help="vllm; openai: a server that runs; or sim: made-up answers in virtual time.",
            rich_help_panel=_ENGINE,
        ),
    ] = "vllm",
    base_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Address of the server, for the engine openai.",
            rich_help_panel=_SERVER,
        ),
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="OPENAI_API_KEY",
            metavar="KEY",
            help="Key for the server; better in OPENAI_API_KEY: others may see command lines.",
            rich_help_panel=_SERVER,
        ),
    ] = None,
    served_model_name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Name of the model at the server; the model's if absent.",
            rich_help_panel=_SERVER,
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Sequences at the server at most; 64 if absent.",
            rich_help_panel=_SERVER,
        ),
    ] = None,
    max_model_len: MaxModelLen = None,
    tensor_parallel_size: Annotated[int | None, TENSOR_PARALLEL] = None,
    pipeline_parallel_size: Annotated[int | None, PIPELINE_PARALLEL] = None,
    data_parallel_size: Annotated[int, DATA_PARALLEL] = 1,
    ray_address: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="The Ray cluster to run them on; one of this machine alone if absent.",
            rich_help_panel=_REPLICAS,
        ),
    ] = None,
    gpu_memory_utilization: Annotated[float | None, GPU_MEMORY] = None,
    kv_cache_memory_bytes: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="BYTES", help="Bytes of the KV cache, exactly.", rich_help_panel=_ENGINE
        ),
    ] = None,
    max_num_seqs: Annotated[int | None, MAX_SEQUENCES] = None,
    max_num_batched_tokens: Annotated[int | None, STEP_TOKENS] = None,
    dtype: Annotated[str | None, DTYPE] = None,
    pacing: Annotated[
        PacingName | None,
        typer.Option(
            metavar="PACE",
            help="What keeps the pace of prefill: step-budget, a budget of each step; gate, a gate "
            "before the engine; or none. The gate if absent.",
            rich_help_panel=_ENGINE,
        ),
    ] = None,
    engine_arg: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=VALUE]",
            help="Any other option of the engine (of `vllm serve`), without its dashes; "
            "may be repeated.",
            rich_help_panel=_ENGINE,
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            min=0,
            max=MAX_SEED,
            metavar="N",
            help="Seed of sampling and of the random order.",
        ),
    ] = 0,
    max_rebuilds: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Replace an engine that dies so many times in a row without a new result.",
            rich_help_panel=_TROUBLE,
        ),
    ] = TOLERANCE.max_rebuilds,
    give_up_after: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Stop when the first so many results are all failures; 0 for never.",
            rich_help_panel=_TROUBLE,
        ),
    ] = TOLERANCE.give_up_after,
    stall_timeout: Annotated[
        float | None,
        typer.Option(
            min=1,
            metavar="SECONDS",
            help="Seconds without a word after which vLLM counts as hung; 600 if absent.",
            rich_help_panel=_TROUBLE,
        ),
    ] = None,
) -> EngineOptions:
    """Collect the engine's arguments: those with a name here, then the repeated ones."""
    if stall_timeout is not None and engine == "openai":
        raise BlendError(
            "`--stall-timeout` is for an engine of our own",
            hint="a server's is `--engine-arg request-timeout=SECONDS`",
        )
    given: dict[str, Argument] = {
        "base-url": base_url,
        "concurrency": concurrency,
        "served-model-name": served_model_name,
        "max-model-len": max_model_len,
        "tensor-parallel-size": tensor_parallel_size,
        "pipeline-parallel-size": pipeline_parallel_size,
        "gpu-memory-utilization": gpu_memory_utilization,
        "kv-cache-memory-bytes": kv_cache_memory_bytes,
        "max-num-seqs": max_num_seqs,
        "max-num-batched-tokens": max_num_batched_tokens,
        "dtype": dtype,
    }
    given |= dict(map(_argument, engine_arg or []))
    return chosen_engine(
        engine,
        given,
        seed=seed,
        pacing=pacing,
        api_key=api_key,
        tolerance=Tolerance(max_rebuilds, give_up_after, stall_timeout or TOLERANCE.stall_s),
        replicas=data_parallel_size,
        ray_address=ray_address,
    )


def _argument(text: str) -> tuple[str, str | bool]:
    name, equals, value = text.partition("=")
    name = name.lstrip("-").replace("_", "-")
    if not name:
        raise BlendError(f"`--engine-arg` has no name: {text}", hint="write it as name=value")
    return name, value if equals else True


def takes(**groups: Callable[..., object]) -> Callable[[Command], Command]:
    """Give a command the options that *groups* collect; it receives what they return, by name."""
    options = {name: inspect.signature(group, eval_str=True) for name, group in groups.items()}

    def decorated(command: Command) -> Command:
        @functools.wraps(command)
        def with_options(**given: Any) -> None:
            for name, group in groups.items():
                own = {option: given.pop(option) for option in options[name].parameters}
                given[name] = group(**own)
            command(**given)

        theirs = inspect.signature(command, eval_str=True).parameters
        merged = [parameter for name, parameter in theirs.items() if name not in groups]
        for group in options.values():
            merged += group.parameters.values()
        merged = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in merged]
        with_options.__signature__ = inspect.Signature(merged)  # type: ignore[attr-defined]
        with_options.__annotations__ = {one.name: one.annotation for one in merged}
        del with_options.__wrapped__
        return with_options

    return decorated
