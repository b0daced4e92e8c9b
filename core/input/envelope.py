"""Judge what stands around a request body on its line, and tell the vendors' forms apart.

Three forms are ours: the OpenAI batch line (``custom_id``, ``method``, ``url``, ``body``) and two
short ones, a bare completion body (``prompt``) and a bare chat body (``messages``), each with an
optional ``custom_id`` beside its fields.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from blend.core.input.draft import Reason
from blend.core.input.problem import Problem, named, shown
from blend.core.request import Endpoint

# A path with or without its version, or an address, whose gateway may put folders before it.
_URL = re.compile(
    r"(?:(?i:https?)://[^/?#]+/(?:[^?#]+?/)??|/)?(?:v1/)?(chat/completions|completions|responses|embeddings)"
    r"/*(?:[?#].*)?",
)
_ENDPOINTS: dict[str, Endpoint] = {
    "chat/completions": "/v1/chat/completions",
    "completions": "/v1/completions",
    "responses": "/v1/responses",
    "embeddings": "/v1/embeddings",
}
_VENDOR_VERSION = re.compile(r"(?:^|/)v(?!1/)\d+/")
_SHORT_ENDPOINTS: dict[str, Endpoint] = {
    "messages": "/v1/chat/completions",
    "prompt": "/v1/completions",
}
# The members by which another vendor's batch line is known, and the vendor.
_FOREIGN = (
    ("params", "Anthropic's Message Batches"),
    ("request", "Google's Gemini or Vertex AI batches"),
    ("contents", "Google's Gemini API"),
    ("modelInput", "Amazon Bedrock's batch inference"),
)
_FOREIGN_URLS = (
    (re.compile(r"(?:^|/)v4/"), "Zhipu's BigModel API"),
    (re.compile(r"(?:^|/)v1/messages/*$"), "Anthropic's Messages API"),
    (re.compile(r":(?:stream)?generateContent"), "Google's Gemini API"),
)
_OUR_MEMBERS = "`custom_id`, `method`, `url` and `body`"
_OURS = '"/v1/chat/completions", "/v1/completions", "/v1/responses" or "/v1/embeddings"'


@dataclass(frozen=True, slots=True)
class Envelope:
    """The request in a line: its endpoint, its parsed body, and the path to that body."""

    endpoint: Endpoint
    fields: dict[str, Any]
    anchor: tuple[str, ...]


def open_envelope(outer: dict[str, Any]) -> Envelope | Problem:
    """Take the request out of the object on a line, or say what is wrong around it."""
    custom_id = outer.get("custom_id")
    if type(custom_id) in (bool, list, dict):
        words = f"`custom_id` must be a string: {shown(custom_id)}"
        return Problem(("custom_id",), "bad custom_id", words)
    if "body" in outer:
        return _full_form(outer)
    return _foreign_form(outer) or _short_form(outer)


def _full_form(outer: dict[str, Any]) -> Envelope | Problem:
    method, url, body = outer.get("method", "POST"), outer.get("url"), outer["body"]
    if type(method) is not str or method.upper() != "POST":
        return Problem(("method",), "bad method", f"`method` must be POST: {shown(method)}")
    if url is None:
        words = "`url` is missing (Mistral's, Fireworks' and Together's batch files leave it out)"
        return Problem(("url",), "missing url", f"{words}; add {_OURS}")
    endpoint = _endpoint(url) if type(url) is str else None
    if endpoint is None:
        return Problem(("url",), *_unknown_url(url))
    if type(body) is not dict:
        hint = "; is it encoded twice?" if type(body) is str else ""
        return Problem(("body",), "bad body", f"`body` must be an object: {shown(body)}{hint}")
    return Envelope(endpoint, body, ("body",))


def _short_form(outer: dict[str, Any]) -> Envelope | Problem:
    stray = next((name for name in ("url", "method") if name in outer), None)
    asked = [name for name in ("messages", "prompt") if name in outer]
    if stray or not asked:
        words = "`body` is missing" if stray else "none of `body`, `messages` and `prompt` is there"
        if asked:
            words += f"; {named((asked[0],))} belongs inside it, or remove {named((stray or '',))}"
        return Problem(("body",), "missing body", words)
    if len(asked) > 1:
        words = "both `messages` and `prompt`: a request has one of them"
        return Problem(("prompt",), "bad prompt", words)
    fields = {name: value for name, value in outer.items() if name != "custom_id"}
    return Envelope(_SHORT_ENDPOINTS[asked[0]], fields, ())


def _foreign_form(outer: dict[str, Any]) -> Problem | None:
    for member, vendor in _FOREIGN:
        if member in outer:
            words = f"the form of {vendor} (`{member}`); write {_OUR_MEMBERS}"
            return Problem((member,), "another vendor's form", words)
    return None


@lru_cache(maxsize=256)
def _endpoint(url: str) -> Endpoint | None:
    match = _URL.fullmatch(url)
    if match is None or _VENDOR_VERSION.search(url):
        return None
    return _ENDPOINTS[match[1]]


def _unknown_url(url: Any) -> tuple[Reason, str]:
    if type(url) is str:
        for pattern, vendor in _FOREIGN_URLS:
            if pattern.search(url):
                words = f"the form of {vendor}: {shown(url)}; write {_OURS}"
                return "another vendor's form", words
    return "unknown url", f"`url` must be {_OURS}: {shown(url)}"
