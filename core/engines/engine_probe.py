"""What does a step of a running engine cost? It is given batches that show it, one after another.

Prompts of one size alone, decodes of one number at a time, on short and on long contexts, and a
mixture: from these the costs of a step, a prefill and a decode token and a read can be told apart.
No two prompts share anything, so that nothing comes from the cache.
"""

import json
from collections.abc import Callable, Sequence

import numpy as np

from blend.core.engines import Engine, StepReport
from blend.core.errors import BlendError
from blend.core.planning.profile import Measured, measured_of
from blend.core.request import Request

LINE_S = 0.1
ANSWER_TOKENS, MIXED_TOKENS = 24, 48
_SHORT_PROMPT = 16

Sizes = Sequence[tuple[int, int]]
"""The requests of a batch: tokens of each prompt, and of its answer."""


def probe_batches(*, many: bool, context_tokens: int) -> list[Sizes]:
    """Return the batches, *many* tokens in them where a device takes these in no time.

    The first is a warm-up that tells nothing.
    """
    longest = context_tokens - MIXED_TOKENS
    prompts = [16, 48, 96, 160, 256, 384, 512, *([1024, 2048, 4096] if many else [])]
    running = [1, 2, 4, 8, 16, 32, *([64, 128, 256] if many else [])]
    alone = [[(min(tokens, longest), 1)] for tokens in prompts]
    decodes = [[(_SHORT_PROMPT, ANSWER_TOKENS)] * count for count in running]
    reads = [[(min(256, longest), ANSWER_TOKENS)] * count for count in running[2::2]]
    mixed = _mixed(4 * running[-1] // 3, longest)
    return [[(32, 4)] * 2, *alone, *decodes, mixed, *reads, *alone, *decodes[::2], mixed]


def probed(
    engine: Engine,
    batches: Sequence[Sizes],
    *,
    vocabulary: int,
    seconds: float,
    clock: Callable[[], float],
) -> Measured:
    """Run the batches, none begun after *seconds*, and return stretches of about LINE_S each."""
    rng = np.random.default_rng(0)
    warm_up, *others = batches
    _run(engine, _requests(rng, warm_up, vocabulary))
    lines: list[Measured] = []
    began_s = clock()
    for sizes in others:
        if clock() - began_s >= seconds:
            break
        reports: list[StepReport] = []
        while sum(report.seconds for report in reports) < LINE_S:
            reports += _run(engine, _requests(rng, sizes, vocabulary))
        lines.append(measured_of(_lines(reports)))
    columns = [
        np.concatenate([getattr(one, name) for one in lines]) if lines else np.zeros(0)
        for name in ("seconds", "steps", "prefill_tokens", "decode_tokens", "read_tokens")
    ]
    return Measured(*columns)


def _mixed(count: int, longest: int) -> Sizes:
    rng = np.random.default_rng(1)
    prompts, outputs = rng.integers(8, 200, count), rng.integers(2, MIXED_TOKENS, count)
    return [(min(p, longest), o) for p, o in zip(prompts.tolist(), outputs.tolist(), strict=True)]


def _requests(rng: np.random.Generator, sizes: Sizes, vocabulary: int) -> list[Request]:
    return [_request(row, rng, *size, vocabulary) for row, size in enumerate(sizes)]


def _request(
    row: int, rng: np.random.Generator, length: int, output: int, vocabulary: int
) -> Request:
    tokens = rng.integers(3, max(vocabulary, 5), length).astype(np.uint32)
    body = {"prompt": tokens.tolist(), "max_tokens": output, "ignore_eos": True, "temperature": 0}
    raw = json.dumps(body).encode()
    return Request(row, f"probe-{row}", "/v1/completions", raw, tokens, output)


def _run(engine: Engine, requests: Sequence[Request]) -> list[StepReport]:
    for request in requests:
        engine.submit(request)
    reports: list[StepReport] = []
    answered = 0
    while answered < len(requests):
        reports.append(engine.step())
        failed = next((one for one in reports[-1].completions if one.failed), None)
        if failed is not None:
            raise BlendError(
                f"the engine refused a made-up request: {failed.body.decode(errors='replace')}",
                hint="measure without an engine, or learn from a run: `blend calibrate JOB`",
            )
        answered += len(reports[-1].completions)
    return reports


def _lines(reports: Sequence[StepReport]) -> list[list[float]]:
    """Return the reports as stretches of at least LINE_S; columns as `measured_of` takes them."""
    lines: list[list[float]] = []
    seconds, last_s, sums = 0.0, 0.0, np.zeros(3)
    for report in reports:
        seconds += report.seconds
        sums += (report.steps, report.prefill_tokens, report.decode_tokens)
        if seconds - last_s >= LINE_S:
            lines.append([seconds, *sums.tolist(), float(report.kv_tokens)])
            sums, last_s = np.zeros(3), seconds
    if lines and sums[0]:
        lines[-1][0] = seconds
        lines[-1][1:4] = (np.array(lines[-1][1:4]) + sums).tolist()
    return lines
