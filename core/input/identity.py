"""Which requests must get the same answer?

Those of one endpoint whose bodies say the same, where sampling leaves nothing to chance: nothing is
sampled for an embedding, the temperature is 0, or there is a seed. What tells only who asks is no
part of what is asked.
"""

import re
from hashlib import blake2b
from typing import Any

import orjson

DIGEST_BYTES = 16
NO_PART = frozenset(("user", "metadata"))
"""Members of a body that do not influence its answer."""

_ECHOING = ("/v1/responses",)  # endpoints whose answers repeat those members
# As a float or a large integer such a number may be rounded: bodies that differ would look alike.
_LONG_NUMBER = re.compile(rb"\d{16}")


def request_digest(endpoint: str, body: bytes, *, max_tokens: int | None = None) -> bytes | None:
    """Return a digest that identical requests share; None where chance decides the answer.

    ``max_tokens``: a limit that takes the place of the body's.
    """
    fields = orjson.loads(body)
    if not _deterministic(endpoint, fields):
        return None
    digest = blake2b(f"{endpoint} {max_tokens} ".encode(), digest_size=DIGEST_BYTES)
    digest.update(body if _LONG_NUMBER.search(body) else _canonical(endpoint, fields))
    return digest.digest()


def _deterministic(endpoint: str, fields: dict[str, Any]) -> bool:
    if endpoint == "/v1/embeddings":
        return True
    return fields.get("temperature") == 0 or fields.get("seed") is not None


def _canonical(endpoint: str, fields: dict[str, Any]) -> bytes:
    if endpoint not in _ECHOING:
        fields = {name: value for name, value in fields.items() if name not in NO_PART}
    return orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)
