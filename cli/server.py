"""Which server does `--engine openai` mean, and how is it to be treated?"""

from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import urlsplit

from blend.cli.engine_options import whole_number
from blend.core.engines import Engine
from blend.core.engines.openai_retry import Patience
from blend.core.errors import BlendError

PATIENCE = Patience()

# What says how the job was rendered or what its plan costs is of use without a server, too.
_OF_THE_JOB = frozenset(
    {"max-model-len", "revision", "chat-template", "trust-remote-code", "dtype", "kv-cache-dtype"}
)
_OF_THE_SERVER = frozenset(
    {
        "base-url",
        "served-model-name",
        "concurrency",
        "kv-tokens",
        "max-num-batched-tokens",
        "request-timeout",
    }
)


def open_server(
    arguments: Mapping[str, str | None], *, model: str, api_key: str | None, seed: int
) -> Engine:
    """Begin to look for the server of *arguments*, which `refuse_server` has let pass."""
    try:
        from blend.core.engines.openai import OpenAIEngine
        from blend.core.engines.openai_messages import ServerSettings
    except ModuleNotFoundError as error:
        if error.name != "aiohttp":
            raise
        raise BlendError("`--engine openai` needs aiohttp", hint="`pip install aiohttp`") from None
    attempt_s = whole_number(arguments, "request-timeout", round(PATIENCE.attempt_s))
    return OpenAIEngine(
        ServerSettings(
            base_url_of(arguments.get("base-url")),
            arguments.get("served-model-name") or model,
            api_key,
            concurrency=whole_number(arguments, "concurrency", 64),
            kv_tokens=whole_number(arguments, "kv-tokens", 0) or None,
            step_tokens=whole_number(arguments, "max-num-batched-tokens", 8192),
            seed=seed,
            patience=replace(PATIENCE, attempt_s=attempt_s, row_s=2 * attempt_s),
        )
    )


def refuse_server(arguments: Mapping[str, str | None], api_key: str | None) -> None:
    """Raise BlendError where *arguments* name no server, or ask for what none does."""
    for name in arguments:
        if name not in _OF_THE_JOB | _OF_THE_SERVER:
            raise BlendError(
                f"`--{name}` cannot be set from here on a server that runs",
                hint="give it to the server when it is started",
            )
    base_url_of(arguments.get("base-url"))
    if api_key and not (api_key.isascii() and api_key.isprintable()):
        raise BlendError(
            "the API key has characters that no HTTP header may hold",
            hint="set OPENAI_API_KEY to the bare key: no quotes, no line breaks inside",
        )


def base_url_of(text: str | None) -> str:
    """Return what stands before `/v1/…`, as clients of the OpenAI API are told it or without it.

    BlendError without an address, or for one that is none or holds a secret.
    """
    if not text:
        raise BlendError(
            "`--engine openai` needs the address of a server",
            hint="add `--base-url`, such as http://127.0.0.1:8000",
        )
    if "@" in text:
        # The address is shown and stored.
        raise BlendError("`--base-url` must not hold a name or password", hint="use `--api-key`")
    try:
        parts = urlsplit(text)
        sound = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        sound = False
    if not sound or "?" in text or "#" in text:
        raise BlendError(
            f"not the address of a server: {text}", hint="write it as http://127.0.0.1:8000"
        )
    return text.rstrip("/").removesuffix("/v1").rstrip("/")
