"""Which token ids does a request's prompt have?

Chats go through the model's own template, completions are taken as they are, and whole batches are
tokenised at once. The ids are those of vLLM's own rendering (0.32, models with a Jinja template);
media parts stand for fewer tokens here than in the engine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from blend.core.input.draft import Draft, Reason, Rejection
from blend.core.rendering import chat
from blend.core.rendering.response_chat import as_chat
from blend.core.rendering.template import Template
from blend.core.rendering.tokenizer import Tokenizer

# A text this long is measured in pieces first: its encoding could need gigabytes.
PIECE_CHARACTERS = 1 << 18


@dataclass(frozen=True, slots=True)
class Rendered:
    """The token ids of a request's prompts, one prompt after another, (sum of lengths,)."""

    tokens: npt.NDArray[np.uint32]
    lengths: tuple[int, ...]

    @property
    def longest(self) -> int:
        """Return the tokens of the longest prompt."""
        return max(self.lengths)


@dataclass(frozen=True, slots=True)
class _Encoding:
    """How a text becomes tokens, as the body asks for it."""

    special_tokens: bool
    keep_tokens: int | None = None
    keep_side: str | None = None


@dataclass(frozen=True, slots=True)
class _Prompts:
    """What a request asks for before tokenisation: texts or token ids."""

    given: tuple[str | list[int], ...]
    encoding: _Encoding


class _RefusedError(Exception):
    """A prompt that has no tokens, and the reason for it."""

    def __init__(self, reason: Reason, message: str):
        super().__init__(message)
        self.reason = reason
        self.message = message


def render(tokenizer: Tokenizer, drafts: Sequence[Draft]) -> list[Rendered | Rejection]:
    """Return the tokens of every draft, or why it has none, in order.

    A prompt that is far too long is rejected with a lower bound of its length.
    """
    asked = [_prompts(tokenizer, draft) for draft in drafts]
    encoded = _encoded(tokenizer, [prompts for prompts in asked if isinstance(prompts, _Prompts)])
    return [
        _rendered(draft, prompts, encoded) if isinstance(prompts, _Prompts) else prompts
        for draft, prompts in zip(drafts, asked, strict=True)
    ]


def _prompts(tokenizer: Tokenizer, draft: Draft) -> _Prompts | Rejection:
    try:
        match draft.endpoint:
            case "/v1/chat/completions":
                return _chat_prompt(tokenizer, draft, draft.fields)
            case "/v1/responses":
                return _chat_prompt(tokenizer, draft, as_chat(draft.fields))
            case "/v1/completions":
                return _given_prompts(tokenizer, draft, draft.fields["prompt"])
            case "/v1/embeddings":
                return _given_prompts(tokenizer, draft, draft.fields["input"])
    except _RefusedError as refused:
        return _rejection(draft, refused.reason, refused.message)


def _chat_prompt(tokenizer: Tokenizer, draft: Draft, fields: dict[str, Any]) -> _Prompts:
    template = tokenizer.tool_template if fields.get("tools") else tokenizer.template
    if template is None:
        raise _RefusedError("template refused", "the model has no chat template")
    given = fields.get("chat_template") or (fields.get("chat_template_kwargs") or {}).get(
        "chat_template"
    )
    if given is not None:
        raise _RefusedError("template refused", "`chat_template` in a request is not accepted")
    try:
        text = apply_template(tokenizer, template, fields)
    # A template is code that came with the model or the request: it may raise anything.
    except Exception as error:
        raise _RefusedError("template refused", _cause(error)) from error
    _refuse_endless(tokenizer, text, draft)
    return _Prompts((text,), _encoding(tokenizer, draft, special_tokens=False))


def apply_template(tokenizer: Tokenizer, template: Template, fields: dict[str, Any]) -> str:
    """Return the text of a chat; raises whatever the template raises."""
    messages = chat.conversation(
        fields["messages"], as_parts=template.as_parts, media=tokenizer.takes_media
    )
    if not template.knows_developer and any(m["role"] == "developer" for m in messages):
        messages = chat.developer_as_system(messages)
    arguments = {"tools": chat.tools(fields), **chat.template_arguments(fields)}
    text: str = tokenizer.hf.apply_chat_template(
        messages, chat_template=template.text, tokenize=False, **arguments
    )
    return text


