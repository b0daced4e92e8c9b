"""Job files that earlier versions wrote are opened, finished and exported by this one.

`tests/data/job-format-N.blend.gz` was written by the last commit whose format was N: eleven
requests and a rejected line, read in two goes; the first five have results, and the plan is of
all. The release checklist says how the next one is made.
"""

import gzip
from pathlib import Path

import pytest

from blend.cli.api import Batch, engine_options
from blend.cli.app import main
from blend.store.job import Job
from blend.store.migrations import MIGRATIONS

DATA = Path(__file__).parent / "data"
FORMATS = range(1, len(MIGRATIONS) + 1)
ROWS, ANSWERED = 11, 5


@pytest.fixture(params=[n for n in FORMATS if (DATA / f"job-format-{n}.blend.gz").exists()])
def old_job(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "old.blend"
    path.write_bytes(gzip.decompress((DATA / f"job-format-{request.param}.blend.gz").read_bytes()))
    return path


def test_there_is_a_job_of_every_earlier_format() -> None:
    missing = [n for n in FORMATS[:-1] if not (DATA / f"job-format-{n}.blend.gz").exists()]

    assert missing == []


def test_an_old_job_keeps_its_rows_answers_rejections_and_plan(old_job: Path) -> None:
    batch = Batch(old_job)
    counts = batch.counts()
    with Job.open(old_job) as job:
        plan, schedule = job.plan(), job.schedule()

    assert (counts.total, counts.answered, counts.rejected) == (ROWS, ANSWERED, 1)
    assert all("simulated answer" in (one.text or "") for one in batch.answers())
    assert [one.error_code for one in batch.rejected()] == ["bad_prompt"]
    assert plan is not None
    assert schedule is not None
    assert plan.policy == "paper"


def test_an_old_job_is_finished_and_exported(old_job: Path) -> None:
    batch = Batch(old_job)
    before = list(batch.answers())
    counts = batch.execute(engine_options("sim"))
    exported = batch.export(old_job.with_name("out.jsonl"))

    assert (counts.answered, counts.unfinished) == (ROWS, 0)
    assert exported.results == ROWS
    assert list(batch.answers())[:ANSWERED] == before


@pytest.mark.parametrize(
    "words",
    [["status"], ["show"], ["show", "JOB", "schedule"], ["show", "JOB", "tree"], ["doctor"]],
)
def test_an_old_job_can_be_looked_at(
    old_job: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    named = [str(old_job) if word == "JOB" else word for word in words]

    assert main(named if "JOB" in words else [*named, str(old_job)]) == 0, capsys.readouterr().err
