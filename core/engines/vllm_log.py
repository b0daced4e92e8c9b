"""What did vLLM say before it ended? Its output is a file; this reads the end of it."""

import re
from dataclasses import dataclass
from pathlib import Path

_TAIL_LINES = 15
_TAIL_BYTES = 200_000

_FAULT = re.compile(r"\b(?:[A-Za-z_.]*(?:Error|Exception)): +(?P<message>\S.*)")
# These say only that there is a cause elsewhere in the log.
_NO_CAUSES = (
    "Engine core initialization failed",
    "WorkerProc initialization failed",
    "EngineCore encountered an issue",
)
# A line that a process of the engine itself wrote; the others write of single requests.
_OF_ENGINE = re.compile(r"\((?:EngineCore|Worker)")


@dataclass(frozen=True, slots=True)
class EngineLog:
    """The part of the file at ``path`` from ``offset`` on: the output of one engine."""

    path: Path
    offset: int

    @classmethod
    def after(cls, path: Path) -> "EngineLog":
        """Return the log of an engine about to append to the file at *path*."""
        return cls(path, path.stat().st_size if path.exists() else 0)

    def tail(self) -> str:
        """Return the last lines, safe to print."""
        return "\n".join(self._lines()[-_TAIL_LINES:])

    def cause(self, *, of_engine: bool = False) -> str | None:
        """Return the message of the last error that names a cause, None when there is none.

        With *of_engine* only what the engine's own processes wrote counts.
        """
        lines = [line for line in self._lines() if not of_engine or _OF_ENGINE.match(line)]
        faults = [fault["message"] for line in lines if (fault := _FAULT.search(line))]
        return next((fault for fault in reversed(faults) if not fault.startswith(_NO_CAUSES)), None)

    def _lines(self) -> list[str]:
        with self.path.open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(self.offset, size - _TAIL_BYTES))
            text = log.read().decode("utf-8", "replace")
        return [_inert(line) for line in text.splitlines() if line.strip()]


def _inert(line: str) -> str:
    """Replace what a terminal would act on."""
    return "".join(c if c.isprintable() else " " for c in line).rstrip()
