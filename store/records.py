"""What the job database takes and gives back that no stage of the core knows of."""

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from blend.core.request import Endpoint

Purpose = Literal["sample", "execute"]
Outcome = Literal[
    "finished",
    "stopped",
    "cut off",
    "handed on",
    "gave up",
    "interrupted",
    "engine died",
    "failed",
    "killed",
]


@dataclass(frozen=True, slots=True)
class Source:
    """A file that rows came from, and how far it is ingested.

    ``offset`` bytes (uncompressed) and ``line`` lines are done; ``digest`` is of the whole file.
    """

    id: int
    path: str
    size: int
    digest: str
    offset: int = 0
    line: int = 0
    complete: bool = False


@dataclass(frozen=True, slots=True)
class NewRow:
    """One accepted request on its way into the job.

    ``known_tokens``: output tokens of each sequence, where the request says so.
    """

    custom_id: str
    line: int
    endpoint: Endpoint
    body: bytes
    tokens: npt.NDArray[np.uint32]
    max_tokens: int
    sequences: int = 1
    known_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large each row is, without its tokens; int64 and int32 arrays of shape (n,)."""

    prompt_tokens: npt.NDArray[np.int64]
    max_tokens: npt.NDArray[np.int32]
    sequences: npt.NDArray[np.int32]


class RejectedGroup(NamedTuple):
    """The rejections of one reason, with the first of them as the example."""

    reason: str
    lines: int
    path: str
    line: int
    column: int
    message: str


@dataclass(frozen=True, slots=True)
class Counts:
    """How far a job is.

    total = answered + failed + pending + running. ``truncated`` is the part of answered that was
    cut at max_tokens; ``rejected`` counts input lines, which are not in the total.
    ``total_prompt_tokens`` are those of all rows; the other token counts are those of the results.
    ``answered_before``: rows with an answer that a retry took back, and none since. ``copied``: the
    rows whose result is that of an identical request, which took no tokens; ``copied_from``: the
    rows that ran for them.
    """

    total: int
    answered: int
    failed: int
    pending: int
    running: int
    truncated: int
    rejected: int
    total_prompt_tokens: int
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    answered_before: int = 0
    copied: int = 0
    copied_from: int = 0

    @property
    def unfinished(self) -> int:
        """Return how many rows have no result."""
        return self.pending + self.running


class FailureGroup(NamedTuple):
    """The failed rows of one status and cause, with the first of them as the example."""

    status_code: int
    message: str
    rows: int
    custom_id: str


def _no_rows() -> npt.NDArray[np.int64]:
    return np.empty(0, np.int64)


def _no_tokens() -> npt.NDArray[np.float64]:
    return np.empty(0, np.float64)


def _no_flags() -> npt.NDArray[np.bool_]:
    return np.empty(0, np.bool_)


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """Everything about a plan but its schedule; the dictionaries hold JSON values.

    The sample's arrays have shape (k,): the rows that ran, their output tokens so far, and whether
    they finished. ``length_source``, (n,) by row, says where each expected length came from;
    ``subtree``, (n,) by row, is the index in ``outline`` of the deepest subtree that holds it;
    reading a plan back leaves both None. ``id`` and ``created`` (Unix time) are given by saving.
    """

    policy: str
    settings: dict[str, Any] = field(default_factory=dict)
    digests: dict[str, Any] = field(default_factory=dict)
    predictions: dict[str, Any] = field(default_factory=dict)
    outline: list[dict[str, Any]] = field(default_factory=list)
    sample_rows: npt.NDArray[np.int64] = field(default_factory=_no_rows)
    sample_tokens: npt.NDArray[np.float64] = field(default_factory=_no_tokens)
    sample_finished: npt.NDArray[np.bool_] = field(default_factory=_no_flags)
    length_source: npt.NDArray[np.int8] | None = None
    subtree: npt.NDArray[np.int32] | None = None
    id: int = 0
    created: float = 0.0


@dataclass(frozen=True, slots=True)
class Answered:
    """What the answered rows took, arrays (k,) in row order; tokens of all their sequences."""

    rows: npt.NDArray[np.int64]
    prompt_tokens: npt.NDArray[np.int64]
    output_tokens: npt.NDArray[np.int64]
    cached_tokens: npt.NDArray[np.int64]


class Failure(NamedTuple):
    """One failed row, with its line of the input; ``message`` is the beginning of the error's."""

    custom_id: str
    path: str
    line: int
    status_code: int
    message: str
    attempts: int


class Place(NamedTuple):
    """Where the latest plan puts one row."""

    position: int
    side: int
    expected_tokens: float
    uncached_tokens: int
    density: float
    length_source: int | None


@dataclass(frozen=True, slots=True)
class Run:
    """One engine's stay on the job; unfinished while ``outcome`` is None. Times are Unix time.

    ``engine_pid`` leads the engine's process group; ``cause`` says why the run ended, where that
    is more than its outcome says.
    """

    id: int
    purpose: Purpose
    engine: str
    settings: dict[str, Any]
    host: str
    pid: int
    boot_id: str
    started: float
    heartbeat: float
    finished: float | None
    outcome: Outcome | None
    results: int
    engine_pid: int | None
    cause: str | None


class Step(NamedTuple):
    """One point of a run's timeline: ``seconds`` since its start, fill levels, and differences."""

    seconds: float
    steps: int
    running: int
    waiting: int
    kv_tokens: int
    prefill_tokens: int
    decode_tokens: int
    cached_tokens: int
    preemptions: int
    answered: int
