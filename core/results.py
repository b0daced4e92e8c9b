"""Write completions and rejections as lines of OpenAI batch result files.

A line depends only on the row and its answer, so that exporting twice gives the same bytes.
"""

import orjson

from blend.core.completion import Completion
from blend.core.input.draft import Rejection


def result_line(custom_id: str, completion: Completion) -> bytes:
    """Return the line of one answered or failed row, with the engine's body byte for byte."""
    # A line ending is only ever whitespace between JSON tokens; here it would end the line.
    body = completion.body.replace(b"\r", b" ").replace(b"\n", b" ")
    return (
        b'{"id": "batch_req_%08x", "custom_id": %b, '
        b'"response": {"status_code": %d, "request_id": "req_%08x", "body": %b}, "error": null}\n'
    ) % (
        completion.row,
        orjson.dumps(custom_id),
        completion.status_code,
        completion.row,
        body,
    )


def rejected_line(source: str, rejection: Rejection) -> bytes:
    """Return the line of a request that never ran, keyed by ``file:line``.

    Its own custom_id may be missing, or belong to the request that it duplicates; it stands
    inside the error.
    """
    key = f"{source}:{rejection.line}"
    error = {
        "code": error_code(rejection),
        "message": f"{key}:{rejection.column}: {rejection.message}",
        "line": rejection.line,
        "column": rejection.column,
        "custom_id": rejection.custom_id,
    }
    record = {"id": f"rejected:{key}", "custom_id": key, "response": None, "error": error}
    return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)


def error_code(rejection: Rejection) -> str:
    """Return a rejection's reason as a word that programs compare: ``bad_max_tokens``."""
    return rejection.reason.replace("'", "").replace(" ", "_").lower()
