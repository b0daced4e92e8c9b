"""Judge one line of a request file: a draft, a rejection with its place, or nothing at all.

The body is kept byte for byte, so that large integers, key order, duplicate keys and escapes
reach the engine as the user wrote them; only its judgement works on parsed values.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import orjson

from blend.core.input.diagnose import diagnose
from blend.core.input.draft import Draft, Note, Rejection
from blend.core.input.envelope import Envelope, open_envelope
from blend.core.input.fields import check_fields
from blend.core.input.json_span import Span, locate, members
from blend.core.input.limits import LIMIT_NAMES
from blend.core.input.lines import RawLine
from blend.core.input.messages import check_messages, check_prompt, prompts_in
from blend.core.input.problem import Problem, shown
from blend.core.input.response_items import check_response_input
from blend.core.request import Endpoint

LONG_ID_CHARACTERS = 256

# What vLLM and the OpenAI API give a body that sets no limit.
_UNLIMITED: dict[Endpoint, int | None] = {
    "/v1/chat/completions": None,
    "/v1/completions": 16,
    "/v1/responses": None,
    "/v1/embeddings": 0,
}
_CHECKS: dict[Endpoint, Callable[[Mapping[str, Any]], Problem | None]] = {
    "/v1/chat/completions": check_messages,
    "/v1/completions": check_prompt,
    "/v1/responses": check_response_input,
    "/v1/embeddings": partial(check_prompt, name="input"),
}


def parse_line(line: RawLine) -> Draft | Rejection | None:
    """Return the request on a line, why there is none, or None for a blank line.

    In the row of a table, columns are those of the table.
    """
    judged = _parsed(line)
    if not line.columns or judged is None:
        return judged
    if isinstance(judged, Rejection):
        return replace(judged, column=_column_at(judged.column, line))
    places = (_column_at(byte, line) for byte in (judged.id_column, judged.body_column))
    id_column, body_column = places
    return replace(judged, id_column=id_column, body_column=body_column)


def _column_at(byte: int, line: RawLine) -> int:
    """Return the column of the table that a byte of a row, counted from 1, belongs to."""
    found = [column for start, column in line.columns if start < byte]
    return found[-1] if found else line.columns[0][1]


def _parsed(line: RawLine) -> Draft | Rejection | None:
    document = line.data
    if document is None:
        words = f"the line has {line.length:,} bytes, more than `--max-line-bytes`"
        return Rejection(line.number, 1, "line too long", words)
    if not document or document.isspace():
        return None
    try:
        outer = orjson.loads(document)
    except orjson.JSONDecodeError as error:
        offset, reason, words = diagnose(document, error)
        return Rejection(line.number, offset + 1, reason, words)
    if type(outer) is not dict:
        start = locate(document, ())[0]
        words = f"a line must hold one JSON object: {shown(outer)}"
        return Rejection(line.number, start + 1, "not an object", words)
    return _judged(line.number, document, outer)


def duplicate(draft: Draft, first: str) -> Rejection:
    """Return the rejection of a draft whose custom_id was used before, at ``first`` (file:line)."""
    words = f"custom_id {shown(draft.custom_id)} of line {draft.line} was first used at {first}"
    return Rejection(draft.line, draft.id_column, "duplicate custom_id", words, draft.custom_id)


def too_long(draft: Draft, *, prompt_tokens: int, context_tokens: int) -> Rejection | None:
    """Return a rejection when the request cannot fit the model's context, as vLLM judges it.

    ``prompt_tokens`` is the length of the request's longest prompt, once truncated. A prompt needs
    room for one token of output where there is any; an output limit beyond what the prompt leaves
    free is only a limit, but one beyond the whole context is a mistake.
    """
    place = draft.line, draft.body_column
    if draft.max_tokens is not None and draft.max_tokens > context_tokens:
        given = (name for name in LIMIT_NAMES[draft.endpoint] if draft.fields.get(name) is not None)
        name = next(given, "max_tokens")
        words = f"`{name}` is {draft.max_tokens:,}, but the context has {context_tokens:,}"
        return Rejection(*place, "max_tokens too large", f"{words} tokens", draft.custom_id)
    if prompt_tokens + (draft.max_tokens != 0) > context_tokens:
        words = f"the prompt has {prompt_tokens:,} tokens, but the context has {context_tokens:,}"
        return Rejection(*place, "prompt too long", words, draft.custom_id)
    return None


def output_tokens(draft: Draft, *, prompt_tokens: int, context_tokens: int) -> int:
    """Return how many tokens each sequence of a request may answer with."""
    free = context_tokens - prompt_tokens
    return free if draft.max_tokens is None else min(draft.max_tokens, free)


def _judged(number: int, document: bytes, outer: dict[str, Any]) -> Draft | Rejection:
    envelope = open_envelope(outer)
    if isinstance(envelope, Problem):
        return _rejection(number, document, outer, envelope, ())
    problem = _check_body(envelope)
    if problem is not None:
        return _rejection(number, document, outer, problem, envelope.anchor)
    return _draft(number, document, envelope)


def _check_body(envelope: Envelope) -> Problem | None:
    fields, endpoint = envelope.fields, envelope.endpoint
    return _CHECKS[endpoint](fields) or check_fields(fields, endpoint)


def _rejection(
    number: int,
    document: bytes,
    outer: dict[str, Any],
    problem: Problem,
    anchor: tuple[str, ...],
) -> Rejection:
    column = locate(document, (*anchor, *problem.path))[0] + 1
    given = outer.get("custom_id")
    custom_id = given if type(given) is str else None
    return Rejection(number, column, problem.reason, problem.message, custom_id)


def _draft(number: int, document: bytes, envelope: Envelope) -> Draft:
    start = document.index(b"{")
    spans = list(members(document, start))
    by_name = dict(spans)
    custom_id, notes = _identity(number, document, by_name.get("custom_id"))
    if envelope.anchor:
        body_start, body_end = by_name["body"]
        body = document[body_start:body_end]
    else:
        body_start, body = start, _without_id(document, spans)
    fields = envelope.fields
    return Draft(
        line=number,
        custom_id=custom_id,
        endpoint=envelope.endpoint,
        body=body,
        fields=fields,
        max_tokens=_max_tokens(envelope),
        sequences=_sequences(envelope),
        model=_model(fields.get("model")),
        notes=notes,
        id_column=by_name.get("custom_id", (start, start))[0] + 1,
        body_column=body_start + 1,
    )


def _identity(number: int, document: bytes, span: Span | None) -> tuple[str, tuple[Note, ...]]:
    """Return a line's custom_id as a string, and what had to be done for it."""
    text = document[slice(*span)] if span else b"null"
    if text in (b"null", b'""'):
        return f"line-{number}", ("custom_id generated",)
    if not text.startswith(b'"'):
        # The digits as written: a large integer must not turn into a rounded one.
        return text.decode(), ("custom_id converted",)
    custom_id = str(orjson.loads(text))
    return custom_id, ("custom_id long",) if len(custom_id) > LONG_ID_CHARACTERS else ()


def _without_id(document: bytes, spans: list[tuple[str, Span]]) -> bytes:
    """Return the object of a short form without its custom_id, every value byte for byte."""
    kept = (
        orjson.dumps(name) + b": " + document[start:end]
        for name, (start, end) in spans
        if name != "custom_id"
    )
    return b"{" + b", ".join(kept) + b"}"


def _sequences(envelope: Envelope) -> int:
    fields = envelope.fields
    match envelope.endpoint:
        case "/v1/chat/completions":
            return int(fields.get("n") or 1)
        case "/v1/completions":
            return int(fields.get("n") or 1) * prompts_in(fields["prompt"])
        case "/v1/responses":
            return 1
        case "/v1/embeddings":
            return prompts_in(fields["input"])


def _max_tokens(envelope: Envelope) -> int | None:
    for name in LIMIT_NAMES[envelope.endpoint]:
        if (limit := envelope.fields.get(name)) is not None:
            return int(limit)
    return _UNLIMITED[envelope.endpoint]


def _model(name: str | None) -> str | None:
    """Return the model that a body asks for; a placeholder asks for none."""
    if name is None or name.strip().lower() in ("", "placeholder") or name.startswith("{{"):
        return None
    return name
