"""Where results and errors go, and how a file takes the place of another only once it is whole."""

import glob
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from blend.core.command_line import command_line
from blend.core.errors import BlendError
from blend.core.results import rejected_line, result_line
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


def errors_path(output: str) -> str:
    """Return where errors go when the user names no file: ``out.errors.jsonl`` for ``out.jsonl``.

    With results on stdout there is no file to stand beside: errors go to ``errors.jsonl``.
    """
    if output == "-":
        return "errors.jsonl"
    path = output_file(output)
    return str(path.with_name(f"{path.stem}.errors{path.suffix or '.jsonl'}"))


def refuse_outputs(
    paths: Sequence[str], inputs: Sequence[str], *, job_path: Path, overwrite: bool
) -> None:
    """Raise BlendError when writing to *paths* would destroy something or cannot work."""
    sources = {Path(name).resolve() for name in inputs if name != "-"}
    job_file = job_path.resolve()
    beside = (job_file.with_name(job_file.name + suffix) for suffix in ("-wal", "-shm"))
    job_files = {job_file, lock_path(job_file), *beside}
    for name in (path for path in paths if path != "-"):
        path = Path(name)
        if path.resolve() in job_files:
            raise BlendError(f"the output is the job itself: {name}", hint="name another file")
        if path.resolve() in sources:
            raise BlendError(f"the output is an input of the job: {name}", hint="name another file")
        if path.is_dir():
            raise BlendError(f"the output is a directory: {name}", hint="name a file in it")
        if not path.resolve().parent.is_dir():
            parent = path.resolve().parent
            raise BlendError(
                f"no such directory: {parent}",
                hint=f"make it: `{command_line('mkdir', '-p', parent)}`",
            )
        if path.is_file() and not overwrite:
            raise BlendError(
                f"the output exists: {name}", hint="name another file, or add `--overwrite`"
            )
    files = [Path(path).resolve() for path in paths if not _is_stream(path)]
    if len(set(files)) < len(files):
        raise BlendError(
            f"results and errors would share one file: {files[0]}",
            hint="name another for the errors with `--errors`",
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


def export(job: Job, output: str, errors: str) -> Exported:
    """Write every answered row to *output*, every failed row and rejected line to *errors*."""
    results = failures = rejections = before = 0
    with replaced(errors) as error_stream, replaced(output) as stream:
        for custom_id, completion, earlier in job.latest_answers():
            line = result_line(custom_id, completion)
            before += earlier
            if completion.failed:
                failures += 1
                error_stream.write(line)
            else:
                results += 1
                stream.write(line)
        for source, rejection in job.rejected():
            rejections += 1
            error_stream.write(rejected_line(source, rejection))
    return Exported(results, failures, rejections, before)
