"""What one row came to, as the columns of a table: its answer, its error, or its rejection."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from blend.core.causes import message_of
from blend.core.completion import Completion
from blend.core.input.draft import Rejection
from blend.core.results import error_code, rejection_key, rejection_message, response_body


@dataclass(frozen=True, slots=True)
class Answer:
    """One line of an export as columns.

    ``status_code`` is 200 for an answer, an HTTP status for a failed row, None for a rejected line.
    ``text`` is what the model wrote, of the first choice where there are several; None for an
    embedding, a call of a tool, an error. Token counts are those of the response's usage: zeros for
    a row that got the answer of an identical one. ``body`` is the response or error object as JSON,
    "" for a rejected line, whose ``custom_id`` is ``file:line``: its own, which may belong to
    another request, is ``error_custom_id``. Lines and columns count from 1.
    """

    custom_id: str
    status_code: int | None
    text: str | None = None
    finish_reason: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    error_code: str | None = None
    error_message: str | None = None
    error_line: int | None = None
    error_column: int | None = None
    error_custom_id: str | None = None
    body: str = ""

    @property
    def failed(self) -> bool:
        """Whether there is an error instead of an answer."""
        return self.status_code != 200


def answer_of(custom_id: str, completion: Completion) -> Answer:
    """Return a completion as columns."""
    body = response_body(completion)
    failed = completion.failed
    return Answer(
        custom_id,
        completion.status_code,
        text=None if failed else text_of(orjson.loads(body)),
        finish_reason=completion.finish_reason,
        prompt_tokens=completion.prompt_tokens,
        completion_tokens=completion.completion_tokens,
        cached_tokens=completion.cached_tokens,
        error_code=str(completion.status_code) if failed else None,
        error_message=message_of(body) if failed else None,
        body=body.decode("utf-8", "replace"),
    )


def rejected_answer(source: str, rejection: Rejection) -> Answer:
    """Return a line that never became a request as columns."""
    return Answer(
        rejection_key(source, rejection),
        None,
        error_code=error_code(rejection),
        error_message=rejection_message(source, rejection),
        error_line=rejection.line,
        error_column=rejection.column,
        error_custom_id=rejection.custom_id,
    )


def text_of(answer: Any) -> str | None:
    """Return what the model wrote in a parsed response object; None where it wrote no text.

    Of several choices the first; of a response with several messages all of them, one after
    another.
    """
    match answer:
        case {"choices": [{"message": {"content": str(text)}}, *_]}:
            return text
        case {"choices": [{"text": str(text)}, *_]}:
            return text
        case {"output": [*items]}:
            texts = [text for item in items for text in _texts(item)]
            return "".join(texts) if texts else None
    return None


def _texts(item: Mapping[str, Any]) -> Iterator[str]:
    match item:
        case {"type": "message", "content": [*parts]}:
            for part in parts:
                match part:
                    case {"type": "output_text", "text": str(text)}:
                        yield text
