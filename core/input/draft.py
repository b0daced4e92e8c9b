"""What one line of a request file becomes: a draft of a request, or a rejection."""

from dataclasses import dataclass
from typing import Any, Literal

from blend.core.request import Endpoint

Reason = Literal[
    "line too long",
    "not UTF-8",
    "not JSON",
    "NaN or Infinity",
    "number out of range",
    "unpaired surrogate",
    "control character",
    "nested too deeply",
    "git conflict marker",
    "pretty-printed JSON",
    "not an object",
    "another vendor's form",
    "bad custom_id",
    "duplicate custom_id",
    "bad method",
    "missing url",
    "unknown url",
    "missing body",
    "bad body",
    "missing messages",
    "missing prompt",
    "bad messages",
    "unknown role",
    "bad prompt",
    "bad max_tokens",
    "bad n",
    "stream",
    "bad field",
    "prompt too long",
    "max_tokens too large",
    "template refused",
]

Note = Literal["custom_id generated", "custom_id converted", "custom_id long"]


@dataclass(frozen=True, slots=True)
class Draft:
    """A well-formed request that no tokenizer has seen yet.

    ``body`` is the request body byte for byte as it stands in the line (for the short forms the
    line's own members without ``custom_id``); ``fields`` is that body parsed. ``max_tokens`` is
    None where the model's limit applies; ``model`` is None where the body names none or a
    placeholder. Columns are 1-based bytes in the line.
    """

    line: int
    custom_id: str
    endpoint: Endpoint
    body: bytes
    fields: dict[str, Any]
    max_tokens: int | None
    sequences: int
    model: str | None
    notes: tuple[Note, ...] = ()
    id_column: int = 1
    body_column: int = 1

    @property
    def id_made_up(self) -> bool:
        """Whether the line had no custom_id: its own may be changed until it is unique."""
        return "custom_id generated" in self.notes


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a line is no request: the place, a reason from a closed set, and the full sentence.

    ``column`` is the 1-based byte column of the offending value.
    """

    line: int
    column: int
    reason: Reason
    message: str
    custom_id: str | None = None
