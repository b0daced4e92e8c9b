"""Which model is a job for? The first ingest says it, the job keeps it, later ones compare it."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from blend.cli.engine_options import parallel_in
from blend.cli.wording import plain
from blend.core.command_line import command_line, shell_word
from blend.core.errors import MISMATCH, BlendError
from blend.core.planning.hardware import ModelShape, model_shape
from blend.core.rendering.template import template_fault
from blend.core.rendering.tokenizer import Tokenizer, load_tokenizer
from blend.store.job import Job

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """The model that requests are rendered for; ``chat_template`` is a template's text."""

    model: str | None = None
    revision: str | None = None
    chat_template: str | None = None
    trust_remote_code: bool = False
    max_model_len: int | None = None


def template_text(path: Path) -> str:
    """Return the chat template in a file; BlendError for what is no text or cannot be parsed."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BlendError(
            f"chat template is not UTF-8: {path}: {error.reason}", hint="save it as UTF-8 text"
        ) from None
    why = template_fault(text)
    if why:
        raise BlendError(
            f"chat template cannot be parsed: {path}:{why}",
            hint="correct that line, or leave `--chat-template` out for the model's own",
        )
    return text


def settled_model(job: Job | None, asked: ModelOptions) -> ModelOptions:
    """Return *asked*, completed by what the job was made with; raise BlendError without a model."""
    stored = (job.meta("options") if job is not None else None) or {}
    if asked.model is None and "model" not in stored:
        raise BlendError(
            "a new job needs a model", hint="add `--model`, a folder or a name of the hub"
        )
    # Consent to run a model's code is not inherited: the job may be someone else's.
    return replace(
        asked,
        model=asked.model or stored.get("model"),
        revision=asked.revision or stored.get("revision"),
        chat_template=asked.chat_template or stored.get("chat_template"),
        max_model_len=asked.max_model_len or stored.get("max_model_len"),
    )


def loaded_tokenizer(options: ModelOptions) -> Tokenizer:
    """Load the tokenizer of settled options; raise BlendError when that cannot be."""
    if options.model is None:
        raise ValueError("options are not settled")
    # It would tell of every attempt to reach the hub; what came of them is told once. Its import
    # sets the level of the first again.
    for name in ("huggingface_hub", "huggingface_hub.utils._http"):
        logging.getLogger(name).setLevel(logging.ERROR)
    if "/" not in options.model and not Path(options.model).is_dir():
        logger.info(f"no folder here is called {plain(options.model)}: looking for it on the hub")
    return load_tokenizer(
        options.model,
        revision=options.revision,
        chat_template=options.chat_template,
        trust_remote_code=options.trust_remote_code,
        max_model_len=options.max_model_len,
    )


def refuse_other_model(job: Job, tokenizer: Tokenizer) -> None:
    """Raise BlendError when the rows in the job were rendered for another model."""
    if not len(job):
        return
    now = {**tokenizer.fingerprint, "context_tokens": tokenizer.context_tokens}
    then = {**(job.meta("fingerprint") or {}), "context_tokens": job.meta("context_tokens")}
    for name, value in now.items():
        if then.get(name) != value:
            raise BlendError(
                f"the job was ingested with another {name.replace('_', ' ')}: "
                f"{then.get(name)}, now {value}: {job.path}",
                hint="ingest into a new job",
                exit_code=MISMATCH,
            )


def keep_model(job: Job, tokenizer: Tokenizer, options: ModelOptions) -> None:
    """Write down in the job which model its requests are rendered for."""
    job.set_meta(
        model=tokenizer.model,
        context_tokens=tokenizer.context_tokens,
        fingerprint=tokenizer.fingerprint,
        model_config=tokenizer.config,
        options={
            "model": tokenizer.model,
            "revision": options.revision,
            "chat_template": options.chat_template,
            "max_model_len": options.max_model_len,
        },
    )


def model_of(job: Job) -> str:
    """Return the model that a job was ingested for; BlendError where nothing ever was."""
    model = job.meta("model")
    if model is None:
        raise BlendError(
            f"nothing has been ingested into {job.path}",
            hint=f"`{_ingest(job)} --model MODEL`",
        )
    return str(model)


def _ingest(job: Job) -> str:
    return command_line("blend", "ingest", "FILE", "--job", job.path)


def require_rows(job: Job) -> None:
    """Raise BlendError for a job that has no request to plan or to run."""
    model = model_of(job)
    if not len(job):
        raise BlendError(
            f"the job has no requests, every line was rejected or none was read: {job.path}",
            hint=f"see `{command_line('blend', 'status', job.path)}`; "
            f"`{_ingest(job)} --model {shell_word(model)}`",
        )


def shape_of(job: Job, arguments: Mapping[str, str | None], *, on_cpu: bool) -> ModelShape:
    """Return the shape of the job's model, as an engine of these *arguments* will hold it."""
    model = model_of(job)
    dtype = arguments.get("dtype") or ("float32" if on_cpu else None)
    return model_shape(
        job.meta("model_config") or {},
        name=model,
        dtype=None if dtype == "auto" else dtype,
        kv_dtype=arguments.get("kv-cache-dtype"),
        tensor=parallel_in(arguments).tensor,
    )
