"""How a request becomes bytes on the wire, and what comes back a completion.

Bodies pass byte for byte, but for the name of the model on the way out. What is not JSON never
becomes a completion's body: it would stand in the middle of a result file.
"""

from dataclasses import dataclass
from typing import Any

import orjson

from blend.core.completion import Completion
from blend.core.engines.usage import missing_result, usage_of
from blend.core.input.json_span import with_member
from blend.core.request import Request

_SHOWN_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class Response:
    """What a server sent back."""

    status: int
    body: bytes
    retry_after: str | None = None
    location: str | None = None


class BadAnswerError(Exception):
    """The server said 200, but what it sent is no response object; the message says why."""


def with_model(body: bytes, model: str) -> bytes:
    """Return a request body that asks for *model* and is otherwise byte for byte the same."""
    return with_member(body, "model", orjson.dumps(model))


def completion_of(
    request: Request, response: Response, *, started: float, finished: float
) -> Completion:
    """Return what *response*, a final one, means for *request*.

    Raises BadAnswerError where a status of 200 comes without a response object.
    """
    if response.status != 200:
        return Completion(
            request.row,
            response.status,
            error_body(response),
            started=started,
            finished=finished,
        )
    answer = _parsed(response.body)
    if missing := missing_result(request.endpoint, answer):
        raise BadAnswerError(f"the answer is JSON, but it has no `{missing}`")
    usage = usage_of(request.endpoint, answer)
    return Completion(
        request.row,
        200,
        response.body,
        finish_reason=usage.finish_reason,
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cached_tokens=usage.cached_tokens,
        started=started,
        finished=finished,
    )


def error_body(response: Response) -> bytes:
    """Return the body of an error response, as an error object where it is not JSON."""
    try:
        orjson.loads(response.body)
    except orjson.JSONDecodeError:
        text = response.body.decode("utf-8", "replace").strip()[:_SHOWN_CHARACTERS]
        message = text or f"the server answered {response.status} without a word"
        return error_object(message, status=response.status)
    return response.body


def error_object(message: str, *, status: int) -> bytes:
    """Return an error in the form of the OpenAI API."""
    error = {"message": message, "type": "server_error", "param": None, "code": status}
    return orjson.dumps({"error": error})


def _parsed(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadAnswerError(f"the answer is not JSON: {error}") from error
