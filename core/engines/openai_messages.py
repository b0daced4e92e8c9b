"""What an OpenAIEngine tells its service, and what it hears from it."""

from dataclasses import dataclass, field

from blend.core.completion import Completion
from blend.core.engines import Capacity
from blend.core.engines.openai_retry import Patience


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Which server, and how to treat it.

    ``base_url`` is what stands before ``/v1/…``; ``model`` is the name by which the server knows
    the model; ``concurrency`` bounds the sequences at the server. ``kv_tokens`` is the size of its
    KV cache where it does not tell itself.
    """

    base_url: str
    model: str
    api_key: str | None = field(default=None, repr=False)
    concurrency: int = 64
    kv_tokens: int | None = None
    step_tokens: int = 8192
    seed: int = 0
    patience: Patience = field(default_factory=Patience)


@dataclass(frozen=True, slots=True)
class Ready:
    """The server answers."""

    capacity: Capacity


@dataclass(frozen=True, slots=True)
class Started:
    """Requests went to the server."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """All requests inside were dropped, these rows."""

    rows: tuple[int, ...]


Message = Ready | Started | Completion | Dropped | Exception
"""An exception is the end of the engine, to be raised in the caller's thread."""
