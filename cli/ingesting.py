"""Request files become rows of a job: looked at without a model, tokenised, taken in once."""

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from blend.cli.input_files import InputFile, input_files
from blend.cli.inputs import expand_inputs
from blend.cli.intake import IntakeRules, OnDuplicate, Taken, take_file
from blend.cli.job_disk import warn_of_network_disk
from blend.cli.job_model import (
    ModelOptions,
    keep_model,
    loaded_tokenizer,
    refuse_other_model,
    settled_model,
)
from blend.cli.judging import Reading, unwatched
from blend.cli.rejections import RejectionTally, tell_notes
from blend.cli.sharing import opened_sketch, save_sketch
from blend.cli.survey import Survey, SurveyRules, survey
from blend.cli.wording import counted, plain
from blend.core.errors import SOME_FAILED, USAGE, BlendError
from blend.core.input.lines import MAX_LINE_BYTES
from blend.core.rendering.tokenizer import Tokenizer
from blend.store.job import Job, Source

logger = logging.getLogger(__name__)

# What a killed ingest did not save of the sketch is read back from the job.
SKETCH_EVERY_BATCHES = 64


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """How files are read into a job."""

    model: ModelOptions = field(default_factory=ModelOptions)
    on_duplicate: OnDuplicate = "reject"
    strict: bool = False
    strict_model: bool = False
    max_line_bytes: int = MAX_LINE_BYTES
    reading: Reading = unwatched

    def of_model(self, model: str) -> Self:
        """Return the same for *model*."""
        return replace(self, model=replace(self.model, model=model))


@dataclass(slots=True)
class IngestCounts:
    """What an ingest did, and what the job holds now.

    ``rejected`` counts the lines it rejected, ``rejected_before`` tells that an earlier ingest of
    the same files had rejected some; ``finished`` names files that were in the job already.
    ``shared_tokens`` of the job's prompt tokens stand in a prefix that an earlier prompt has too.
    """

    accepted: int = 0
    renamed: int = 0
    tokens: int = 0
    rejected: RejectionTally = field(default_factory=RejectionTally)
    rejected_before: bool = False
    finished: list[str] = field(default_factory=list)
    job_rows: int = 0
    job_tokens: int = 0
    shared_tokens: int = 0


def ingest(job_path: Path, inputs: Sequence[str], options: IngestOptions) -> IngestCounts:
    """Bring every request of the files that *inputs* name into the job, as `ingest_files` does."""
    with input_files(expand_inputs(inputs)) as files:
        return ingest_files(job_path, files, options)


def ingest_files(
    job_path: Path, files: Sequence[InputFile], options: IngestOptions
) -> IngestCounts:
    """Bring every request of the files into the job, once; go on where a killed ingest stopped.

    Lines that cannot be used are told of before a model is loaded, and a model that cannot
    be loaded is said before anything is written. Raises BlendError.
    """
    counts = IngestCounts()
    with ExitStack() as stack:
        job = _opened(job_path, stack) if job_path.exists() else None
        model = settled_model(job, options.model)
        fresh = [file for file in _different(files) if not _finished(job, file, counts)]
        if fresh:
            found = _look(fresh, options, model)
            tokenizer = loaded_tokenizer(model)
            job = _opened(job_path, stack) if job is None else job
            refuse_other_model(job, tokenizer)
            keep_model(job, tokenizer, model)
            _take(job, fresh, counts, found, tokenizer=tokenizer, options=options)
        if job is not None:
            _sum_up(job, files, counts)
    return counts


def _opened(path: Path, stack: ExitStack) -> Job:
    warn_of_network_disk(path)
    job = stack.enter_context(Job.open(path, create=True))
    stack.enter_context(job.lock("ingest"))
    return job


def _different(files: Sequence[InputFile]) -> list[InputFile]:
    """Return the files without those that repeat the content of an earlier one."""
    first: dict[str, InputFile] = {}
    for file in files:
        same = first.setdefault(file.digest, file)
        if same is not file:
            logger.info(f"left out {plain(file.name)}: the same content as {plain(same.name)}")
    return list(first.values())


