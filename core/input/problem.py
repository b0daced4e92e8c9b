"""What is wrong with one value of a request, before a line and a column are known."""

from dataclasses import dataclass
from typing import Any

import orjson

from blend.core.input.draft import Reason

_SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Problem:
    """A sentence about the value at ``path`` (keys and indices), and the reason it belongs to."""

    path: tuple[str | int, ...]
    reason: Reason
    message: str


def named(path: tuple[str | int, ...]) -> str:
    """Return a path as its writer would say it: ``messages[0].role``."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return f"`{text.lstrip('.')}`"


def shown(value: Any) -> str:
    """Return a parsed JSON value as JSON, cut where it is long."""
    if isinstance(value, str | list | dict) and len(value) > _SHOWN_CHARACTERS:
        value = value[:_SHOWN_CHARACTERS] if isinstance(value, str) else type(value)()
        return f"{orjson.dumps(value).decode()[:-1]}…"
    try:
        text = orjson.dumps(value).decode()
    except orjson.JSONEncodeError:  # nested deeper than it writes
        return "{…" if isinstance(value, dict) else "[…"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
