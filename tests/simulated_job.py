"""A job for a large model whose lengths are what `blend simulate` is asked about."""

import json
from pathlib import Path

import numpy as np

from blend.core.planning import hardware
from blend.store.job import Job, NewRow

MODEL = "llama-3-8b"
CONTEXT = 32_768


def large_model_job(path: Path, *, rows: int, seed: int = 0, sequences: int = 1) -> Path:
    """Make a job of few long answers to short prompts among many short ones to long prompts."""
    presets = Path(hardware.__file__).parent / "data" / "models.json"
    config = json.loads(presets.read_text())[MODEL]["config"]
    rng = np.random.default_rng(seed)
    with Job.open(path, create=True) as job:
        job.set_meta(model=MODEL, model_config=config, context_tokens=CONTEXT, fingerprint={})
        source = job.open_source("in.jsonl", size=100, digest="d")
        new = [_row(number, rng, sequences) for number in range(rows)]
        job.append(source, new, [], offset=100, line=rows, complete=True)
    return path


def _row(number: int, rng: np.random.Generator, sequences: int) -> NewRow:
    kind = int(rng.choice(3, p=[0.5, 0.4, 0.1]))
    own = 200 + number % 50
    tokens = np.concatenate(
        [np.arange((800, 300, 20)[kind]) + 1000 * kind, rng.integers(0, 2**17, own)]
    )
    return NewRow(
        f"row-{number}",
        number + 1,
        "/v1/chat/completions",
        b"{}",
        tokens.astype(np.uint32),
        (2, 64, 8_000)[kind],
        sequences,
    )
