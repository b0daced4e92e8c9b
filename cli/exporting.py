"""Where results and errors go, and how a file takes the place of another only once it is whole."""

import glob
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from blend.core.answer_files import AnswerWriter, FileFormat, answer_writer, format_of
from blend.core.command_line import command_line
from blend.core.errors import BlendError
from blend.core.input.parquet import require_pyarrow
from blend.core.utf8 import as_utf8
from blend.store.job import Job
from blend.store.lock import lock_path


@dataclass(frozen=True, slots=True)
class Exported:
    """How many lines went where; ``earlier`` of the results are from before a retry."""

    results: int
    failures: int
    rejections: int
    earlier: int = 0


def output_file(output: str) -> Path:
    """Return the path of *output*; BlendError where it names no file, such as ``.`` or ``/``."""
    path = Path(output)
    if not path.name:
        raise BlendError(f"the output is a directory: {path}", hint="name a file in it")
    return path


def errors_path(output: str, file_format: FileFormat | None = None) -> str:
    """Return where errors go when the user names no file: ``out.errors.jsonl`` for ``out.jsonl``.

    With results on stdout there is no file to stand beside: errors go to ``errors.jsonl``.
    """
    suffix = f".{format_of(output, file_format)}"
    if output == "-":
        return f"errors{suffix}"
    path = output_file(output)
    return str(path.with_name(f"{path.stem}.errors{path.suffix or suffix}"))


def refuse_outputs(
    paths: Sequence[str], inputs: Sequence[str], *, job_path: Path, overwrite: bool
) -> None:
    """Raise BlendError when writing to *paths* would destroy something or cannot work."""
    sources = {Path(name).resolve() for name in inputs if name != "-"}
    job_file = job_path.resolve()
    beside = (job_file.with_name(job_file.name + suffix) for suffix in ("-wal", "-shm"))
    job_files = {job_file, lock_path(job_file), *beside}
    for name in (path for path in paths if path != "-"):
        if Path(name).resolve() in job_files:
            raise BlendError(f"the output is the job itself: {name}", hint="name another file")
        if Path(name).resolve() in sources:
            raise BlendError(f"the output is an input of the job: {name}", hint="name another file")
        _refuse_place(Path(name), overwrite=overwrite)
    if any(format_of(path) == "parquet" for path in paths):
        require_pyarrow()
    files = [Path(path).resolve() for path in paths if not _is_stream(path)]
    if len(set(files)) < len(files):
        raise BlendError(
            f"results and errors would share one file: {files[0]}",
            hint="name another for the errors with `--errors`",
        )


def _refuse_place(path: Path, *, overwrite: bool) -> None:
    if path.is_dir():
        raise BlendError(f"the output is a directory: {path}", hint="name a file in it")
    if not path.resolve().parent.is_dir():
        parent = path.resolve().parent
        raise BlendError(
            f"no such directory: {parent}",
            hint=f"make it: `{command_line('mkdir', '-p', parent)}`",
        )
    if path.is_file() and not overwrite:
        raise BlendError(
            f"the output exists: {path}", hint="name another file, or add `--overwrite`"
        )


def _is_stream(path: str) -> bool:
    """Return whether *path* is written through, not replaced: stdout, a device, a named pipe."""
    return path == "-" or (Path(path).exists() and not Path(path).is_file())


@contextmanager
def replaced(path: str) -> Iterator[BinaryIO]:
    """Open a file beside *path* that takes its place once it is whole and on disk.

    A stream, such as `/dev/null`, is written as it is, and a link goes on pointing to its file.
    """
    if path == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if _is_stream(path):
        with Path(path).open("wb") as stream:
            yield stream
        return
    path = str(Path(path).resolve())
    beside = Path(f"{path}.partial-{os.getpid()}")
    _remove_abandoned(Path(path))
    try:
        with beside.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _remove_abandoned(path: Path) -> None:
    """Remove what killed exports to *path* have left beside it."""
    for partial in path.parent.glob(f"{glob.escape(path.name)}.partial-*"):
        pid = partial.name.rpartition("-")[2]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists() and Path("/proc/self").exists():
            partial.unlink(missing_ok=True)


def export_job(
    job: Job,
    output: str,
    errors: str | None,
    *,
    file_format: FileFormat | None = None,
    overwrite: bool,
) -> Exported:
    """Write the results of a job, and note in a finished one where they are.

    Raises BlendError where writing would destroy something or cannot work.
    """
    errors = errors or errors_path(output, file_format)
    inputs = [source.path for source in job.sources()]
    refuse_outputs((output, errors), inputs, job_path=job.path, overwrite=overwrite)
    exported = export(job, output, errors, file_format)
    if output != "-" and not job.counts().unfinished:
        # A job that cannot be written, on a full or read-only disk, is exported all the same.
        with suppress(BlendError):
            job.set_meta(outputs=[as_utf8(output), as_utf8(errors)])
    return exported


def export(job: Job, output: str, errors: str, file_format: FileFormat | None = None) -> Exported:
    """Write every answered row to *output*, every failed row and rejected line to *errors*.

    Each in *file_format*, or that of its suffix.
    """
    results = failures = rejections = before = 0
    with _writer(errors, file_format) as missed, _writer(output, file_format) as answered:
        for custom_id, completion, earlier in job.latest_answers():
            before += earlier
            if completion.failed:
                failures += 1
                missed.add(custom_id, completion)
            else:
                results += 1
                answered.add(custom_id, completion)
        for source, rejection in job.rejected():
            rejections += 1
            missed.reject(source, rejection)
    return Exported(results, failures, rejections, before)


@contextmanager
def _writer(path: str, file_format: FileFormat | None) -> Iterator[AnswerWriter]:
    file_format = format_of(path, file_format)
    if file_format == "parquet":
        require_pyarrow()
    with replaced(path) as stream, answer_writer(stream, file_format) as writer:
        yield writer