def _given_prompts(tokenizer: Tokenizer, draft: Draft, prompt: str | list[Any]) -> _Prompts:
    alone = isinstance(prompt, str) or (bool(prompt) and isinstance(prompt[0], int))
    given: tuple[str | list[int], ...] = (prompt,) if alone else tuple(prompt)
    for part in given:
        if isinstance(part, str):
            _refuse_endless(tokenizer, part, draft)
        elif part and max(part) > tokenizer.max_token_id:
            words = f"token id {max(part)} is not in the vocabulary: {tokenizer.max_token_id}"
            raise _RefusedError("bad prompt", f"{words} is the last")
    return _Prompts(given, _encoding(tokenizer, draft, special_tokens=True))


def _encoding(tokenizer: Tokenizer, draft: Draft, *, special_tokens: bool) -> _Encoding:
    fields = draft.fields
    asked = fields.get("add_special_tokens")
    keep = fields.get("truncate_prompt_tokens")
    if draft.endpoint == "/v1/responses":
        keep = -1 if fields.get("truncation") == "auto" else None
    if keep == -1:
        # vLLM keeps one token of the context for the answer, where there is one.
        keep = tokenizer.context_tokens - (draft.max_tokens != 0)
    return _Encoding(
        special_tokens if asked is None else asked, keep, fields.get("truncation_side")
    )


def _refuse_endless(tokenizer: Tokenizer, text: str, draft: Draft) -> None:
    """Refuse a text that is far beyond the context without encoding all of it."""
    cut = draft.fields.get("truncate_prompt_tokens") is not None
    if len(text) <= PIECE_CHARACTERS or cut or draft.fields.get("truncation") == "auto":
        return
    limit = tokenizer.context_tokens
    at_least = len(text) // tokenizer.max_token_characters
    counted = 0
    for start in range(0, len(text), PIECE_CHARACTERS):
        if at_least > limit:
            words = f"the prompt has at least {at_least:,} tokens, but the context has {limit:,}"
            raise _RefusedError("prompt too long", words)
        piece = text[start : start + PIECE_CHARACTERS]
        # A cut can make two tokens of one, and so can the cut at the piece's other end.
        counted += len(_batch(tokenizer, [piece], _Encoding(special_tokens=False))[0]) - 2
        at_least = max(at_least, counted)


def _encoded(
    tokenizer: Tokenizer, asked: Sequence[_Prompts]
) -> dict[tuple[str, _Encoding], list[int]]:
    """Return the ids of all texts, each encoded once, one tokenizer call per kind of encoding."""
    texts: dict[_Encoding, dict[str, None]] = {}
    for prompts in asked:
        wanted = texts.setdefault(prompts.encoding, {})
        wanted.update((given, None) for given in prompts.given if isinstance(given, str))
    return {
        (text, encoding): ids
        for encoding, unique in texts.items()
        for text, ids in zip(unique, _batch(tokenizer, list(unique), encoding), strict=True)
    }


def _batch(tokenizer: Tokenizer, texts: list[str], encoding: _Encoding) -> list[list[int]]:
    if not texts:
        return []
    whole = encoding.keep_tokens is None or encoding.keep_side is not None
    cut = {} if whole else {"truncation": True, "max_length": encoding.keep_tokens}
    ids: list[list[int]] = tokenizer.hf(
        texts,
        add_special_tokens=encoding.special_tokens,
        return_attention_mask=False,
        verbose=False,
        **cut,
    )["input_ids"]
    return [_kept(one, encoding) for one in ids]


def _kept(ids: list[int], encoding: _Encoding) -> list[int]:
    keep = encoding.keep_tokens
    if keep is None or keep >= len(ids):
        return ids
    return ids[:keep] if encoding.keep_side == "right" else ids[len(ids) - keep :]


def _rendered(
    draft: Draft,
    prompts: _Prompts,
    encoded: dict[tuple[str, _Encoding], list[int]],
) -> Rendered | Rejection:
    encoding = prompts.encoding
    ids = [
        encoded[given, encoding] if isinstance(given, str) else _kept(given, encoding)
        for given in prompts.given
    ]
    if not all(ids):
        return _rejection(draft, "bad prompt", "the prompt has no tokens")
    lengths = tuple(map(len, ids))
    return Rendered(np.concatenate([np.array(one, np.uint32) for one in ids]), lengths)


def _rejection(draft: Draft, reason: Reason, message: str) -> Rejection:
    return Rejection(draft.line, draft.body_column, reason, message, draft.custom_id)


def _cause(error: Exception) -> str:
    """Return what a template complained about, in one line."""
    import jinja2

    current: BaseException | None = error
    while current is not None and not isinstance(current, jinja2.TemplateError):
        current = current.__cause__ or current.__context__
    words = str(current or error).strip() or type(error).__name__
    return " ".join(words.split())[:300]
