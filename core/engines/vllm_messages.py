"""What travels between a VllmEngine and its host process.

The first message to the host is a Start, each later one a Work, an Ask or an Abort, the last a
Close. The host answers with one Ready or Refused, then with Moved, with Ages to each Ask, with
Dropped to each Abort, and with Died when its engine is gone. Messages travel in lists: those that
were ready together, in their order.
"""

from dataclasses import dataclass

from blend.core.engines import Capacity, Pacing, StepReport
from blend.core.engines.processors import Processors
from blend.core.request import Endpoint


@dataclass(frozen=True, slots=True)
class Start:
    """The engine to build; arguments in vLLM's own flag names, without dashes before them.

    ``pacing`` is what is wanted of it; ``seeded`` when a request may have a seed of its own.
    """

    model: str
    served_model_name: str
    arguments: tuple[tuple[str, str | None], ...]
    seed: int | None
    pacing: Pacing = "none"
    seeded: bool = True


@dataclass(frozen=True, slots=True)
class Work:
    """One request to answer; ``prompt``: the token ids that the job has of a chat, uint32."""

    row: int
    endpoint: Endpoint
    body: bytes
    sequences: int
    prompt: bytes = b""


@dataclass(frozen=True, slots=True)
class Ask:
    """Say how far every request inside is."""


@dataclass(frozen=True, slots=True)
class Abort:
    """Drop every request inside."""


@dataclass(frozen=True, slots=True)
class Close:
    """Stop the engine and leave."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The engine runs; ``processors`` are left to who drives it, all of them where empty."""

    capacity: Capacity
    vllm_version: str
    processors: Processors = frozenset()


@dataclass(frozen=True, slots=True)
class Refused:
    """The engine could not be built; ``by_arguments`` when its command line is at fault."""

    reason: str
    by_arguments: bool


@dataclass(frozen=True, slots=True)
class Moved:
    """Something moved; ``received`` counts the sequences of all Work the host had by then."""

    report: StepReport
    received: int


@dataclass(frozen=True, slots=True)
class Ages:
    """Output tokens that each row inside has."""

    tokens: dict[int, int]


@dataclass(frozen=True, slots=True)
class Dropped:
    """Every request is dropped; output tokens that each row of them had."""

    tokens: dict[int, int]


@dataclass(frozen=True, slots=True)
class Died:
    """The engine is gone."""

    reason: str
