"""What does a response object say of how it ended, and of the tokens that it took?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from blend.core.request import Endpoint

_RESULTS: dict[Endpoint, str] = {
    "/v1/chat/completions": "choices",
    "/v1/completions": "choices",
    "/v1/responses": "output",
    "/v1/embeddings": "data",
}

# What is beyond it counts nothing, and would overflow where it is summed up.
_MOST_TOKENS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Usage:
    """``finish_reason`` is ``length`` where any part of the answer was cut at its limit."""

    finish_reason: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


def missing_result(endpoint: Endpoint, answer: Any) -> str | None:
    """Return the member that a response object must have and *answer* has not, None if it has.

    A response whose answer was cut before its first word has an empty ``output``.
    """
    name = _RESULTS[endpoint]
    results = answer.get(name) if isinstance(answer, dict) else None
    whole = isinstance(results, list) and (bool(results) or endpoint == "/v1/responses")
    return None if whole else name


def usage_of(endpoint: Endpoint, answer: Mapping[str, Any]) -> Usage:
    """Return what a parsed response object says; nothing is counted where it says nothing."""
    said = _object(answer, "usage")
    kind = ("input", "output") if endpoint == "/v1/responses" else ("prompt", "completion")
    prompt_tokens = _count(said, f"{kind[0]}_tokens")
    cached_tokens = _count(_object(said, f"{kind[0]}_tokens_details"), "cached_tokens")
    return Usage(
        finish_reason=_finish_reason(endpoint, answer),
        prompt_tokens=prompt_tokens,
        completion_tokens=_count(said, f"{kind[1]}_tokens"),
        cached_tokens=min(cached_tokens, prompt_tokens),
    )


def _finish_reason(endpoint: Endpoint, answer: Mapping[str, Any]) -> str | None:
    match endpoint:
        case "/v1/embeddings":
            return "stop"
        case "/v1/responses":
            reason = _text(answer.get("incomplete_details"), "reason")
            return "length" if reason == "max_output_tokens" else reason or "stop"
    reasons = [_text(choice, "finish_reason") for choice in _list(answer, "choices")]
    return "length" if "length" in reasons else reasons[0] if reasons else None


def _object(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _list(value: Mapping[str, Any], key: str) -> Sequence[Any]:
    found = value.get(key)
    return found if isinstance(found, list) else ()


def _count(value: Mapping[str, Any], key: str) -> int:
    found = value.get(key)
    return found if isinstance(found, int) and 0 < found <= _MOST_TOKENS else 0


def _text(value: Any, key: str) -> str | None:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, str) else None
