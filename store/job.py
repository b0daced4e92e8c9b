"""The job: everything that persists of a batch, in one SQLite file.

One method is one transaction. Whoever opens the file sees whole states only; what a method has
saved when it returns stays saved when the process is killed; plans, completed sources and, unless
a thread sees to it (`store/disk_sync.py`), results also when the power fails. Methods raise
BlendError for what the user can repair: a full disk, a locked or damaged file.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from blend.core.causes import Group
from blend.core.completion import Completion
from blend.core.input.draft import Rejection
from blend.core.planning.identical import Followers, no_followers
from blend.core.prompts import Prompts
from blend.core.request import Request
from blend.core.schedule import Schedule
from blend.store import (
    attempts,
    followers,
    lock,
    plans,
    results,
    retries,
    rows,
    runs,
    settings,
    sources,
)
from blend.store.database import Database, open_database
from blend.store.disk_sync import DiskSync
from blend.store.read_only import log_path
from blend.store.records import (
    Answered,
    Counts,
    Failure,
    FailureGroup,
    NewRow,
    Outcome,
    Place,
    PlanRecord,
    Purpose,
    RejectedGroup,
    Run,
    Sizes,
    Source,
    Step,
)
from blend.store.sqlite_errors import DiskFullError

__all__ = [
    "Answered",
    "Counts",
    "DiskFullError",
    "Failure",
    "FailureGroup",
    "Job",
    "NewRow",
    "Outcome",
    "Place",
    "PlanRecord",
    "Purpose",
    "RejectedGroup",
    "Run",
    "Sizes",
    "Source",
    "Step",
]

LOCKED_WAIT_S = 30.0


class Job:
    """An open job; a context manager that closes it."""

    def __init__(self, database: Database, clock: Callable[[], float]):
        self._database = database
        self._clock = clock

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        create: bool = False,
        wait_s: float = LOCKED_WAIT_S,
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """Open the job at *path*; with *create*, make it when missing.

        Waits at most ``wait_s`` for another process's transaction, here and in every method. Where
        nothing may be written the job is opened to be read, if it can be: see `store/read_only.py`.
        ``clock`` tells the Unix time, which stands beside all that is saved.
        """
        return cls(open_database(Path(path), create=create, wait_s=wait_s), clock)

    @property
    def path(self) -> Path:
        """Where the job lies."""
        return self._database.path

    @property
    def frozen(self) -> bool:
        """Whether the job is read as a file that does not change: nothing may be written here."""
        return self._database.frozen is not None

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def lock(self, purpose: str) -> AbstractContextManager[None]:
        """Be the only process that works on the job, for as long as the context lasts."""
        return lock.locked(
            self.path,
            purpose=purpose,
            now=self._clock(),
            heard_of=lambda: runs.last_sign_of_life(self._database),
        )

    def holder(self) -> dict[str, Any] | None:
        """Return pid, host, boot, purpose and since of the process that has the job; None for none.

        Empty where there is one that cannot be named.
        """
        return lock.holder(self.path)

    def last_sign_of_life(self) -> float | None:
        """Return when a process was last at work on the job, in Unix time; None in no run."""
        return runs.last_sign_of_life(self._database)

    def damage(self, *, limit_s: float) -> str | None:
        """Return what is wrong with the file; None where nothing is found in *limit_s* seconds."""
        return self._database.damage(limit_s=limit_s)

    # settings

    def meta(self, key: str) -> Any | None:
        """Return a JSON value set before; None when it was not."""
        return settings.meta(self._database, key)

    def set_meta(self, **values: Any) -> None:
        """Set JSON values, all or none."""
        settings.set_meta(self._database, values)

    def blob(self, key: str) -> bytes | None:
        """Return bytes set before; None when they were not."""
        return settings.blob(self._database, key)

    def set_blob(self, key: str, value: bytes) -> None:
        """Set the bytes under *key*."""
        settings.set_blob(self._database, key, value)

    # ingest

    def open_source(self, path: str, *, size: int, digest: str) -> Source:
        """Return the source of this file, new or as far as it was ingested before."""
        return sources.open_source(self._database, path, size=size, digest=digest)

    def sources(self) -> list[Source]:
        """Return every source, in the order of ingestion."""
        return sources.all_sources(self._database)

    def find_ids(self, custom_ids: Sequence[str]) -> dict[str, tuple[str, int]]:
        """Return path and line of those *custom_ids* that the job has already."""
        return sources.find_ids(self._database, custom_ids)

    def append(
        self,
        source: Source,
        rows: Sequence[NewRow],
        rejected: Sequence[Rejection],
        *,
        offset: int,
        line: int,
        complete: bool = False,
    ) -> None:
        """Add rows and rejected lines, and note that the source is done up to *offset* and *line*.

        Raises ValueError when the source is already further.
        """
        sources.append(
            self._database,
            source,
            rows,
            rejected,
            offset=offset,
            line=line,
            complete=complete,
        )

    # reading

    def __len__(self) -> int:
        with self._database.read() as sql:
            return rows.count_rows(sql)

    def request(self, row: int) -> Request:
        """Return one request, ready for an engine."""
        return rows.request(self._database, row)

    def origin(self, row: int) -> tuple[str, int]:
        """Return path and line that a row came from."""
        return rows.origin(self._database, row)

    def find(self, custom_id: str) -> int | None:
        """Return the row of a custom_id; None when the job has not got it."""
        return rows.find(self._database, custom_id)

    def ids_from(self, prefix: str, *, most: int) -> list[str]:
        """Return the custom_ids that begin with *prefix*, in their order, *most* at most."""
        return rows.ids_from(self._database, prefix, most=most)

    def custom_ids(self, of_rows: Iterable[int]) -> list[str]:
        """Return the custom_id of each row, in the order asked."""
        return rows.custom_ids(self._database, of_rows)

    def any_body_has(self, field: str) -> bool:
        """Return whether any request body has a field of that name; reads all of them at worst."""
        return rows.any_body_has(self._database, field)

    def sizes(self) -> Sizes:
        """Return prompt tokens, max_tokens and sequences of all rows, without reading a token."""
        return rows.sizes(self._database)

    def sequences(self) -> npt.NDArray[np.int32]:
        """Return how many sequences each row asks for."""
        return rows.sequences(self._database)

    def prompts(self, of_rows: npt.NDArray[np.int64] | None = None) -> Prompts:
        """Return the tokens of all rows, or of those named; memory is that of the result."""
        return rows.prompts(self._database, of_rows)

    def pending(self) -> npt.NDArray[np.bool_]:
        """Return which rows have no result, (n,)."""
        return rows.pending(self._database)

    def rejected(self) -> Iterator[tuple[str, Rejection]]:
        """Yield path and rejection of every rejected line, in flat memory."""
        return sources.all_rejected(self._database)

    def rejections_by_reason(self) -> list[RejectedGroup]:
        """Return the rejections grouped by reason, most frequent first."""
        return sources.rejections_by_reason(self._database)

    # plans

    def save_plan(
        self, record: PlanRecord, schedule: Schedule, followers: Followers | None = None
    ) -> int:
        """Save a plan with its schedule and return its number; earlier schedules go.

        The schedule is of the rows that follow none; followers of a row with a result get it.
        """
        return plans.save_plan(
            self._database,
            record,
            schedule=schedule,
            new_followers=followers or no_followers(),
            now=self._clock(),
        )

    def plan(self) -> PlanRecord | None:
        """Return the latest plan, without its schedule; None before the first."""
        return plans.plan(self._database)

    def schedule(self) -> Schedule | None:
        """Return the schedule of the latest plan; rows ingested since are not in it."""
        return plans.schedule(self._database)

    def expected_tokens(self) -> npt.NDArray[np.float64]:
        """Return the output tokens the plan expects of a sequence of each row, NaN outside it."""
        return plans.expected_tokens(self._database)

    def subtrees(self) -> npt.NDArray[np.int32] | None:
        """Return for each row the index in the plan's outline of the deepest subtree it is in.

        None where no plan says so.
        """
        return plans.subtrees(self._database)

    def place(self, row: int) -> Place | None:
        """Return where the latest plan puts a row; None when none does."""
        return plans.place(self._database, row)

    # identical requests

    def followers(self) -> Followers:
        """Return the rows that get another row's result, since the latest plan."""
        return followers.followers(self._database)

    def leader(self, row: int) -> int | None:
        """Return the row whose result a row gets; None for one that runs itself."""
        return followers.leader(self._database, row)

    def identical_rows(self) -> Followers:
        """Return the rows that can get another row's result; reads every body, changes nothing."""
        return followers.identical_rows(self._database)

    def hand_on_results(self) -> None:
        """Give the rows that follow one with a result that result.

        They lack it where the sample of a plan that was never made brought it.
        """
        followers.hand_on_all(self._database)

    def settled_followers(self) -> Followers:
        """Return the rows that have another row's result."""
        return followers.settled(self._database)

    # runs

    def begin_run(
        self,
        *,
        purpose: Purpose,
        engine: str,
        settings: dict[str, Any],
        engine_pid: int | None = None,
    ) -> int:
        """Open a run of this process and return its number."""
        return runs.begin_run(
            self._database,
            purpose=purpose,
            engine=engine,
            engine_pid=engine_pid,
            settings=settings,
            now=self._clock(),
        )

    def end_run(self, run: int, outcome: Outcome, *, cause: str | None = None) -> None:
        """Close a run, saying how it ended and, where that says more, why."""
        runs.end_run(self._database, run, outcome, cause=cause, now=self._clock())

    def beat(self, run: int) -> None:
        """Say that a run is alive, as saving results does too."""
        runs.beat(self._database, run, now=self._clock())

    def runs(self) -> list[Run]:
        """Return every run, oldest first."""
        return runs.all_runs(self._database)

    def executions(self, since: float) -> list[int]:
        """Return the executions that began at *since*, Unix time, or after, oldest first."""
        return runs.executions(self._database, since)

    def executed(self) -> bool:
        """Return whether an execution has worked on the job; a plan's warm-up is none."""
        return runs.executed(self._database)

    def add_steps(self, run: int, steps: Iterable[Step | tuple[float, ...]]) -> None:
        """Append to the timeline of a run."""
        runs.add_steps(self._database, run, steps)

    def steps(self, run: int) -> list[Step]:
        """Return the timeline of a run."""
        return runs.steps(self._database, run)

    # results

    def start_rows(self, run: int, of_rows: Iterable[int]) -> None:
        """Mark rows as in flight, so that a killed process still knows what it had begun."""
        attempts.start_rows(self._database, run, of_rows)

    def carry_on(self, run: int, of_rows: Iterable[int]) -> None:
        """Mark rows that an earlier run began as in flight in this one; no other is in flight."""
        attempts.carry_on(self._database, run, of_rows)

    def record(self, run: int, completions: Sequence[Completion], *, durable: bool = True) -> None:
        """Save results; of two results for a row the first stays.

        Unless *durable*, without waiting for the disk: it is for a `disk_sync` then.
        """
        results.record(self._database, run, completions, now=self._clock(), durable=durable)

    def disk_sync(self) -> DiskSync | None:
        """Return what brings commits to the disk; the job must have been written, as by a run.

        None where the job has no write-ahead log, as on a file system that does not allow for one.
        """
        if not log_path(self.path).exists():
            return None
        self._database.leave_checkpoints()
        return DiskSync(self.path)

    def release(self, of_rows: Iterable[int] | None = None) -> int:
        """Return rows in flight, all by default, to pending; say how many there were."""
        return attempts.release(self._database, of_rows)

    def note_deaths(self, of_rows: Iterable[int]) -> None:
        """Note that the engine died with these rows inside."""
        attempts.note_deaths(self._database, of_rows)

    def deaths(self) -> dict[int, int]:
        """Return how often an engine died with a row inside, for those that have no result."""
        return attempts.deaths(self._database)

    def attempts(self, row: int) -> int:
        """Return how often a row was given to an engine."""
        return attempts.of_row(self._database, row)

    def result(self, row: int) -> Completion | None:
        """Return the result of a row; None while it has none."""
        return results.result(self._database, row)

    def results(self) -> Iterator[tuple[str, Completion]]:
        """Yield custom_id and result in row order: one consistent state, in flat memory."""
        return results.results(self._database)

    def latest_answers(self) -> Iterator[tuple[str, Completion, bool]]:
        """Yield each row's latest answer, or its error, and whether a retry took it back.

        Custom_id, completion and mark come in row order: one consistent state, in flat memory.
        """
        return results.latest_answers(self._database)

    def answered(self) -> Answered:
        """Return what the answered rows took, without reading a text."""
        return results.answered(self._database)

    def failed(self) -> Iterator[Failure]:
        """Yield every failed row in row order, in flat memory."""
        return results.failed(self._database)

    def output_tokens(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the rows that ran and were answered, ascending, and the output tokens of each."""
        return results.output_tokens(self._database)

    def counts(self) -> Counts:
        """Return how far the job is."""
        return results.counts(self._database)

    def failures(self) -> list[FailureGroup]:
        """Return the failed rows grouped by status and cause, most frequent first."""
        return results.failures(self._database)

    # retries

    def failed_rows(self, groups: Sequence[Group]) -> npt.NDArray[np.int64]:
        """Return the failed rows of these groups of failures, ascending."""
        return retries.failed_rows(self._database, groups)

    def truncated_rows(self) -> npt.NDArray[np.int64]:
        """Return the rows whose answers were cut at max_tokens, ascending."""
        return retries.truncated_rows(self._database)

    def retry(
        self,
        of_rows: npt.NDArray[np.int64],
        *,
        asked: str,
        max_tokens: npt.NDArray[np.int64] | None = None,
    ) -> int:
        """Take results back, all or none, so that their rows are pending; say how many there were.

        ``max_tokens``, (k,): the limit that each row runs with from now on.
        """
        return retries.retry(
            self._database, of_rows, asked=asked, max_tokens=max_tokens, now=self._clock()
        )

    def earlier_results(self, row: int) -> list[Completion]:
        """Return the results of a row that retries took back, oldest first."""
        return retries.earlier_results(self._database, row)

    def raised_limit(self, row: int) -> int | None:
        """Return the limit of output tokens that a retry gave a row; None where its own holds."""
        return retries.raised_limit(self._database, row)
