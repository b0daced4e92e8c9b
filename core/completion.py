"""What an engine answers to one request."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Completion:
    """The final answer to one row: a response body, or an error body with its HTTP status.

    ``body`` is the JSON of the endpoint's response object, or of its error object when
    ``status_code`` is not 200. Token counts are those of the response's usage; ``started`` and
    ``finished`` are seconds on the engine's clock (Unix time, or virtual time in the simulator).
    ``same_as``: the row with an identical request whose run answered this one too; the body is
    that row's, the token counts are 0.
    """

    row: int
    status_code: int
    body: bytes
    finish_reason: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    started: float = 0.0
    finished: float = 0.0
    same_as: int | None = None

    @property
    def failed(self) -> bool:
        """Whether the row has an error instead of an answer."""
        return self.status_code != 200
