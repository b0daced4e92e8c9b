"""Rows run on an engine: what the supervisor decides becomes runs, results and states of the job.

Resume is not a mode: a run is the rows without a result, in schedule order. Each life of an engine
is a run of its own in the job, with its outcome.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from blend.cli.opened_run import opened_run
from blend.cli.run_context import RunContext
from blend.core.completion import Completion
from blend.core.engines import Engine, EngineDiedError, Lost, StepReport
from blend.core.engines.openai_wire import error_object
from blend.core.errors import RESUMABLE, BlendError
from blend.core.running import executor
from blend.core.running.carried import Carried
from blend.core.running.scan import Scanner
from blend.core.running.seat import Seat
from blend.core.running.supervise import Life, supervise
from blend.core.running.suspects import Mask, Suspects
from blend.core.running.time_limit import TimedScanner
from blend.core.schedule import Schedule
from blend.store.job import DiskFullError, Job
from blend.store.recorder import Recorder
from blend.store.timeline import Timeline

POLL_S = 0.2
_DIED = 500

OVERHEAD_BYTES = 200
"""What a result takes in the job beside its body."""


@dataclass(frozen=True, slots=True)
class Left:
    """What a run leaves: the output tokens of each row that it ``dropped``, or what goes on."""

    dropped: Mapping[int, int] = field(default_factory=dict)
    carried: Carried | None = None


def run_rows(
    job: Job,
    schedule: Schedule,
    seat: Seat,
    context: RunContext,
    *,
    carried: Carried | None = None,
) -> Left:
    """Run the rows of *schedule*, which must have no result, and save what comes back.

    Those that are *carried* from the run before, all of them of *schedule*, run already. An engine
    that dies is replaced. Every result that arrived is in the job when this returns or raises.
    Raises EngineDiedError when the engine died too often, BlendError for a full disk.
    """
    lives = _JobLives(job, schedule, seat, context, carried)
    try:
        suspects = Suspects(job.deaths(), others_wait=_others_wait(job, schedule))
        supervise(lives, suspects, max_rebuilds=context.max_rebuilds)
    except DiskFullError as full:
        raise BlendError(
            full.message + lives.bytes_to_come(), hint=full.hint, exit_code=full.exit_code
        ) from full
    return lives.left


def _others_wait(job: Job, schedule: Schedule) -> bool:
    """Tell whether rows that run themselves are left beside those of *schedule*."""
    pending = job.pending()
    return int(pending[job.followers().others(len(pending))].sum()) > len(schedule)


class _JobLives:
    """Lives of one engine after another on the rows of one schedule."""

    def __init__(
        self,
        job: Job,
        schedule: Schedule,
        seat: Seat,
        context: RunContext,
        carried: Carried | None,
    ):
        self.left = Left()
        self._carried = carried
        self._job = job
        self._schedule = schedule
        self._seat = seat
        self._context = context
        self._sizes = job.sizes()
        self._scheduled = np.zeros(len(self._sizes.prompt_tokens), np.bool_)
        self._scheduled[schedule.order] = True
        self._run = 0
        self._answered = 0
        self._results = 0
        self._result_bytes = 0
        self._ended = False
        self._timed: TimedScanner | None = None
        self._losses: list[Lost] = []

    def unfinished(self) -> Mask:
        """Return which rows of the schedule have no result."""
        return self._scheduled & self._job.pending()

    def live(self, rows: Mask) -> Life:
        """Run *rows* until they have results, the engine dies, or a stop."""
        if self._run and self._ending():
            return Life(0, stopped=True)
        before = self._answered
        carried, self._carried = self._carried, None
        inside = set(carried.ages) if carried else set()
        self._losses = []
        try:
            with (
                opened_run(self._job, self._seat.engine, self._context, rows, inside) as self._run,
                Timeline(self._job, self._run) as timeline,
                Recorder(self._job, self._run, clock=time.monotonic) as recorder,
            ):
                self._work(self._schedule.only(rows), carried, inside, recorder, timeline)
        except EngineDiedError as death:
            answered = self._answered - before
            return Life(answered, death=death, inside=sorted(inside), losses=self._losses)
        passed_over = self._timed is not None and self._timed.passed_over
        stopped = passed_over or self._ending()
        return Life(self._answered - before, stopped=stopped, losses=self._losses)

    def blame(self, rows: Sequence[int]) -> None:
        """Keep that the engine died with *rows* inside."""
        self._job.note_deaths(rows)

    def fail(self, row: int, message: str) -> None:
        """Record *row* as failed, with an error in the form of the OpenAI API."""
        body, now = error_object(message, status=_DIED), time.time()
        completion = Completion(row, _DIED, body, started=now, finished=now)
        self._job.record(self._run, [completion])
        self._watch(StepReport((completion,), 0, 0, 0, 0, 0, 0, 0, 0, 0.0))
        self._context.say(f"request {self._job.custom_ids([row])[0]} failed: {message}")

    def renew(self, reason: str) -> None:
        """Start a fresh engine, unless nothing more is to be begun."""
        if not self._context.ending:
            self._context.say(f"{reason}: another engine starts")
            self._seat.renew()

    def bytes_to_come(self) -> str:
        """Return about how much room the rows that are left will need, as words to append."""
        if not self._results:
            return ""
        rows = int(self.unfinished().sum())
        bytes_each = self._result_bytes / self._results + OVERHEAD_BYTES
        return f"; about {rows * bytes_each:,.0f} bytes for the {rows:,} requests that are left"

    def _ending(self) -> bool:
        return self._context.ending or self._ended

    def _work(
        self,
        schedule: Schedule,
        carried: Carried | None,
        inside: set[int],
        recorder: Recorder,
        timeline: Timeline,
    ) -> None:
        """Run *schedule* on the present engine, and save what it reports."""
        engine = self._seat.engine

        def take(report: StepReport) -> None:
            recorder.add(report.completions)
            timeline.add(report)
            self._losses += report.lost
            self._watch(report)

        if not self._await(engine, recorder):
            return
        reports = executor.run(
            self._scanner(schedule, carried, engine),
            self._job.request,
            engine,
            on_admit=lambda rows: self._job.start_rows(self._run, rows),
            stopping=self._context.stopping,
            inside=inside,
        )
        for report in reports:
            take(report)
            self._ended = self._context.until(report)
            if self._context.dropping or (self._ended and self._job.deaths()):
                aborted = engine.abort()
                take(aborted.report)
                inside.clear()
                self.left = Left(dropped=aborted.tokens)
                return
            if self._ended:
                told = engine.ages()
                # What is missing is about to be answered.
                ages = {row: told.get(row, 1) for row in inside}
                self.left = Left(carried=Carried(ages, self._sizes.sequences, report))
                return

    def _scanner(self, schedule: Schedule, carried: Carried | None, engine: Engine) -> Scanner:
        scanner: Scanner = self._seat.open_scanner(
            schedule,
            prompt_tokens=self._sizes.prompt_tokens,
            sequences=self._sizes.sequences,
            capacity=engine.capacity,
            carried=carried,
        )
        if self._context.limit is not None:
            scanner = self._timed = TimedScanner(
                scanner, self._context.limit, schedule, capacity=engine.capacity
            )
        return scanner

    def _await(self, engine: Engine, recorder: Recorder) -> bool:
        """Wait until the engine runs; False when nothing more is to be begun."""
        try:
            while not engine.wait_ready(POLL_S):
                recorder.add(())
                if self._ending():
                    return False
        except BlendError as error:
            if error.exit_code != RESUMABLE:
                raise BlendError(error.message, hint=error.hint, exit_code=RESUMABLE) from error
            # It ran before with the same arguments: this is one more death.
            raise EngineDiedError(error.message) from error
        return True

    def _watch(self, report: StepReport) -> None:
        self._answered += sum(not completion.failed for completion in report.completions)
        self._results += len(report.completions)
        self._result_bytes += sum(len(completion.body) for completion in report.completions)
        self._context.breaker.add(report.completions)
        self._context.on_report(report)
