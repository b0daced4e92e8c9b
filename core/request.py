"""One request of a batch job."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Endpoint = Literal["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings"]


@dataclass(frozen=True, slots=True)
class Request:
    """One accepted request, ready for an engine.

    ``body`` is the request body byte for byte as the user wrote it, but for the limit of output
    tokens that a retry gave it; ``prompt`` holds its rendered token ids, (p,), all prompts of a
    list one after another; ``max_tokens`` bounds the output of each of its ``sequences`` (n times
    the number of prompts), 0 for an embedding.
    """

    row: int
    custom_id: str
    endpoint: Endpoint
    body: bytes
    prompt: npt.NDArray[np.uint32]
    max_tokens: int
    sequences: int = 1
