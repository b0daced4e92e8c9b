"""What the simulated engine makes of a request, and what becomes of it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import orjson

from blend.core.completion import Completion
from blend.core.engines import Capacity
from blend.core.engines.sim_responses import Outcome, response_object
from blend.core.engines.usage import Usage
from blend.core.input.identity import request_digest
from blend.core.input.known import known_tokens
from blend.core.request import Request


def hashed_length(request: Request) -> int:
    """Return output tokens: those that the request says, or what its custom_id makes of max_tokens.

    Over many ids: exponential with a mean of a third of max_tokens, cut at max_tokens. Identical
    requests whose answers chance does not decide get the same.
    """
    known = known_tokens(orjson.loads(request.body), max_tokens=request.max_tokens)
    if known is not None:
        return known
    identity = request_digest(request.endpoint, request.body) or request.custom_id.encode()
    digest = blake2b(identity, digest_size=8).digest()
    uniform = int.from_bytes(digest) / 2**64
    tokens = 1 + int(-math.log1p(-min(uniform, 0.9999)) * request.max_tokens / 3)
    return min(tokens, request.max_tokens)


@dataclass(slots=True, eq=False)
class Work:
    """One request inside the engine: ``copies`` sequences of each of its prompts."""

    request: Request
    prompts: list[npt.NDArray[np.uint32]]
    outputs: list[int]
    copies: int
    limits: list[int]
    unfinished: int
    cached_tokens: int = 0
    started_s: float | None = None

    def admit(self, *, cached_tokens: int, now_s: float) -> None:
        """Note that one of its sequences has been admitted."""
        self.cached_tokens += cached_tokens
        if self.started_s is None:
            self.started_s = now_s

    def finish(self) -> bool:
        """Note that one of its sequences has finished; tell whether it was the last."""
        self.unfinished -= 1
        return not self.unfinished


def work_of(request: Request, *, output_tokens: int, context_tokens: int) -> Work:
    """Return the sequences of a request, each at most as long as max_tokens and context allow."""
    count = _prompt_count(request)
    # Where the prompts of a list end is not known here; equal parts weigh the same.
    prompts = np.array_split(request.prompt, count)
    limits = [min(request.max_tokens, context_tokens - len(prompt)) for prompt in prompts]
    outputs = [max(min(output_tokens, limit), 1) for limit in limits]
    return Work(
        request, prompts, outputs, request.sequences // count, limits, unfinished=request.sequences
    )


def _prompt_count(request: Request) -> int:
    member = {"/v1/completions": "prompt", "/v1/embeddings": "input"}.get(request.endpoint)
    if request.sequences == 1 or member is None:
        return 1
    prompt = orjson.loads(request.body).get(member)
    several = isinstance(prompt, list) and bool(prompt) and not isinstance(prompt[0], int)
    return len(prompt) if several and request.sequences % len(prompt) == 0 else 1


def refusal(work: Work, *, capacity: Capacity, cache_tokens: int) -> Completion | None:
    """Return the error of a request that can never run here, or None."""
    for prompt, output in zip(work.prompts, work.outputs, strict=True):
        if not len(prompt):
            return _refused(work, "the prompt is empty")
        if len(prompt) + (work.request.max_tokens > 0) > capacity.context_tokens:
            return _refused(
                work,
                f"this model's maximum context length is {capacity.context_tokens} tokens, "
                f"and the prompt has {len(prompt)}",
            )
        if len(prompt) + output - 1 > cache_tokens:
            return _refused(
                work,
                f"the prompt has {len(prompt)} tokens and the answer {output}, "
                f"but the whole KV cache holds {cache_tokens}",
            )
    return None


def _refused(work: Work, message: str) -> Completion:
    error = {"message": message, "type": "BadRequestError", "param": None, "code": 400}
    return Completion(
        row=work.request.row,
        status_code=400,
        body=orjson.dumps({"error": error}),
        prompt_tokens=len(work.request.prompt),
    )


def answer(work: Work, *, now_s: float) -> Completion:
    """Return the completion of a request whose sequences have all finished."""
    outcomes = list(_outcomes(work))
    # The step that reads the text of an embedding writes nothing.
    writes = work.request.max_tokens > 0
    usage = Usage(
        "length" if any(reason == "length" for _, reason in outcomes) else "stop",
        len(work.request.prompt),
        sum(tokens for tokens, _ in outcomes) if writes else 0,
        work.cached_tokens,
    )
    return Completion(
        row=work.request.row,
        status_code=200,
        body=orjson.dumps(response_object(work.request, outcomes, usage, created=int(now_s))),
        finish_reason=usage.finish_reason,
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cached_tokens=usage.cached_tokens,
        started=now_s if work.started_s is None else work.started_s,
        finished=now_s,
    )


def _outcomes(work: Work) -> Iterator[Outcome]:
    for output, limit in zip(work.outputs, work.limits, strict=True):
        cut = output >= limit and work.request.max_tokens > 0
        yield from [(output, "length" if cut else "stop")] * work.copies
