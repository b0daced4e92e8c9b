"""A batch job from Python: what the commands do, without a terminal.

Nothing here prints, ends the process or handles a signal. What a command would say on stderr goes
to the logger ``blend``. What the user can repair raises BlendError. docs/python.md shows it at
work.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from blend.cli.comparing import SimulatedDevice, compare_policies, engine_on
from blend.cli.engine_options import EngineOptions, engine_options
from blend.cli.executing import execute_job
from blend.cli.exporting import Exported, export_job
from blend.cli.ingesting import IngestCounts, IngestOptions, ingest, ingest_files
from blend.cli.input_files import RequestLine, spooled
from blend.cli.interrupt import Interrupt, drain_on_interrupt
from blend.cli.job_model import ModelOptions
from blend.cli.limits import NO_LIMITS, RunLimits
from blend.cli.progress import RunProgress, Seen, Watch, unwatched
from blend.cli.sampled_plan import PlanChoices, plan_job_on
from blend.cli.whole_run import run_job
from blend.core.answer_files import FileFormat
from blend.core.answers import Answer, answer_of, rejected_answer
from blend.core.engines import StepReport
from blend.core.errors import BlendError
from blend.core.planning.plan import Plan
from blend.core.schedule import POLICIES, Policy
from blend.store.job import Counts, Job

if TYPE_CHECKING:
    from blend.core.planning.outlook import Outlook

__all__ = [
    "Answer",
    "Batch",
    "BlendError",
    "Counts",
    "EngineOptions",
    "Exported",
    "IngestCounts",
    "IngestOptions",
    "Interrupt",
    "ModelOptions",
    "Plan",
    "PlanChoices",
    "RunLimits",
    "RunProgress",
    "SimulatedDevice",
    "drain_on_interrupt",
    "engine_options",
]

# Without a handler of the program's own, Python would print warnings.
logging.getLogger("blend").addHandler(logging.NullHandler())

OnProgress = Callable[[RunProgress], None]
OnAnswer = Callable[[Answer], None]


class Batch:
    """One batch job: its file, and the stages that take it from requests to results.

    Every stage opens the file, does its work, and leaves it whole, whatever happens; the next one,
    in this process or another, goes on from there. Two processes cannot work on a job at once: the
    second gets a BlendError.
    """

    def __init__(self, path: Path | str):
        self.path = Path(path)

    def ingest(
        self,
        requests: Iterable[RequestLine],
        options: IngestOptions | None = None,
        *,
        model: str | None = None,
        name: str = "requests",
    ) -> IngestCounts:
        """Add requests: values, or lines of a request file.

        The first ingest makes the job and needs a *model*, or one in *options*. Requests that
        cannot be used are counted, and stand in the job with their place, ``name:number``. The same
        requests again change nothing.
        """
        with spooled(requests, name) as file:
            return ingest_files(self.path, [file], _with_model(options, model))

    def ingest_files(
        self,
        inputs: Sequence[Path | str],
        options: IngestOptions | None = None,
        *,
        model: str | None = None,
    ) -> IngestCounts:
        """Add the requests of files, as `blend ingest` does; go on where a killed one stopped."""
        return ingest(self.path, [str(one) for one in inputs], _with_model(options, model))

    def plan(
        self,
        engine: EngineOptions,
        choices: PlanChoices | None = None,
        *,
        watch: Watch = unwatched,
        on_progress: OnProgress | None = None,
        on_answer: OnAnswer | None = None,
        interrupt: AbstractContextManager[Interrupt] | None = None,
    ) -> Plan | None:
        """Run a small sample on *engine*, and put all requests in order.

        None when *interrupt* asked to stop before there was a plan; what the sample brought stays.
        """
        with Job.open(self.path) as job, job.lock("plan"):
            return plan_job_on(
                job,
                engine,
                choices or PlanChoices(),
                watch=_calling(job, watch, on_progress, on_answer),
                interrupt=interrupt,
            )

    def execute(
        self,
        engine: EngineOptions,
        limits: RunLimits = NO_LIMITS,
        *,
        resume: bool = True,
        watch: Watch = unwatched,
        on_progress: OnProgress | None = None,
        on_answer: OnAnswer | None = None,
        interrupt: AbstractContextManager[Interrupt] | None = None,
    ) -> Counts:
        """Run what has no result yet, in the order of the plan; return how far the job is.

        ``on_progress`` is called with each report of the engine, ``on_answer`` with each answer or
        error as it arrives, which may be a second before it is saved; of identical requests with
        that of the one that ran. What they raise ends the run; what had arrived is saved.
        """
        with Job.open(self.path) as job, job.lock("execute"):
            execute_job(
                job,
                engine,
                limits,
                resume=resume,
                watch=_calling(job, watch, on_progress, on_answer),
                interrupt=interrupt,
            )
            return job.counts()

    def run(
        self,
        engine: EngineOptions,
        choices: PlanChoices | None = None,
        limits: RunLimits = NO_LIMITS,
        *,
        watch: Watch = unwatched,
        on_progress: OnProgress | None = None,
        on_answer: OnAnswer | None = None,
        interrupt: AbstractContextManager[Interrupt] | None = None,
    ) -> Counts:
        """Plan, where there is no plan that fits, and execute, with one start of the engine."""
        with Job.open(self.path) as job, job.lock("run"):
            run_job(
                job,
                engine,
                choices or PlanChoices(),
                limits,
                watch=_calling(job, watch, on_progress, on_answer),
                interrupt=interrupt,
            )
            return job.counts()

    def counts(self) -> Counts:
        """Return how far the job is; also while a process works on it."""
        with Job.open(self.path) as job:
            return job.counts()

    def answers(self) -> Iterator[Answer]:
        """Yield the latest answer of each row, or its error, in the order of ingestion.

        One state of the job, in flat memory, however long the reading takes.
        """
        with Job.open(self.path) as job:
            for custom_id, completion, _ in job.latest_answers():
                yield answer_of(custom_id, completion)

    def rejected(self) -> Iterator[Answer]:
        """Yield the requests that could not be used, in the order of ingestion."""
        with Job.open(self.path) as job:
            for source, rejection in job.rejected():
                yield rejected_answer(source, rejection)

    def export(
        self,
        output: Path | str,
        errors: Path | str | None = None,
        *,
        file_format: FileFormat | None = None,
        overwrite: bool = False,
    ) -> Exported:
        """Write results and errors to two files, as `blend export` does, at any moment.

        In *file_format*, or that of each file's suffix: JSON lines, Parquet or CSV.
        """
        with Job.open(self.path) as job:
            return export_job(
                job,
                str(output),
                None if errors is None else str(errors),
                file_format=file_format,
                overwrite=overwrite,
            )

    def simulate(
        self,
        device: SimulatedDevice | None = None,
        *,
        policies: Sequence[Policy] = POLICIES,
        draws: int = 5,
        seed: int = 0,
        on_run: Callable[[int], None] | None = None,
    ) -> "Outlook":
        """Return how long the whole job would take on *device* under each policy; runs nothing."""
        with Job.open(self.path) as job:
            device = device or SimulatedDevice()
            return compare_policies(
                job,
                engine_on(device, job),
                policies=policies,
                draws=draws,
                seed=seed,
                replicas=device.replicas,
                on_run=on_run,
            )


def _with_model(options: IngestOptions | None, model: str | None) -> IngestOptions:
    options = options or IngestOptions()
    return options if model is None else options.of_model(model)


def _calling(
    job: Job, watch: Watch, on_progress: OnProgress | None, on_answer: OnAnswer | None
) -> Watch:
    """Return *watch* with the callbacks of a program beside it."""

    @contextmanager
    def called(progress: RunProgress, interrupt: Interrupt) -> Iterator[Seen]:
        with watch(progress, interrupt) as seen:

            def tell(report: StepReport) -> None:
                seen(report)
                if on_progress is not None:
                    on_progress(progress)
                if on_answer is not None and report.completions:
                    names = job.custom_ids(one.row for one in report.completions)
                    for name, completion in zip(names, report.completions, strict=True):
                        on_answer(answer_of(name, completion))

            yield tell

    return called
