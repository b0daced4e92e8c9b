"""Write completions and rejections as lines of OpenAI batch result files.

A line depends only on the row and its answer, so that exporting twice gives the same bytes.
"""

from typing import Any

import orjson

from blend.core.completion import Completion
from blend.core.input.draft import Rejection
from blend.core.input.json_span import with_member


def result_line(custom_id: str, completion: Completion) -> bytes:
    """Return the line of one answered or failed row, with the engine's body byte for byte.

    A row that did not run itself has the ``request_id`` of the one that ran, and a usage of zeros:
    over all lines, every token that was computed is counted once.
    """
    ran = completion.row if completion.same_as is None else completion.same_as
    return (
        b'{"id": "batch_req_%08x", "custom_id": %b, '
        b'"response": {"status_code": %d, "request_id": "req_%08x", "body": %b}, "error": null}\n'
    ) % (
        completion.row,
        orjson.dumps(custom_id),
        completion.status_code,
        ran,
        response_body(completion),
    )


def response_body(completion: Completion) -> bytes:
    """Return the answer or error object on one line, that of a copy with a usage of zeros."""
    # A line ending is only ever whitespace between JSON tokens; here it would end the line.
    body = completion.body.replace(b"\r", b" ").replace(b"\n", b" ")
    return body if completion.same_as is None else _without_usage(body)


def _without_usage(body: bytes) -> bytes:
    answer = orjson.loads(body)
    usage = answer.get("usage") if isinstance(answer, dict) else None
    return body if usage is None else with_member(body, "usage", orjson.dumps(_zeroed(usage)))


def _zeroed(usage: Any) -> Any:
    if isinstance(usage, dict):
        return {name: _zeroed(value) for name, value in usage.items()}
    return 0 if isinstance(usage, int | float) else usage


def rejected_line(source: str, rejection: Rejection) -> bytes:
    """Return the line of a request that never ran, keyed by ``file:line``.

    Its own custom_id may be missing, or belong to the request that it duplicates; it stands
    inside the error.
    """
    key = rejection_key(source, rejection)
    error = {
        "code": error_code(rejection),
        "message": rejection_message(source, rejection),
        "line": rejection.line,
        "column": rejection.column,
        "custom_id": rejection.custom_id,
    }
    record = {"id": f"rejected:{key}", "custom_id": key, "response": None, "error": error}
    return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)


def rejection_key(source: str, rejection: Rejection) -> str:
    """Return what stands for the custom_id of a line that is no request: ``file:line``."""
    return f"{source}:{rejection.line}"


def rejection_message(source: str, rejection: Rejection) -> str:
    """Return the place of a rejection and the full sentence."""
    return f"{rejection_key(source, rejection)}:{rejection.column}: {rejection.message}"


def error_code(rejection: Rejection) -> str:
    """Return a rejection's reason as a word that programs compare: ``bad_max_tokens``."""
    return rejection.reason.replace("'", "").replace(" ", "_").lower()
