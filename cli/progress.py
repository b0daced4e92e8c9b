"""How a run is going: what it has done, what of it lately, and how long the rest will take."""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from blend.cli.interrupt import Interrupt
from blend.cli.workload import Workload
from blend.core.causes import cause_of, message_of
from blend.core.completion import Completion
from blend.core.engines import Part, StepReport
from blend.core.planning.last_answer import steps_until_last

LATELY_S = 30.0
SNAPSHOT_EVERY_S = 1.0
SURE_SHARE = 0.05
"""Of the work, what has to be done before its own pace alone tells how long the rest takes."""
LEAST_SHARE = 0.01
"""Of the work, what has to be done before its pace tells anything where no plan does."""
RUNNING_SHARE = 0.95
"""Of the work of rows without a result, what counts as done at most: they may run for longer."""
MOST_SHOWN_SHARE = 0.999
"""Of the work, what is said to be done at most while anything runs."""
KEPT_OF_STEPS = 0.9
"""What a report counts when the next has come, of how long steps take."""
LEAST_REPORTS = 5
"""Without a prompt in them, before they tell that: one alone may have begun at any moment."""


class Moved(NamedTuple):
    """What had moved by a moment of the run; ``at_s`` by the wall clock, ``engine_s`` by its own.

    ``compute_s`` and ``memory_s`` are those of the plan's cost model.
    """

    at_s: float = 0.0
    engine_s: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    compute_s: float = 0.0
    memory_s: float = 0.0


class ReplicaProgress(NamedTuple):
    """What one replica has answered, and how full it is."""

    rows: int = 0
    running: int = 0
    waiting: int = 0
    kv_tokens: int = 0


class Left(NamedTuple):
    """The seconds that the rest of a run is expected to take, and their 10 % and 90 % bounds."""

    seconds: float
    low_s: float
    high_s: float


