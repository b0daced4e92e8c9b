"""The words that a request says to the model, numbered, for a look at prompts before a tokenizer.

A word or a sign is about a token. Numbers are hashes: equal words have equal numbers everywhere.
"""

import random
import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
import orjson

from blend.core.input.draft import Draft
from blend.core.prompts import Prompts

CHARACTERS_OF_A_PROMPT = 32_768
PROMPTS_KEPT = 1_000
BODIES_KEPT = 65_536

_WORD = re.compile(r"\w+|[^\w\s]")


def words_of(fields: dict[str, Any]) -> npt.NDArray[np.uint32]:
    """Return the numbers of the first words of a parsed body, in the order the model reads them."""
    return _numbered(_beginning(fields))


def _numbered(text: str) -> npt.NDArray[np.uint32]:
    words = _WORD.findall(text)
    return np.fromiter((crc32(word.encode("utf-8", "replace")) for word in words), np.uint32)


def _beginning(fields: dict[str, Any]) -> str:
    """Return what the model reads first, as one text."""
    begun, left = [], CHARACTERS_OF_A_PROMPT
    for text in _texts(fields):
        begun.append(text[:left])
        left -= len(begun[-1])
        if left <= 0:
            break
    return "\n".join(begun)


def _texts(fields: dict[str, Any]) -> Iterator[str]:
    if fields.get("tools"):
        # Templates put them before all messages.
        yield orjson.dumps(fields["tools"]).decode()
    for message in fields.get("messages") or ():
        yield f"<{message.get('role')}>"
        yield from _said(message.get("content"))
    for name in ("instructions", "prompt", "input"):
        yield from _said(fields.get(name))


def _said(value: Any) -> Iterator[str]:
    """Yield the texts inside a content, a prompt, or a list of them; token ids as they are."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, int):
        yield str(value)
    elif isinstance(value, list):
        for part in value:
            yield from _said(part)
    elif isinstance(value, dict):
        yield from _said(value.get("text") or value.get("content"))


class PromptSample:
    """An even sample of the prompts of any number of requests, and how many bodies repeat.

    Bodies are told apart by a hash, and counted for the smallest hashes alone: exactly up to
    BODIES_KEPT different ones, beyond it by what these show.
    """

    def __init__(self, *, seed: int = 0):
        self.seen = 0
        self._random = random.Random(seed)
        self._kept: list[str] = []
        self._bodies: dict[int, int] = {}
        self._largest = 2**64

    def add(self, draft: Draft) -> None:
        """Take in one request."""
        self.seen += 1
        # Every request so far has the same chance to be among the kept (Algorithm R).
        place = self._random.randrange(self.seen)
        if len(self._kept) < PROMPTS_KEPT:
            self._kept.append(_beginning(draft.fields))
        elif place < PROMPTS_KEPT:
            self._kept[place] = _beginning(draft.fields)
        digest = blake2b(draft.body, digest_size=8, key=draft.endpoint.encode()).digest()
        self._count(int.from_bytes(digest))

    def _count(self, number: int) -> None:
        if number >= self._largest:
            return
        self._bodies[number] = self._bodies.get(number, 0) + 1
        if len(self._bodies) > 2 * BODIES_KEPT:
            kept = sorted(self._bodies)[:BODIES_KEPT]
            self._largest = kept[-1] + 1
            self._bodies = {one: self._bodies[one] for one in kept}

    @property
    def repeated(self) -> int:
        """Return how many requests have endpoint and body of an earlier one, byte for byte."""
        counted = sum(self._bodies.values())
        return round(self.seen * (counted - len(self._bodies)) / counted) if counted else 0

    @property
    def scale(self) -> float:
        """Return how many requests each of the sample stands for."""
        return self.seen / max(len(self._kept), 1)

    def prompts(self) -> Prompts:
        """Return the sample's prompts, a word for a token."""
        words = [_numbered(text) for text in self._kept]
        starts = np.zeros(len(words) + 1, np.int64)
        starts[1:] = np.cumsum([len(one) for one in words])
        tokens = np.concatenate(words) if words else np.zeros(0, np.uint32)
        ones = np.ones(len(words), np.int32)
        return Prompts(tokens, starts, ones, ones)
