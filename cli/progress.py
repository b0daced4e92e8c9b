"""How a run is going, on stderr: a live line on a terminal, a plain line every 30 s elsewhere."""

import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt
from rich.progress import BarColumn, Progress, TextColumn

from blend.cli.console import counted, duration, err, percent
from blend.core.engines import StepReport

PLAIN_LINE_EVERY_S = 30.0


@dataclass(slots=True)
class RunProgress:
    """Counts what a run has done and shows it; ``work`` is in any unit, such as seconds.

    ``rows`` are those that run and those that get their results: ``followed`` (n,) says of each row
    how many follow it.

    The time left is estimated from the work left, not from the rows left: the rows at the two ends
    of a schedule differ a thousandfold.
    """

    label: str
    rows: int
    work: float
    kv_capacity_tokens: int
    followed: npt.NDArray[np.int64]
    answered: int = 0
    failed: int = 0
    work_done: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    preemptions: int = 0
    engine_s: float = 0.0
    kv_tokens: int = 0
    started: float = field(default_factory=time.monotonic)
    _next_line: float = field(default=PLAIN_LINE_EVERY_S)
    _live: Progress | None = None

    def __enter__(self) -> Self:
        if err.is_terminal:
            self._live = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[line]}"),
                console=err,
                transient=True,
            )
            self._live.add_task(self.label, total=max(self.work, 1e-9), line=self.line())
            self._live.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _e: BaseException | None, _tb: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, report: StepReport, *, work: float) -> None:
        """Take in a report, whose completions were *work* of the whole."""
        for completion in report.completions:
            rows = 1 + int(self.followed[completion.row])
            if completion.failed:
                self.failed += rows
            else:
                self.answered += rows
        self.work_done += work
        self.input_tokens += report.prefill_tokens + report.cached_tokens
        self.output_tokens += report.decode_tokens
        self.cached_tokens += report.cached_tokens
        self.preemptions += report.preemptions
        self.engine_s += report.seconds
        self.kv_tokens = report.kv_tokens
        self._show()

    def _show(self) -> None:
        if self._live is not None:
            task = self._live.task_ids[0]
            self._live.update(task, completed=self.work_done, line=self.line())
        elif self.elapsed_s >= self._next_line:
            self._next_line = self.elapsed_s + PLAIN_LINE_EVERY_S
            err.print(f"{self.label}: {self.line()}")

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run began, by the wall clock."""
        return time.monotonic() - self.started

    def line(self, *, running: bool = True) -> str:
        """Return the state in one line; without what is of this moment when not *running*."""
        parts = [f"{counted(self.answered + self.failed)}/{counted(self.rows)} done"]
        if self.failed:
            parts.append(f"{counted(self.failed)} failed")
        seconds = max(self.engine_s, 1e-9)
        if self.engine_s > 0:
            parts.append(
                f"{counted(self.input_tokens / seconds)} in + "
                f"{counted(self.output_tokens / seconds)} out tokens/s"
            )
        if self.input_tokens:
            parts.append(f"cache {percent(self.cached_tokens / self.input_tokens)}")
        # Not every server tells how full it is.
        if running and self.kv_tokens:
            parts.append(f"memory {percent(self.kv_tokens / self.kv_capacity_tokens)}")
        if running and 0 < self.work_done < self.work:
            left = self.elapsed_s * (self.work - self.work_done) / self.work_done
            parts.append(f"{duration(left)} left")
        return ", ".join(parts)
