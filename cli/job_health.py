"""Is a job fit to go on? Its file, who works on it, what it was made of, and the disk it needs."""

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from blend.cli.health import Check, disk_check, fail, ok, warn
from blend.cli.job_disk import network_disk
from blend.cli.job_plan import planned
from blend.cli.machine_health import hub_cache
from blend.cli.next_steps import next_command
from blend.cli.running import OVERHEAD_BYTES
from blend.cli.status import sign_of_life
from blend.cli.wording import counted
from blend.core.command_line import command_line
from blend.core.errors import BlendError
from blend.store.job import Counts, Job, Source

CHECKED_S = 0.7
"""What looking for damage may take: of a large file it is the beginning."""

HASHED_BYTES = 200e6
"""Inputs up to this size are compared by content, larger ones by their size."""

_TOKEN_BYTES, _ANSWER_BYTES = 5, 600  # of an answer in JSON


def job_checks(path: Path) -> Iterator[Check]:
    """Yield what there is to say of a job; only why not, where it cannot be opened."""
    try:
        with Job.open(path) as job:
            yield _opened(job)
            yield _damage(job)
            counts = job.counts()
            yield _holder(job, counts)
            yield _rows(job, counts)
            yield from (_source(source) for source in job.sources())
            yield _model(job)
            yield _plan(job, counts)
            yield _disk(job, counts)
            if kind := network_disk(path):
                yield warn("file system", f"{kind}: its locks may not hold", "use a local disk")
    except BlendError as error:
        yield fail("job", error.message, error.hint or "restore it from a copy")


def _opened(job: Job) -> Check:
    if job.frozen:
        copy = command_line("cp", job.path, "FOLDER")
        return warn(
            "job",
            f"{job.path}: opens to be read; may not be written here",
            f"`{copy}`, to run what is left of it elsewhere",
        )
    return ok("job", f"{job.path}: opens, in the present format")


def _damage(job: Job) -> Check:
    if damage := job.damage(limit_s=CHECKED_S):
        return fail("integrity", damage, f"`sqlite3 {job.path} .recover` saves what is left")
    return ok("integrity", "no damage found")


def _holder(job: Job, counts: Counts) -> Check:
    holder = job.holder()
    if holder is not None:
        who = "another process"
        if holder:
            who = "`{purpose}`, process {pid} on {host}, since {since}".format(**holder)
        return ok("at work", f"in use by {who}; {sign_of_life(job) or 'no run has begun'}")
    if counts.running:
        return warn(
            "at work",
            f"nobody, yet {counted(counts.running, 'rows')} are in flight: their process died",
            f"`{next_command(job, counts)}` runs them again",
        )
    return ok("at work", "nobody")


def _rows(job: Job, counts: Counts) -> Check:
    found = (
        f"{counted(counts.total)}: {counted(counts.answered)} answered, "
        f"{counted(counts.failed)} failed, {counted(counts.pending + counts.running)} left; "
        f"{counted(counts.rejected, 'lines rejected')}"
    )
    look = f"`{command_line('blend', 'status', job.path)}` says why, and what helps"
    if not counts.total:
        return fail("rows", found, "`blend ingest` more, or look at the rejected lines")
    return warn("rows", found, look) if counts.failed else ok("rows", found)


def _source(source: Source) -> Check:
    path = Path(source.path)
    if not source.complete:
        return warn(
            "input", f"{path}: read up to line {counted(source.line)} only", "ingest it again"
        )
    if not path.is_file():
        return ok("input", f"{path}: not here any more; the job has its own copy")
    same = path.stat().st_size == source.size
    if same and source.size <= HASHED_BYTES:
        with path.open("rb") as file:
            same = hashlib.file_digest(file, "sha256").hexdigest() == source.digest
    if same:
        return ok("input", f"{path}: as it was read")
    return warn(
        "input",
        f"{path}: changed since it was read; the job keeps what was read",
        "ingest it into a new job if the changes count",
    )


def _model(job: Job) -> Check:
    named = job.meta("model")
    if named is None:
        return fail("model", "none: nothing was ingested", "`blend ingest IN --job JOB --model M`")
    folder = Path(named)
    if folder.is_absolute():
        return _model_folder(folder, job)
    cached = hub_cache() / f"models--{named.replace('/', '--')}"
    if cached.is_dir():
        return ok("model", f"{named}, in the cache")
    if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0"):
        return fail("model", f"{named} is not in the cache, and HF_HUB_OFFLINE is set", "unset it")
    return warn("model", f"{named} is not in the cache", "the first run fetches it, if it can")


def _model_folder(folder: Path, job: Job) -> Check:
    config = folder / "config.json"
    if not config.is_file():
        return fail("model", f"{folder} is gone", "put it back where it was, or ingest anew")
    stored = dict(job.meta("model_config") or {})
    now = json.loads(config.read_text("utf-8"))
    if any(stored.get(key) != value for key, value in now.items()):
        return fail("model", f"{folder}: another config.json than at the ingest", "ingest anew")
    if not any(folder.glob("*.safetensors")) and not any(folder.glob("*.bin")):
        return warn("model", f"{folder}: without weights", "vLLM needs them; the others do not")
    return ok("model", f"{folder}: its config.json is that of the ingest")


def _plan(job: Job, counts: Counts) -> Check:
    plan = job.plan()
    again = f"`{command_line('blend', 'plan', job.path)}`"
    if plan is None:
        return ok("plan", f"none yet: {again}" if counts.unfinished else "none")
    if counts.unfinished and not planned(job):
        return fail("plan", "it is of other rows or another model", f"{again} again")
    return ok("plan", plan.policy)


def _disk(job: Job, counts: Counts) -> Check:
    """Return whether the results to come fit: as large as those that are there, or as expected."""
    tokens = counts.output_tokens / counts.answered if counts.answered else _expected_tokens(job)
    each = _ANSWER_BYTES + OVERHEAD_BYTES + _TOKEN_BYTES * tokens
    folder = job.path.resolve().parent
    needed = counts.unfinished * each
    return disk_check("disk, job", folder, needed_bytes=needed, scarce_bytes=2 * needed + 100e6)


def _expected_tokens(job: Job) -> float:
    """Return what the plan expects of an answer, 0 before there is one."""
    expected = job.expected_tokens()
    known = expected[~np.isnan(expected)]
    return float(known.mean()) if len(known) else 0.0