def _finished(job: Job | None, file: InputFile, counts: IngestCounts) -> bool:
    """Return whether the job has the whole file; say so, or that the file is not what it was."""
    sources = job.sources() if job is not None else []
    if any(source.complete and source.digest == file.digest for source in sources):
        logger.info(f"already ingested: {plain(file.name)}")
        counts.finished.append(file.name)
        return True
    same_name = [source for source in sources if source.path == file.name]
    if same_name and not file.copied and all(source.digest != file.digest for source in same_name):
        logger.warning(
            f"{file.name} has changed since it was ingested; the job keeps what it has, and the "
            "file is added as a new one"
        )
    return False


def _look(files: Sequence[InputFile], options: IngestOptions, model: ModelOptions) -> Survey:
    """Return what the lines are, and tell what is rejected; BlendError when nothing is left."""
    rules = SurveyRules(
        max_line_bytes=options.max_line_bytes,
        rename_duplicates=options.on_duplicate == "rename",
        strict=options.strict,
        only_model=model.model if options.strict_model else None,
    )
    found = survey(files, rules, options.reading)
    found.rejected.tell()
    tell_notes(found.notes)
    _tell_models(found, model)
    if not found.accepted:
        names = ", ".join(file.name for file in files)
        rejected = len(found.rejected)
        why = f": {counted(rejected, 'lines')} rejected" if rejected else ""
        code = SOME_FAILED if found.rejected else USAGE
        raise BlendError(
            f"no request to ingest in {names}{why}",
            hint="mend the lines listed above; `blend check` looks at them without a model"
            if found.rejected
            else 'a request is a line of JSON, such as {"prompt": "Why is the sky blue?"}',
            exit_code=code,
        )
    return found


def _tell_models(found: Survey, model: ModelOptions) -> None:
    others = {name: count for name, count in found.models.items() if name != model.model}
    if others:
        named = ", ".join(list(others)[:3]) + ", …" * (len(others) > 3)
        rows = sum(others.values())
        logger.warning(
            f"{counted(rows, 'requests')} {'names' if rows == 1 else 'name'} another model "
            f"({named}); used is {model.model or ''}"
        )


def _take(
    job: Job,
    files: Sequence[InputFile],
    counts: IngestCounts,
    found: Survey,
    *,
    tokenizer: Tokenizer,
    options: IngestOptions,
) -> None:
    rules = IntakeRules(
        options.max_line_bytes,
        surveyed=frozenset(file.name for file in files),
        on_duplicate=options.on_duplicate,
        strict=options.strict,
    )
    sketch = opened_sketch(job)
    late = RejectionTally()
    for file in files:
        source = _source(job, file)
        with options.reading(file.name, found.lines[file.name]) as show:
            batches = take_file(job, file, source, tokenizer=tokenizer, rules=rules)
            for number, taken in enumerate(batches, 1):
                sketch = sketch.seen(taken.prompts)
                _count(taken, source, counts, late)
                show(taken.line)
                if number % SKETCH_EVERY_BATCHES == 0:
                    save_sketch(job, sketch)
    save_sketch(job, sketch)
    late.tell()


def _source(job: Job, file: InputFile) -> Source:
    """Return the file's source in the job, under the name it had when it was begun."""
    begun = (s.path for s in job.sources() if s.digest == file.digest)
    source = job.open_source(next(begun, file.name), size=file.size, digest=file.digest)
    if source.line:
        logger.info(f"going on with {plain(file.name)} after line {counted(source.line)}")
    return source


def _count(taken: Taken, source: Source, counts: IngestCounts, late: RejectionTally) -> None:
    counts.accepted += len(taken.prompts)
    counts.tokens += sum(map(len, taken.prompts))
    counts.renamed += taken.renamed
    for rejection in (*taken.early, *taken.late):
        counts.rejected.add(source.path, rejection)
    for rejection in taken.late:
        late.add(source.path, rejection)


def _sum_up(job: Job, files: Sequence[InputFile], counts: IngestCounts) -> None:
    sketch = opened_sketch(job)
    counts.job_rows, counts.job_tokens = sketch.prompts, sketch.tokens
    counts.shared_tokens = sketch.shared_tokens
    digests = {file.digest for file in files}
    names = {source.path for source in job.sources() if source.digest in digests}
    counts.rejected_before = any(path in names for path, _ in job.rejected())
