"""Everything of vLLM that blend touches, in one place: its modules move between releases.

Used in the host process alone. Where a module has moved, its names are listed newest first, for
the releases of `core/engines/vllm_version.py`. The serving layer is built by vLLM's own server
code, so that every field of a request means what it means to `vllm serve`.
"""

import asyncio
import json
import os
from argparse import Namespace
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

from blend.core.engines import Capacity
from blend.core.engines.known_prompts import KnownPrompts
from blend.core.engines.vllm_pace import PACE_VARIABLE, SharedPace
from blend.core.request import Endpoint

# vLLM's objects. Its annotations change as freely as its module paths.
Engine = Any

# Releases up to 0.31 repeat the whole body once for each fault in it.
_MAX_FAULT_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Answer:
    """A response or an error object as JSON."""

    status_code: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Handler:
    """How vLLM answers one endpoint: a body becomes a request, a request an answer."""

    parse: Callable[[dict[str, Any]], Any]
    answer: Callable[[Any], Awaitable[Any]]
    by_alias: bool = False

    async def respond(self, fields: dict[str, Any]) -> Answer:
        """Return what vLLM's server answers to a body; raise what its code raises."""
        response = await self.answer(self.parse(fields))
        return answer_of(response, by_alias=self.by_alias)


@dataclass(frozen=True, slots=True)
class EngineStep:
    """One step of the engine: what runs after it, and the tokens it computed.

    ``prefill_tokens`` include those computed again after a preemption; ``cached_tokens`` are those
    of the prompts whose first token came out of the step, ``prefilled`` is how many those are.
    """

    running: int
    kv_usage: float
    prefill_tokens: int
    decode_tokens: int
    cached_tokens: int
    preemptions: int
    prefilled: int


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


def run_loop(main: Coroutine[Any, Any, NoReturn]) -> NoReturn:
    """Run *main* on the event loop of vLLM's server, where that one is installed."""
    try:
        loops = import_module("uvloop")
    except ModuleNotFoundError:
        loops = asyncio
    loops.run(main)
    raise RuntimeError("the loop ended")


def start_engine(args: Namespace, *, observe: Callable[[EngineStep], None]) -> Engine:
    """Start vLLM's asynchronous engine; *observe* sees each of its steps."""
    return _module("vllm.v1.engine.async_llm").AsyncLLM.from_engine_args(
        _module("vllm.engine.arg_utils").AsyncEngineArgs.from_cli_args(args),
        usage_context=_module("vllm.usage.usage_lib").UsageContext.OPENAI_BATCH_RUNNER,
        stat_loggers=[_step_observer(observe)],
    )


def _step_observer(observe: Callable[[EngineStep], None]) -> Callable[..., Any]:
    # vLLM adds one of these where it is given none: a tenth of the host's work, for nobody.
    base = _module("vllm.v1.metrics.loggers").PrometheusStatLogger

    class StepObserver(base):  # type: ignore[misc, valid-type]  # a class known only at run time
        """Hands each step to *observe*, and keeps no metrics."""

        def __init__(self, vllm_config: Any, engine_indexes: Any = None):
            pass

        def record(
            self, scheduler_stats: Any = None, iteration_stats: Any = None, *_: Any, **__: Any
        ) -> None:
            if scheduler_stats is not None:
                observe(_engine_step(scheduler_stats, iteration_stats))

        def log_engine_initialized(self) -> None:
            pass

        def record_sleep_state(self, sleep: int = 0, level: int = 0) -> None:
            pass

        def record_admission_rejection(self, reason: str) -> None:
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
        prefilled=len(iteration.time_to_first_tokens_iter) if iteration else 0,
    )


def _decoded_tokens(iteration: Any) -> int:
    """Return the tokens generated by decoding; the first of an answer comes from its prompt."""
    # An embedding's prompt ends with none.
    return max(0, int(iteration.num_generation_tokens - len(iteration.time_to_first_tokens_iter)))


async def open_endpoints(engine: Engine, args: Namespace) -> dict[Endpoint, Handler]:
    """Build vLLM's own handlers over *engine*, as its server does."""
    server = _module(
        "vllm.entrypoints.launchers.api_server.app_state", "vllm.entrypoints.openai.api_server"
    )
    state = _module("starlette.datastructures").State()
    await server.init_app_state(engine, state, args, await engine.get_supported_tasks())
    return dict(_handlers(state))


