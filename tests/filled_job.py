"""A job with rows in it, and completions to go with them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from blend.core.completion import Completion
from blend.store.job import Job, NewRow


def new_row(number: int, *, custom_id: str | None = None, tokens: Sequence[int] = (1, 2)) -> NewRow:
    """An accepted request from line ``number + 1``."""
    return NewRow(
        custom_id or f"request-{number}",
        number + 1,
        "/v1/chat/completions",
        b'{"messages": [%d]}' % number,
        np.array(tokens, np.uint32),
        16,
    )


def filled_job(path: Path, *, rows: int) -> Job:
    """A new job with ``rows`` rows from one complete file."""
    job = Job.open(path, create=True)
    source = job.open_source("in.jsonl", size=100, digest="d")
    job.append(source, [new_row(i) for i in range(rows)], [], offset=100, line=rows, complete=True)
    return job


def answer(row: int, *, text: str = "yes", finish_reason: str = "stop") -> Completion:
    """A response that took 2 prompt tokens, one of them cached, and 3 output tokens."""
    body = f'{{"row": {row}, "text": "{text}"}}'.encode()
    return Completion(row, 200, body, finish_reason, 2, 3, 1, 10.0, 11.5)


def failure(row: int, message: str, *, status_code: int = 400) -> Completion:
    """An error body as an OpenAI server writes it."""
    return Completion(row, status_code, f'{{"error": {{"message": "{message}"}}}}'.encode())
