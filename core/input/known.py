"""Is it known how long an answer will be, before it is made?

It is when nothing can end it before its limit (`ignore_eos`, or `min_tokens` as large as the
limit), and when the request says so itself: `"metadata": {"output_tokens": 16384}` in its body, a
number or, as the OpenAI API wants metadata, a string of digits.
"""

from collections.abc import Mapping
from typing import Any

from blend.core.input.fields import is_integer

METADATA_KEY = "output_tokens"


def known_tokens(fields: Mapping[str, Any], *, max_tokens: int) -> int | None:
    """Return the output tokens of each sequence of a request; None where they are not known.

    ``fields`` is a body that was found valid, ``max_tokens`` the limit that the engine will keep.
    """
    if max_tokens < 1:
        return None
    stops = fields.get("stop") or fields.get("stop_token_ids")
    runs_on = bool(fields.get("ignore_eos")) and not stops
    if runs_on or int(fields.get("min_tokens") or 0) >= max_tokens:
        return max_tokens
    said = _said(fields.get("metadata"))
    return None if said is None else min(said, max_tokens)


def _said(metadata: Any) -> int | None:
    """Return the length in a request's metadata; what else may stand there is the user's own."""
    said: Any = metadata.get(METADATA_KEY) if isinstance(metadata, Mapping) else None
    if isinstance(said, str) and said.isascii() and said.isdigit():
        said = int(said)
    return int(said) if is_integer(said) and said > 0 else None
