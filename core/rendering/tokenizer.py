"""Which tokenizer, template and limits does a model folder or hub name come with?

Everything is loaded before a job is touched; what is missing, gated or out of reach becomes a
BlendError that names the variable or the command that helps.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from blend.core.errors import BlendError
from blend.core.rendering.hub_errors import explained
from blend.core.rendering.template import Template, read_template

# Members of a config.json (vLLM's list) that bound the context; the smallest counts.
_CONTEXT_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
_TEXT_CONFIGS = ("text_config", "llm_config", "language_config")
_MEDIA_WORDS = ("vis", "image", "img", "audio", "video", "speech", "mm_", "multimodal")
# Rope scalings whose factor the context in the config does not contain yet.
_UNSCALED_ROPE = ("linear", "dynamic")
_DEFAULT_CONTEXT_TOKENS = 2048


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """A loaded tokenizer and what a model's files say about its requests.

    ``model`` is a hub name or an absolute path; ``template`` serves chats without tools,
    ``tool_template`` those with tools. ``max_token_id`` is the largest id that the model knows,
    ``max_token_characters`` the longest text that one token can stand for.
    ``default_max_tokens`` bounds answers when a request does not. ``config`` is the config.json.
    """

    model: str
    hf: Any
    template: Template | None
    tool_template: Template | None
    takes_media: bool
    max_token_id: int
    max_token_characters: int
    context_tokens: int
    default_max_tokens: int | None
    fingerprint: dict[str, str | None]
    config: dict[str, Any]


def load_tokenizer(
    model: str,
    *,
    revision: str | None = None,
    chat_template: str | None = None,
    trust_remote_code: bool = False,
    max_model_len: int | None = None,
) -> Tokenizer:
    """Load the tokenizer of *model*, a folder or a hub name; raise BlendError when that cannot be.

    ``chat_template`` is the text of a template to use instead of the model's own;
    ``max_model_len`` bounds the context further. Code that comes with a model runs only with
    ``trust_remote_code``.
    """
    model = _existing(model)
    config, hf = _config_and_tokenizer(model, revision, trust_remote_code=trust_remote_code)
    plain = _template(hf, chat_template, tools=None)
    with_tools = _template(hf, chat_template, tools=[{}])
    vocabulary = hf.get_vocab()
    return Tokenizer(
        model=model,
        hf=hf,
        template=plain,
        tool_template=with_tools,
        takes_media=takes_media(config),
        max_token_id=max(*vocabulary.values(), _text_config(config).get("vocab_size", 0) - 1),
        max_token_characters=max(map(len, vocabulary)),
        context_tokens=context_tokens(config, asked=max_model_len),
        default_max_tokens=_default_max_tokens(model, revision),
        fingerprint={
            "model": model,
            "revision": config.get("_commit_hash") or revision,
            "tokenizer": _tokenizer_digest(hf),
            "template": _digest(plain.text + with_tools.text) if plain and with_tools else None,
        },
        config=config,
    )


def context_tokens(config: Mapping[str, Any], *, asked: int | None = None) -> int:
    """Return how many tokens a prompt and its answer may have, as vLLM reads a config.json.

    Raises BlendError when more are *asked* for than the model has.
    """
    text = _text_config(config)
    found = [text[key] for key in _CONTEXT_KEYS if text.get(key)]
    limit = text.get("model_max_length") or min(found, default=None)
    if limit is None:
        return asked or _DEFAULT_CONTEXT_TOKENS
    ropes = list(_ropes(text))
    for rope in ropes:
        if (rope.get("rope_type") or rope.get("type")) in _UNSCALED_ROPE:
            limit = int(limit * (rope.get("factor") or 1.0))
    if asked is None:
        long = any((rope.get("rope_type") or rope.get("type")) == "longrope" for rope in ropes)
        return int(text.get("original_max_position_embeddings", limit) if long else limit)
    if asked > limit:
        raise BlendError(
            f"`--max-model-len` is {asked:,}, but the model's context has {int(limit):,} tokens",
            hint="lower it, or leave it out",
        )
    return asked


def takes_media(config: Mapping[str, Any]) -> bool:
    """Return whether a model may take more than text; only a plain text model says no."""
    return any(word in key.lower() for key in config for word in _MEDIA_WORDS)


def _config_and_tokenizer(
    model: str, revision: str | None, *, trust_remote_code: bool
) -> tuple[dict[str, Any], Any]:
    # It would say that there is no PyTorch, and so no models: a tokenizer needs neither.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    from transformers import AutoTokenizer, PretrainedConfig
    from transformers.utils import logging

    with explained(model, revision=revision), _quiet(logging):
        config, _ = PretrainedConfig.get_config_dict(model, revision=revision)
        if "model_type" not in config:
            raise BlendError(
                f"not a model: {model}: its `config.json` names no model type",
                hint="give a model folder in Hugging Face's layout, or a name of its hub",
            )
        hf = AutoTokenizer.from_pretrained(
            model,
            revision=revision,
            trust_remote_code=trust_remote_code,
            truncation_side="left",  # as vLLM loads it
        )
    return config, hf


def _existing(model: str) -> str:
    """Return a folder as an absolute path, a hub name as it is."""
    path = Path(model).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise BlendError(
                f"not a model folder: {model}: it has no `config.json`",
                hint="give a folder in Hugging Face's layout, or a name of its hub",
            )
        return str(path.resolve())
    if path.is_file() or model.startswith(("/", "./", "../", "~")) or model.count("/") > 1:
        raise BlendError(
            f"no such model folder: {model}",
            hint="give a folder, or a name of the Hugging Face hub such as `Qwen/Qwen3-0.6B`",
        )
    return model


def _template(hf: Any, given: str | None, *, tools: list[Any] | None) -> Template | None:
    try:
        return read_template(hf.get_chat_template(given, tools=tools))
    except ValueError:
        return None


def _text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = (config[key] for key in _TEXT_CONFIGS if isinstance(config.get(key), dict))
    return next(inner, config)


def _ropes(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the rope settings of a model, one per kind of layer where they differ."""
    settings = config.get("rope_parameters") or config.get("rope_scaling") or {}
    nested = [value for value in settings.values() if isinstance(value, dict)]
    yield from nested or [settings]


def _default_max_tokens(model: str, revision: str | None) -> int | None:
    """Return the answer length that the model's generation_config.json sets, if any."""
    from transformers import GenerationConfig

    try:
        settings = GenerationConfig.from_pretrained(model, revision=revision or "main")
    except (OSError, ValueError):
        return None
    limit: int | None = settings.max_new_tokens
    return limit


def _tokenizer_digest(hf: Any) -> str:
    backend = getattr(hf, "backend_tokenizer", None)
    if backend is not None:
        return _digest(backend.to_str())
    described = [type(hf).__name__, sorted(hf.get_vocab().items()), hf.special_tokens_map]
    return _digest(orjson.dumps(described).decode())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def _quiet(logging: Any) -> Iterator[None]:
    """Keep the library's advice off the terminal while it loads."""
    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
