"""Which batches are the engines compared on?

Prompts are digits, which the tiny model's tokenizer takes one by one, so that lengths are exact
apart from the chat template. All answers are greedy and as long as ``max_tokens`` says.
"""

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from blend.core.prompts import Prompts

CONTEXT_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: the digits of its system and user message, and the tokens of its answer."""

    system: str
    user: str
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Case:
    """A batch in file order, and the engine it runs on."""

    name: str
    title: str
    kv_tokens: int
    max_sequences: int
    asks: tuple[Ask, ...]

    def first(self, requests: int | None) -> "Case":
        """Return the case with its first requests alone, all for None."""
        return replace(self, asks=self.asks[:requests])

    def write(self, path: Path) -> None:
        """Write the requests as an OpenAI batch file."""
        with path.open("w", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(line)}\n" for line in self._lines())

    def _lines(self) -> Iterator[dict[str, object]]:
        for number, ask in enumerate(self.asks):
            messages = [
                {"role": role, "content": text}
                for role, text in (("system", ask.system), ("user", ask.user))
                if text
            ]
            body = {
                "model": "tiny",
                "messages": messages,
                "max_tokens": ask.output_tokens,
                "temperature": 0,
                "ignore_eos": True,
            }
            yield {
                "custom_id": f"request-{number}",
                "method": "POST",
                "url": "/v1/chat/completions",
                "body": body,
            }


def cases(seed: int = 0) -> dict[str, Case]:
    """Return the cases by name; the same seed gives the same requests."""
    made = (_groups(seed), _tail(seed), _plain(seed))
    return {case.name: case for case in made}


def _groups(seed: int) -> Case:
    rng = random.Random(seed)
    systems = [_digits(rng, 216) for _ in range(40)]
    asks = [Ask(systems[row % 40], _digits(rng, 16), 32) for row in range(600)]
    title = "40 groups with a shared prefix, shuffled, on a small KV cache"
    return Case("a", title, 6_112, 64, _shuffled(rng, asks))


def _tail(seed: int) -> Case:
    rng = random.Random(seed + 1)
    systems = [_digits(rng, 192) for _ in range(10)]
    short = [Ask(systems[row % 10], _digits(rng, 64), 8) for row in range(340)]
    tail = [min(700, 100 + int(rng.expovariate(1 / 150))) for _ in range(60)]
    long = [Ask("", _digits(rng, 24), output_tokens) for output_tokens in tail]
    title = "short answers to long prompts, with a tail of long answers to short prompts"
    return Case("b", title, 12_256, 64, _shuffled(rng, short + long))


def _plain(seed: int) -> Case:
    rng = random.Random(seed + 2)
    asks = [Ask("", _digits(rng, 112), 64) for _ in range(400)]
    return Case("c", "unrelated requests of one kind", 24_544, 64, tuple(asks))


def _digits(rng: random.Random, count: int) -> str:
    return "".join(rng.choices("0123456789", k=count))


def _shuffled(rng: random.Random, asks: Iterable[Ask]) -> tuple[Ask, ...]:
    mixed = list(asks)
    rng.shuffle(mixed)
    return tuple(mixed)


def possible_cached_tokens(prompts: Prompts, *, block_tokens: int) -> int:
    """Return the prompt tokens that a cache which never forgets would save, in any order.

    Counted by writing down every prefix that ends with a full block. The last token of a prompt is
    always computed.
    """
    seen: set[bytes] = set()
    cached = 0
    for row in range(len(prompts)):
        prompt = np.asarray(prompts[row])
        for end in range(block_tokens, len(prompt) + 1, block_tokens):
            prefix = prompt[:end].tobytes()
            cached += block_tokens * (prefix in seen and end < len(prompt))
            seen.add(prefix)
    return cached
