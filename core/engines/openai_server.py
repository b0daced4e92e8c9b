"""Who answers at a base URL, and what can it hold? Asked once, before the first request."""

import asyncio
from dataclasses import dataclass
from typing import Any

import orjson

from blend.core.engines.openai_http import Connection, UnansweredError
from blend.core.engines.openai_metrics import ServerCache, server_cache
from blend.core.engines.openai_wire import Response
from blend.core.errors import RESUMABLE, BlendError

PROBE_S = 10.0
UNAUTHORISED = frozenset({401, 403})

_NOT_THERE = frozenset({404, 405})
_BEFORE_NEXT_PROBE_S = 0.5
_SHOWN_MODELS = 5


@dataclass(frozen=True, slots=True)
class Server:
    """What a server says of itself; None for what it does not say."""

    context_tokens: int | None
    cache: ServerCache | None


async def find_server(
    connection: Connection, *, base_url: str, model: str, start_s: float
) -> Server:
    """Wait until a server answers that serves *model*, and return what it says of itself.

    Raises BlendError when none does within *start_s*, or when it refuses the key or the model.
    """
    response = await _models(connection, base_url=base_url, start_s=start_s)
    context = None
    # A server without a list of models takes whichever it is asked for.
    if response.status not in _NOT_THERE:
        context = _context_of(model, _listed(response, base_url), base_url)
    return Server(context, await read_cache(connection))


async def read_cache(connection: Connection) -> ServerCache | None:
    """Return what the server's metrics tell of its KV cache; None where it has none."""
    try:
        response = await connection.get("/metrics", timeout_s=PROBE_S)
    except UnansweredError:
        return None
    if response.status != 200:
        return None
    return server_cache(response.body.decode("utf-8", "replace"))


async def _models(connection: Connection, *, base_url: str, start_s: float) -> Response:
    clock = asyncio.get_running_loop().time
    deadline = clock() + start_s
    while True:
        try:
            response = await connection.get("/v1/models", timeout_s=PROBE_S)
        except UnansweredError as error:
            reason, hopeless = error.reason, error.hopeless
        else:
            if response.status == 200 or response.status in _NOT_THERE:
                return response
            _refuse(response, base_url)
            reason, hopeless = f"it answers {response.status}", False
        if hopeless or clock() >= deadline:
            raise BlendError(
                f"no server is ready at {base_url}: {reason}",
                hint="start it, or correct `--base-url`; the same command goes on from here",
                exit_code=RESUMABLE,
            )
        await asyncio.sleep(min(_BEFORE_NEXT_PROBE_S, max(deadline - clock(), 0.0)))


def _refuse(response: Response, base_url: str) -> None:
    """Raise BlendError for an answer that will not change by waiting."""
    if response.status in UNAUTHORISED:
        raise BlendError(
            f"the server at {base_url} refuses the API key, or the lack of one: {response.status}",
            hint="set OPENAI_API_KEY, or add `--api-key`",
        )
    if 300 <= response.status < 400:
        raise BlendError(
            f"the server at {base_url} redirects to {response.location}",
            hint="redirects are not followed: name the final address with `--base-url`",
        )
    if response.status < 500 and response.status != 429:
        raise BlendError(
            f"no OpenAI-compatible server at {base_url}: `/v1/models` answers {response.status}",
            hint="correct `--base-url`, such as http://127.0.0.1:8000",
        )


def _listed(response: Response, base_url: str) -> list[dict[str, Any]]:
    """Return the entries of a list of models."""
    try:
        models = orjson.loads(response.body)["data"]
        return [model for model in models if isinstance(model["id"], str)]
    except (orjson.JSONDecodeError, LookupError, TypeError):
        raise BlendError(
            f"no OpenAI-compatible server at {base_url}: `/v1/models` does not list models",
            hint="correct `--base-url`, such as http://127.0.0.1:8000",
        ) from None


def _context_of(model: str, listed: list[dict[str, Any]], base_url: str) -> int | None:
    """Return the context length that the server has for *model*; BlendError without that model."""
    found = next((entry for entry in listed if entry["id"] == model), None)
    if found is None:
        names = [entry["id"] for entry in listed]
        shown = ", ".join(names[:_SHOWN_MODELS]) + (", …" if len(names) > _SHOWN_MODELS else "")
        raise BlendError(
            f"the server at {base_url} does not serve {model}: it has {shown or 'no model'}",
            hint=f"`--served-model-name {names[0]}`, if that is the job's model"
            if names
            else "load the model into the server",
        )
    context = found.get("max_model_len")
    return context if isinstance(context, int) else None
