"""Tell a person which lines were rejected, and why, without flooding the terminal."""

import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from blend.cli.wording import counted, plain
from blend.core.input.draft import Note, Reason, Rejection
from blend.core.utf8 import as_utf8

logger = logging.getLogger(__name__)

_KEPT_OF_A_REASON, _PRINTED_OF_A_REASON = 20, 5

_NOTE_WORDS: dict[Note, str] = {
    "custom_id generated": "had no custom_id and got `line-<n>`",
    "custom_id converted": "had a number as custom_id; it is now a string",
    "custom_id long": "have a custom_id of more than 256 characters",
}


def shown_source(source: str) -> str:
    """Return what a person calls an input: its path, or ``stdin`` for ``-``."""
    return "stdin" if source == "-" else as_utf8(source)


def place(source: str, rejection: Rejection) -> str:
    """Return ``file:line:column`` of a rejection."""
    return f"{shown_source(source)}:{rejection.line}:{rejection.column}"


@dataclass(slots=True)
class RejectionTally:
    """Rejections counted by reason, with the first few of each kept whole."""

    kept_of_a_reason: int = _KEPT_OF_A_REASON
    counts: Counter[Reason] = field(default_factory=Counter)
    examples: dict[Reason, list[tuple[str, Rejection]]] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.counts.total()

    def add(self, source: str, rejection: Rejection) -> None:
        """Count one rejection of a line of ``source``."""
        self.counts[rejection.reason] += 1
        kept = self.examples.setdefault(rejection.reason, [])
        if len(kept) < self.kept_of_a_reason:
            kept.append((source, rejection))

    def tell(self) -> None:
        """Tell of the rejections, by reason, the most frequent first."""
        for reason, count in self.counts.most_common():
            printed = self.examples[reason][:_PRINTED_OF_A_REASON]
            for source, rejection in printed:
                where, why = place(source, rejection), rejection.message
                logger.info(plain(f"{where}: {reason}: {why}"))
            more = count - len(printed)
            if more:
                logger.info(f"… and {counted(more)} more: {reason}")

    def summary(self) -> list[dict[str, Any]]:
        """Return counts and examples by reason, for ``--json``."""
        return [
            {
                "reason": reason,
                "count": count,
                "examples": [
                    {
                        "file": shown_source(source),
                        "line": rejection.line,
                        "column": rejection.column,
                        "message": rejection.message,
                        "custom_id": rejection.custom_id,
                    }
                    for source, rejection in self.examples[reason]
                ],
            }
            for reason, count in self.counts.most_common()
        ]


def tell_notes(notes: Counter[Note]) -> None:
    """Warn of what was done to accepted lines, with counts."""
    for note, count in notes.items():
        logger.warning(f"{counted(count, 'lines')} {_NOTE_WORDS[note]}")
