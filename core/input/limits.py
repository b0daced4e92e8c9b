"""The limit of output tokens: how high it can be, and how it stands in a request body."""

import numpy as np
import numpy.typing as npt

from blend.core.input.json_span import members, with_member
from blend.core.request import Endpoint

LIMIT_NAMES: dict[Endpoint, tuple[str, ...]] = {
    "/v1/chat/completions": ("max_completion_tokens", "max_tokens"),
    "/v1/completions": ("max_tokens",),
    "/v1/responses": ("max_output_tokens",),
    "/v1/embeddings": (),
}
"""The fields of a body that bound its output, those that win first."""


def higher_limits(
    max_tokens: int, *, prompt_tokens: npt.NDArray[np.int64], context_tokens: int | None
) -> npt.NDArray[np.int64]:
    """Return *max_tokens*, or what the context leaves beside each prompt where less, (k,)."""
    if context_tokens is None:
        return np.full(len(prompt_tokens), max_tokens)
    return np.minimum(max_tokens, context_tokens - prompt_tokens)


def with_limit(endpoint: Endpoint, body: bytes, max_tokens: int) -> bytes:
    """Return a body that allows *max_tokens* output tokens and is otherwise byte for byte the same.

    Under every name that it gives a limit by now; under the oldest one where it gives none.
    """
    present = {name for name, _ in members(body, body.index(b"{"))}
    value = str(max_tokens).encode()
    names = LIMIT_NAMES[endpoint]
    for name in [name for name in names if name in present] or names[-1:]:
        body = with_member(body, name, value)
    return body
