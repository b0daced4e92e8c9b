"""May the token ids that the job has of a chat stand in for rendering it once more?

Rendering and tokenising are a third of what a request costs around an engine. The ids in the job
come from blend's own rendering, which is tested to be vLLM's. They are used for plain chats alone,
of texts with a role and no field that a rendering could look at, and only while they are what vLLM
renders: the first of each kind, and one in 64 of the others, are rendered by vLLM and compared.
The invariant: after one difference, vLLM renders every chat.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

logger = logging.getLogger(__name__)

CHECKED_FIRST, CHECKED_EVERY = 4, 64

# What says how an answer is made, never what is asked.
PLAIN_FIELDS = frozenset(
    {
        "model",
        "messages",
        "max_tokens",
        "max_completion_tokens",
        "min_tokens",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "seed",
        "n",
        "stop",
        "stop_token_ids",
        "ignore_eos",
        "logprobs",
        "top_logprobs",
        "frequency_penalty",
        "presence_penalty",
        "repetition_penalty",
        "logit_bias",
        "user",
        "metadata",
    }
)
_PLAIN_MESSAGE = {"role", "content"}
_PLAIN_ROLES = {"system", "user", "assistant"}

Kind = tuple[str, ...]


def kind_of(fields: Mapping[str, Any]) -> Kind | None:
    """Return the roles of a plain chat in order, each run of one once; None for any other chat."""
    messages = fields.get("messages")
    if not PLAIN_FIELDS.issuperset(fields) or not isinstance(messages, list):
        return None
    kind: list[str] = []
    for message in messages:
        if not isinstance(message, dict) or message.keys() != _PLAIN_MESSAGE:
            return None
        role, content = message["role"], message["content"]
        if role not in _PLAIN_ROLES or not isinstance(content, str):
            return None
        if role not in kind[-1:]:
            kind.append(role)
    return tuple(kind)


@dataclass(frozen=True, slots=True)
class _Known:
    kind: Kind
    ids: list[int]
    used: bool


class KnownPrompts:
    """The ids of the chat that the present task answers, and whether they can be relied on."""

    def __init__(self) -> None:
        self._now: ContextVar[_Known | None] = ContextVar("known prompt", default=None)
        self._asked: Counter[Kind] = Counter()
        self._agreed: Counter[Kind] = Counter()
        self._trusted = True

    def begin(self, fields: Mapping[str, Any], prompt: bytes) -> None:
        """Let the present task answer a chat of *fields*, with the *prompt* that the job has."""
        kind = kind_of(fields) if self._trusted and prompt else None
        if kind is None:
            return
        self._asked[kind] += 1
        checked = self._asked[kind] % CHECKED_EVERY == 0 or self._agreed[kind] < CHECKED_FIRST
        self._now.set(_Known(kind, np.frombuffer(prompt, "<u4").tolist(), used=not checked))

    def ids(self) -> list[int] | None:
        """Return what stands in for rendering the chat, None where vLLM is to render it."""
        known = self._now.get()
        return known.ids if known is not None and known.used and self._trusted else None

    def rendered(self, ids: Sequence[int] | None) -> None:
        """Compare what vLLM has rendered, where it has."""
        known = self._now.get()
        if known is None or known.used:
            return
        if ids is not None and list(ids) == known.ids:
            self._agreed[known.kind] += 1
        elif self._trusted:
            self._trusted = False
            logger.warning("vLLM renders a chat otherwise than the job has it: it renders them all")