def _handlers(state: Any) -> Iterator[tuple[Endpoint, Handler]]:
    """Yield the endpoints that the model serves; what it does not serve is None or absent."""
    if (chat := getattr(state, "openai_serving_chat", None)) is not None:
        protocol = _module("vllm.entrypoints.openai.chat_completion.protocol")
        parse = protocol.ChatCompletionRequest.model_validate
        yield "/v1/chat/completions", Handler(parse, chat.create_chat_completion)
    if (completion := getattr(state, "openai_serving_completion", None)) is not None:
        protocol = _module("vllm.entrypoints.openai.completion.protocol")
        parse = protocol.CompletionRequest.model_validate
        yield "/v1/completions", Handler(parse, completion.create_completion)
    if (responses := getattr(state, "openai_serving_responses", None)) is not None:
        protocol = _module("vllm.entrypoints.openai.responses.protocol")
        parse = protocol.ResponsesRequest.model_validate
        yield "/v1/responses", Handler(parse, responses.create_responses, by_alias=True)
    if (embedding := getattr(state, "serving_embedding", None)) is not None:
        protocol = _module("vllm.entrypoints.pooling.embed.protocol")
        parse = _module("pydantic").TypeAdapter(protocol.EmbeddingRequest).validate_python
        yield "/v1/embeddings", Handler(parse, embedding)


def reuse_prompts(engine: Engine, prompts: KnownPrompts) -> None:
    """Let *prompts* stand in for rendering chats, where vLLM applies a template to texts.

    Everything else that its rendering does, and all that it checks, stays.
    """
    renderer = engine.renderer
    names = ("_apply_chat_template_async", "render_chat_async")
    if engine.model_config.is_multimodal_model or not all(hasattr(renderer, n) for n in names):
        return
    apply_template, render = (getattr(renderer, name) for name in names)

    async def known_or_applied(*args: Any, **named: Any) -> Any:
        ids = prompts.ids()
        return await apply_template(*args, **named) if ids is None else ids

    async def rendered(*args: Any, **named: Any) -> Any:
        conversations, inputs = await render(*args, **named)
        prompts.rendered(inputs[0].get("prompt_token_ids"))
        return conversations, inputs

    for name, way in zip(names, (known_or_applied, rendered), strict=True):
        setattr(renderer, name, way)


def read_environment_once() -> None:
    """Let vLLM keep its settings: it looks one up in the environment for every token otherwise."""
    _module("vllm.envs").enable_envs_cache()


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
        # The next step begins before a report is heard, and one more where two are under way.
        report_lag=2 if scheduler.async_scheduling else 1,
        pacing="step budget" if _pace_is_kept() else "none",
    )


def _pace_is_kept() -> bool:
    with closing(SharedPace(Path(os.environ[PACE_VARIABLE]))) as pace:
        return pace.kept


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
            written = state.detokenizer  # None for an embedding
            yield state.queue.blend_row, written.num_output_tokens() if written else 0


def answer_of(response: Any, *, by_alias: bool = False) -> Answer:
    """Return what a handler answered as JSON."""
    if (error := getattr(response, "error", None)) is not None:
        return Answer(int(error.code), response.model_dump_json(by_alias=by_alias).encode())
    if not hasattr(response, "model_dump_json"):  # a Starlette response
        return Answer(response.status_code, bytes(response.body))
    return Answer(200, response.model_dump_json(by_alias=by_alias).encode())


async def error_answer(error: Exception) -> Answer:
    """Return the error object that vLLM's server answers to *error*."""
    if isinstance(error, _module("pydantic").ValidationError):
        answer = await _invalid(error)
        return answer if len(answer.body) <= _MAX_FAULT_BYTES else refusal(_first_faults(error))
    errors = _module(
        "vllm.entrypoints.serve.exception_handling.error_response",
        "vllm.entrypoints.serve.utils.error_response",
    )
    return answer_of(errors.create_error_response(error))


async def _invalid(error: Any) -> Answer:
    """Return what vLLM's server answers to a body that is no request of its endpoint."""
    handlers = _module(
        "vllm.entrypoints.serve.exception_handling.handlers.validation",
        "vllm.entrypoints.serve.utils.server_utils",
    )
    # As FastAPI finds them: in the body, without links to pydantic's documentation.
    faults = [fault | {"loc": ("body", *fault["loc"])} for fault in error.errors(include_url=False)]
    args = SimpleNamespace(log_error_stack=False)
    asked = SimpleNamespace(app=SimpleNamespace(state=SimpleNamespace(args=args)))
    invalid = _module("fastapi.exceptions").RequestValidationError(faults)
    return answer_of(await handlers.validation_exception_handler(asked, invalid))


def refusal(message: str) -> Answer:
    """Return the error object for a request that no engine would take."""
    fault = {"message": message, "type": "BadRequestError", "param": None, "code": 400}
    return Answer(400, json.dumps({"error": fault}).encode())


def _first_faults(error: Any) -> str:
    """Name the field and fault of the first few errors, without the values."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [f"{'.'.join(map(str, f['loc'])) or 'body'}: {f['msg']}" for f in faults[:5]]
    return "; ".join(lines)
