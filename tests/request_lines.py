"""Request lines to judge, and what they turn out to be."""

import json
from typing import Any

from blend.core.input.draft import Draft, Rejection
from blend.core.input.lines import RawLine
from blend.core.input.validate import parse_line

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
COMPLETION: dict[str, Any] = {"model": "m", "prompt": "once"}


def judged(text: bytes | str, number: int = 7) -> Draft | Rejection | None:
    data = text.encode() if isinstance(text, str) else text
    return parse_line(RawLine(number, data, len(data) + 1, len(data) + 1))


def accepted(text: bytes | str) -> Draft:
    draft = judged(text)
    assert isinstance(draft, Draft), draft
    return draft


def rejected(text: bytes | str) -> Rejection:
    rejection = judged(text)
    assert isinstance(rejection, Rejection), rejection
    return rejection


def chat(**fields: Any) -> str:
    body = CHAT | fields
    return json.dumps(
        {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body}
    )


def completion(**fields: Any) -> str:
    body = COMPLETION | fields
    return json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": body})


def response(**fields: Any) -> str:
    body = {"model": "m", "input": "hi"} | fields
    return json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/responses", "body": body})


def embedding(**fields: Any) -> str:
    body = {"model": "m", "input": "hi"} | fields
    return json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/embeddings", "body": body})


def outer(**members: Any) -> str:
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": CHAT}
    return json.dumps(line | members)


def without(name: str) -> str:
    line = json.loads(outer())
    del line[name]
    return json.dumps(line)
