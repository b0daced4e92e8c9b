"""The response objects of the simulated engine: valid ones of each endpoint, made up."""

from collections.abc import Sequence
from typing import Any

from blend.core.engines.usage import Usage
from blend.core.request import Request

MODEL = "blend-sim"

Outcome = tuple[int, str]
"""Output tokens of one sequence, and its finish reason."""


def response_object(
    request: Request, outcomes: Sequence[Outcome], usage: Usage, *, created: int
) -> dict[str, Any]:
    """Return the object that answers *request*, whose sequences ended as *outcomes* say."""
    match request.endpoint:
        case "/v1/responses":
            return _response(request, outcomes[0], usage, created=created)
        case "/v1/embeddings":
            return _embeddings(outcomes, usage)
    chat = request.endpoint == "/v1/chat/completions"
    return {
        "id": f"{'chatcmpl' if chat else 'cmpl'}-sim-{request.row}",
        "object": "chat.completion" if chat else "text_completion",
        "created": created,
        "model": MODEL,
        "choices": [_choice(index, outcome, chat=chat) for index, outcome in enumerate(outcomes)],
        "usage": _usage(usage),
    }


def _choice(index: int, outcome: Outcome, *, chat: bool) -> dict[str, Any]:
    text, reason = _text(outcome), outcome[1]
    said = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    return {"index": index, **said, "logprobs": None, "finish_reason": reason}


def _response(request: Request, outcome: Outcome, usage: Usage, *, created: int) -> dict[str, Any]:
    cut = outcome[1] == "length"
    content = [{"type": "output_text", "text": _text(outcome), "annotations": []}]
    message = {"type": "message", "role": "assistant", "status": "completed", "content": content}
    return {
        "id": f"resp_sim_{request.row}",
        "object": "response",
        "created_at": created,
        "model": MODEL,
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": [{"id": f"msg_sim_{request.row}", **message}],
        "usage": {
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens},
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        },
    }


def _embeddings(outcomes: Sequence[Outcome], usage: Usage) -> dict[str, Any]:
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": [0.0, 1.0]}
            for index in range(len(outcomes))
        ],
        "model": MODEL,
        "usage": {"prompt_tokens": usage.prompt_tokens, "total_tokens": usage.prompt_tokens},
    }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


def _text(outcome: Outcome) -> str:
    return f"[simulated answer of {outcome[0]} tokens]"