@dataclass(slots=True)
class RunProgress:
    """Counts what a run has done, and estimates what is left from the work that is left.

    ``rows`` are those that run and those that get their results: ``followed`` (n,) says of each row
    how many follow it. ``share`` is what is done of the work, of rows that still run too.
    """

    label: str
    rows: int
    workload: Workload
    kv_capacity_tokens: int
    followed: npt.NDArray[np.int64]
    clock: Callable[[], float] = time.monotonic
    answered: int = 0
    failed: int = 0
    share: float = 0.0
    work_done: float = 0.0
    finished: int = 0
    finished_input: int = 0
    finished_output: int = 0
    preemptions: int = 0
    kv_tokens: int = 0
    running: int = 0
    waiting: int = 0
    moved: Moved = field(default_factory=Moved)
    causes: Counter[tuple[int, str]] = field(default_factory=Counter)
    examples: dict[tuple[int, str], str] = field(default_factory=dict)
    replica_count: int = 1
    replicas: dict[int, ReplicaProgress] = field(default_factory=dict)
    work: float = field(init=False)
    started: float = field(init=False)
    decode_reports: int = 0
    decode_steps: float = 0.0
    decode_s: float = 0.0
    least_step_s: float = field(init=False)
    _open: npt.NDArray[np.bool_] = field(init=False)
    _snapshots: deque[Moved] = field(default_factory=lambda: deque([Moved()]))

    def __post_init__(self) -> None:
        self.work = self.workload.total
        self._open = self.workload.by_row > 0
        self.least_step_s = self.workload.least_step_s
        self.started = self.clock()

    def update(self, report: StepReport) -> None:
        """Take in a report."""
        for completion in report.completions:
            self._take(completion)
        compute_s, memory_s = self.workload.density_of(report)
        before = self.moved
        self.moved = Moved(
            self.elapsed_s,
            before.engine_s + report.seconds,
            before.input_tokens + report.prefill_tokens + report.cached_tokens,
            before.output_tokens + report.decode_tokens,
            before.cached_tokens + report.cached_tokens,
            before.compute_s + compute_s,
            before.memory_s + memory_s,
        )
        self._time_steps(report)
        self.preemptions += report.preemptions
        self.kv_tokens = report.kv_tokens
        self.running, self.waiting = report.running, report.waiting
        for part in report.parts:
            self._update_replica(part)
        for lost in report.lost:
            before_it = self.replicas.get(lost.replica, ReplicaProgress())
            self.replicas[lost.replica] = ReplicaProgress(before_it.rows)
        # What looked done may turn out to be less of the whole, but never goes back.
        self.share = max(self.share, self._share_now())
        self._remember()

    def _take(self, completion: Completion) -> None:
        """Count a row that has ended, and those that get its result."""
        rows = 1 + int(self.followed[completion.row])
        self.work_done += float(self.workload.by_row[completion.row])
        self.finished += 1
        self._open[completion.row] = False
        self.finished_input += completion.prompt_tokens - completion.cached_tokens
        self.finished_output += completion.completion_tokens
        if not completion.failed:
            self.answered += rows
            return
        self.failed += rows
        message = message_of(completion.body)
        cause = (completion.status_code, cause_of(message))
        self.causes[cause] += rows
        self.examples.setdefault(cause, message)

    def _update_replica(self, part: Part) -> None:
        """Take in what one replica has reported."""
        before = self.replicas.get(part.replica, ReplicaProgress())
        report = part.report
        rows = sum(1 + int(self.followed[one.row]) for one in report.completions)
        self.replicas[part.replica] = ReplicaProgress(
            before.rows + rows, report.running, report.waiting, report.kv_tokens
        )

    def _time_steps(self, report: StepReport) -> None:
        """Take in how long a step is that computes no prompt, by the engine's clock."""
        if not report.steps or report.prefill_tokens:
            return
        self.decode_reports += 1
        self.decode_steps = KEPT_OF_STEPS * self.decode_steps + report.steps
        self.decode_s = KEPT_OF_STEPS * self.decode_s + report.seconds * self.replica_count
        if self.decode_reports >= LEAST_REPORTS:
            self.least_step_s = min(self.least_step_s, self.decode_s / self.decode_steps)

    def _remember(self) -> None:
        if self.moved.at_s - self._snapshots[-1].at_s >= SNAPSHOT_EVERY_S:
            self._snapshots.append(self.moved)
        while len(self._snapshots) > 1 and self.moved.at_s - self._snapshots[1].at_s >= LATELY_S:
            self._snapshots.popleft()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run began, by the wall clock."""
        return self.clock() - self.started

    @property
    def engine_s(self) -> float:
        """Seconds that the engine says to have run."""
        return self.moved.engine_s

    def _share_now(self) -> float:
        """Return the share of the work that is done: by the plan's course where it has one."""
        if self.finished >= self.workload.rows:
            return 1.0
        course = self.workload.course
        if course is None:
            done = self.work_done + self._running_work
            return min(done / self.work, 1.0) if self.work > 0 else 0.0
        work_s = self.moved.compute_s + self.moved.memory_s
        sure = min(self.finished / (SURE_SHARE * self.workload.rows), 1.0)
        return course.share(answered=self.finished, work_s=work_s, sure=sure)

    @property
    def _running_work(self) -> float:
        """What is done of the rows without a result, by the tokens that the engine has reported."""
        computed = self.moved.input_tokens - self.moved.cached_tokens - self.finished_input
        made = self.moved.output_tokens - self.finished_output
        done = self.workload.input_token * max(computed, 0)
        done += self.workload.output_token * max(made, 0)
        return min(done, RUNNING_SHARE * max(self.work - self.work_done, 0.0))

    @property
    def left(self) -> Left | None:
        """How long the rest takes; None where nothing tells.

        At first what the plan expects, later the pace of the run; the range is the plan's. Once
        nothing waits, what the longest of the answers that run are still expected to take.
        """
        if last := self._until_last:
            return last
        share, planned_s = self.share, self.workload.planned_s
        if share >= 1.0 or not (share >= LEAST_SHARE or planned_s):
            return None
        sure = min(share / SURE_SHARE, 1.0) if planned_s else 1.0
        by_pace_s = self.elapsed_s * (1.0 - share) / share if share else 0.0
        by_plan_s = (planned_s or 0.0) * (1.0 - share)
        seconds = sure * by_pace_s + (1.0 - sure) * by_plan_s
        return Left(seconds, self.workload.low * seconds, self.workload.high * seconds)

    @property
    def _until_last(self) -> Left | None:
        """How long the last answers take when all that is left runs; None before that."""
        expected, limit, rows = self.workload.expected, self.workload.limit, int(self._open.sum())
        made = self.moved.output_tokens - self.finished_output
        if expected is None or limit is None or self.decode_reports < LEAST_REPORTS:
            return None
        # Not every server tells of tokens before their answer is there.
        if self.waiting or made <= 0 or not 0 < rows <= self.running:
            return None
        steps = steps_until_last(expected[self._open], limit[self._open], age=made / self.running)
        # Steps become shorter as answers end, down to the shortest there are.
        now_s, least_s = self.decode_s / self.decode_steps, self.least_step_s
        step_s = least_s + steps.running * (now_s - least_s)
        step_s *= self.elapsed_s / self.engine_s
        return Left(step_s * steps.median, step_s * steps.low, step_s * steps.high)

    @property
    def lately(self) -> Moved:
        """What moved in the last half minute; all of a shorter run."""
        both = zip(self.moved, self._snapshots[0], strict=True)
        return Moved._make(now - then for now, then in both)

    @property
    def shown_share(self) -> float:
        """What is done of the work, and never all of it while anything runs."""
        over = self.finished >= self.workload.rows
        return self.share if over else min(self.share, MOST_SHOWN_SHARE)

    @property
    def worst_cause(self) -> tuple[int, str] | None:
        """Status and kind of message of most failures; None where there is none."""
        return self.causes.most_common(1)[0][0] if self.causes else None

    @property
    def by_replica(self) -> list[ReplicaProgress]:
        """What each replica has done, by number; empty for one alone."""
        several = range(self.replica_count if self.replica_count > 1 else 0)
        return [self.replicas.get(number, ReplicaProgress()) for number in several]


Seen = Callable[[StepReport], None]
Watch = Callable[[RunProgress, Interrupt], AbstractContextManager[Seen]]
"""Opened for as long as a run lasts, and told of each report once the progress has taken it in."""


@contextmanager
def unwatched(_progress: RunProgress, _interrupt: Interrupt) -> Iterator[Seen]:
    """Let a run go on with nobody looking."""
    yield lambda _report: None
