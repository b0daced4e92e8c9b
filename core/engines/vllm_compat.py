"""Everything of vLLM that blend touches, in one place: its modules move between releases.

Used in the host process alone. Where a module has moved, its names are listed newest first, for
the releases 0.26 to 0.33. The serving layer is built by vLLM's own server code, so that every
field of a request means what it means to `vllm serve`.
"""

import json
import os
from argparse import Namespace
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from blend.core.engines import Capacity
from blend.core.engines.vllm_pace import PACE_VARIABLE, SharedPace
from blend.core.request import Endpoint

# vLLM's objects. Its annotations change as freely as its module paths.
Engine = Any


@dataclass(frozen=True, slots=True)
class Handler:
    """How vLLM answers one endpoint: parse a body into a request, then answer the request."""

    parse: Callable[[dict[str, Any]], Any]
    answer: Callable[[Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Answer:
    """A response or an error object as JSON, and what its usage says."""

    status_code: int
    body: bytes
    finish_reason: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class EngineStep:
    """One step of the engine: what runs after it, and the tokens it computed.

    ``prefill_tokens`` include those computed again after a preemption; ``cached_tokens`` are those
    of the prompts whose first token came out of the step.
    """

    running: int
    kv_usage: float
    prefill_tokens: int
    decode_tokens: int
    cached_tokens: int
    preemptions: int


def _module(name: str, *older_names: str) -> Any:
    """Import the module that this release of vLLM has under one of the names."""
    try:
        return import_module(name)
    except ModuleNotFoundError:
        if not older_names:
            raise
        return _module(*older_names)


def version() -> str:
    """Return the version of the installed vLLM."""
    return str(_module("vllm.version").__version__)


def on_cpu() -> bool:
    """Whether vLLM will run on the CPU."""
    return bool(_module("vllm.platforms").current_platform.is_cpu())


def parse_command_line(words: Sequence[str]) -> Namespace:
    """Parse the arguments of `vllm serve`; raise ValueError with the parser's own message."""
    arguments = _module(
        "vllm.entrypoints.common.cli_args",
        "vllm.entrypoints.launchers.cli_args",
        "vllm.entrypoints.openai.cli_args",
    )
    parser = arguments.make_arg_parser(
        _module("vllm.utils.argparse_utils").FlexibleArgumentParser()
    )
    parser.error = _raise_value_error
    args = parser.parse_args(list(words))
    arguments.validate_parsed_serve_args(args)
    if getattr(args, "tool_parser_plugin", None):
        parsers = _module("vllm.tool_parsers", "vllm.entrypoints.openai.tool_parsers")
        parsers.ToolParserManager.import_tool_parser(args.tool_parser_plugin)
    if getattr(args, "reasoning_parser_plugin", None):
        parsers = _module("vllm.reasoning")
        parsers.ReasoningParserManager.import_reasoning_parser(args.reasoning_parser_plugin)
    return Namespace(**vars(args))


def _raise_value_error(message: str) -> NoReturn:
    raise ValueError(message)


def start_engine(args: Namespace, *, observe: Callable[[EngineStep], None]) -> Engine:
    """Start vLLM's asynchronous engine; *observe* sees each of its steps."""
    return _module("vllm.v1.engine.async_llm").AsyncLLM.from_engine_args(
        _module("vllm.engine.arg_utils").AsyncEngineArgs.from_cli_args(args),
        usage_context=_module("vllm.usage.usage_lib").UsageContext.OPENAI_BATCH_RUNNER,
        stat_loggers=[_step_observer(observe)],
    )


def _step_observer(observe: Callable[[EngineStep], None]) -> Callable[..., Any]:
    base = _module("vllm.v1.metrics.loggers").StatLoggerBase

    class StepObserver(base):  # type: ignore[misc, valid-type]  # a class known only at run time
        """Hands each step to *observe*."""

        def __init__(self, vllm_config: Any, engine_index: int = 0):
            pass

        def record(
            self, scheduler_stats: Any = None, iteration_stats: Any = None, *_: Any, **__: Any
        ) -> None:
            if scheduler_stats is not None:
                observe(_engine_step(scheduler_stats, iteration_stats))

        def log_engine_initialized(self) -> None:
            pass

    return StepObserver


def _engine_step(scheduler: Any, iteration: Any) -> EngineStep:
    prompts = iteration.prompt_token_stats if iteration else None
    decoded = _decoded_tokens(iteration) if iteration else 0
    mix = getattr(scheduler, "iteration_details", None)
    if mix is not None:
        # vLLM counts what a preempted request computes again as generation.
        prefilled = max(0, mix.num_ctx_tokens + mix.num_generation_tokens - decoded)
    else:
        prefilled = prompts.computed if prompts else 0
    return EngineStep(
        running=scheduler.num_running_reqs,
        kv_usage=scheduler.kv_cache_usage,
        prefill_tokens=prefilled,
        decode_tokens=decoded,
        # Not the scheduler's prefix hits: some releases count a look-up that did not fit again.
        cached_tokens=prompts.cached_tokens if prompts else 0,
        preemptions=iteration.num_preempted_reqs if iteration else 0,
    )


def _decoded_tokens(iteration: Any) -> int:
    """Return the tokens generated by decoding; the first of an answer comes from its prompt."""
    return int(iteration.num_generation_tokens - len(iteration.time_to_first_tokens_iter))


async def open_endpoints(engine: Engine, args: Namespace) -> dict[Endpoint, Handler]:
    """Build vLLM's own handlers over *engine*, as its server does."""
    server = _module(
        "vllm.entrypoints.launchers.api_server.app_state", "vllm.entrypoints.openai.api_server"
    )
    chats = _module("vllm.entrypoints.openai.chat_completion.protocol")
    completions = _module("vllm.entrypoints.openai.completion.protocol")
    state = _module("starlette.datastructures").State()
    await server.init_app_state(engine, state, args, await engine.get_supported_tasks())
    handlers: dict[Endpoint, Handler] = {}
    if (chat := getattr(state, "openai_serving_chat", None)) is not None:
        handlers["/v1/chat/completions"] = Handler(
            chats.ChatCompletionRequest.model_validate, chat.create_chat_completion
        )
    if (completion := getattr(state, "openai_serving_completion", None)) is not None:
        handlers["/v1/completions"] = Handler(
            completions.CompletionRequest.model_validate, completion.create_completion
        )
    return handlers


def capacity(engine: Engine) -> Capacity:
    """Return what *engine* can hold; one block of its cache is never handed out."""
    config = engine.vllm_config
    scheduler = config.scheduler_config
    step_tokens = getattr(scheduler, "max_num_scheduled_tokens", None)
    return Capacity(
        kv_tokens=(config.cache_config.num_gpu_blocks - 1) * config.cache_config.block_size,
        max_sequences=scheduler.max_num_seqs,
        step_tokens=min(
            step_tokens or scheduler.max_num_batched_tokens, scheduler.max_num_batched_tokens
        ),
        context_tokens=config.model_config.max_model_len,
        block_tokens=config.cache_config.block_size,
        prefill_threshold=scheduler.long_prefill_token_threshold,
        pacing="step budget" if SharedPace(Path(os.environ[PACE_VARIABLE])).kept else "none",
    )


def unfinished(engine: Engine) -> int:
    """Return the sequences inside *engine*, running or waiting."""
    return int(engine.output_processor.get_num_unfinished_requests())


def mark(collector: Any, row: int) -> None:
    """Note on the collector of a request's outputs which row of the job it is."""
    collector.blend_row = row


def tokens_so_far(engine: Engine) -> Iterator[tuple[int, int]]:
    """Yield row and output tokens of every sequence inside *engine*."""
    for state in engine.output_processor.request_states.values():
        if state.queue is not None:
            yield state.queue.blend_row, state.detokenizer.num_output_tokens()


def answer_of(response: Any) -> Answer:
    """Return what a handler answered as JSON."""
    if (error := getattr(response, "error", None)) is not None:
        return Answer(int(error.code), response.model_dump_json().encode())
    if not hasattr(response, "model_dump_json"):  # a Starlette response
        return Answer(response.status_code, bytes(response.body))
    usage = response.usage
    details = getattr(usage, "prompt_tokens_details", None)
    return Answer(
        status_code=200,
        body=response.model_dump_json().encode(),
        finish_reason=_finish_reason([choice.finish_reason for choice in response.choices]),
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens or 0,
        cached_tokens=(details and details.cached_tokens) or 0,
    )


def _finish_reason(reasons: Sequence[str | None]) -> str | None:
    """Return the reason of the first choice, but ``length`` when any of them was cut."""
    return "length" if "length" in reasons else reasons[0] if reasons else None


def error_answer(error: Exception) -> Answer:
    """Return the error object that vLLM's server answers to *error*."""
    if isinstance(error, _module("pydantic").ValidationError):
        return refusal(_first_faults(error))
    errors = _module(
        "vllm.entrypoints.serve.exception_handling.error_response",
        "vllm.entrypoints.serve.utils.error_response",
    )
    return answer_of(errors.create_error_response(error))


def refusal(message: str) -> Answer:
    """Return the error object for a request that no engine would take."""
    fault = {"message": message, "type": "BadRequestError", "param": None, "code": 400}
    return Answer(400, json.dumps({"error": fault}).encode())


def _first_faults(error: Any) -> str:
    """Name the field and fault of the first few errors; pydantic would repeat the values."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [f"{'.'.join(map(str, f['loc'])) or 'body'}: {f['msg']}" for f in faults[:5]]
    return "; ".join(lines)
