"""A file that is no job, or a disk that is no good, is said plainly and costs nothing."""

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from blend.core.errors import IN_USE, RESUMABLE, BlendError
from blend.store.job import Job
from tests.filled_job import filled_job


def refusal(path: Path, *, create: bool = False) -> BlendError:
    with pytest.raises(BlendError) as caught:
        Job.open(path, create=create, wait_s=0.05)
    return caught.value


def test_a_missing_job_is_named_and_not_made(tmp_path: Path) -> None:
    path = tmp_path / "none.db"

    assert str(path) in refusal(path).message
    assert not path.exists()
    assert "no such folder" in refusal(tmp_path / "no" / "j.db", create=True).message


def test_other_files_are_refused_unharmed(tmp_path: Path) -> None:
    text, other, empty = (tmp_path / name for name in ("in.jsonl", "other.db", "empty.db"))
    text.write_text('{"custom_id": "a"}\n' * 100)
    short = tmp_path / "short.jsonl"
    short.write_text("{}\n")
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE someone_elses (x)")
    connection.close()
    empty.touch()
    before = [path.read_bytes() for path in (text, short, other, empty)]

    assert "directory" in refusal(tmp_path).message
    for create in (False, True):
        assert "not a job" in refusal(text, create=create).message
        assert "not a job" in refusal(short, create=create).message
        assert "another program's" in refusal(other, create=create).message
    assert "is empty" in refusal(empty).message
    assert [path.read_bytes() for path in (text, short, other, empty)] == before
    assert len(list(tmp_path.iterdir())) == 4


def test_a_job_opened_twice_in_a_process_still_sees_and_shows_what_is_written(
    tmp_path: Path,
) -> None:
    path = tmp_path / "j.db"
    filled_job(path, rows=1).close()
    with Job.open(path) as first:
        first.meta("a")
        Job.open(path).close()
        elsewhere(path, "job.set_meta(a=1)")
        first.set_meta(b=2)
        elsewhere(path, "assert (job.meta('a'), job.meta('b')) == (1, 2)")


def elsewhere(path: Path, statement: str) -> None:
    """Run a statement on the job in another process."""
    script = (
        "import sys; from pathlib import Path; from blend.store.job import Job\n"
        f"with Job.open(Path(sys.argv[1])) as job: {statement}"
    )
    subprocess.run([sys.executable, "-c", script, path], check=True)


def test_a_damaged_job_says_how_to_save_what_is_left(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    filled_job(path, rows=2000).close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + os.urandom(len(whole) - 4096))

    with pytest.raises(BlendError, match="damaged") as caught, Job.open(path) as job:
        job.prompts()

    assert ".recover" in (caught.value.hint or "")


def test_a_job_locked_by_another_process_is_waited_for_within_a_bound(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    filled_job(path, rows=1).close()
    other = sqlite3.connect(path, isolation_level=None)
    with Job.open(path, wait_s=0.05) as job:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(BlendError, match="locked by another process") as caught:
            job.set_meta(a=1)
        other.execute("ROLLBACK")
        other.close()
        job.set_meta(a=1)

        assert caught.value.exit_code == IN_USE
        assert job.meta("a") == 1


def test_a_full_disk_loses_nothing_that_was_saved_and_names_the_bytes(tmp_path: Path) -> None:
    with filled_job(tmp_path / "j.db", rows=1) as job:
        sql = job._database.connection
        pages = sql.execute("PRAGMA page_count").fetchone()[0]
        sql.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(BlendError, match=r"disk full: .*: 100,000 bytes to write") as caught:
            job.set_blob("large", bytes(100_000))
        sql.execute("PRAGMA max_page_count = 100000")
        job.set_blob("large", bytes(100_000))

        assert caught.value.exit_code == RESUMABLE
        assert (len(job), len(job.blob("large") or b"")) == (1, 100_000)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to anything")
def test_a_read_only_job_says_so(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    filled_job(path, rows=1).close()
    path.chmod(0o444)
    with pytest.raises(BlendError, match="cannot be written"), Job.open(path) as job:
        job.set_meta(a=1)


def test_strange_characters_in_the_path_are_no_trouble(tmp_path: Path) -> None:
    path = tmp_path / "50% of #1? ünï.db"
    with filled_job(path, rows=1) as job:
        assert list(job.results()) == []

    assert path.exists()


def test_a_job_killed_while_it_is_made_can_be_made_again(tmp_path: Path) -> None:
    """The worst moment: the file exists in WAL mode, its tables do not."""
    path = tmp_path / "j.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()

    assert "is empty" in refusal(path).message
    with filled_job(path, rows=1) as job:
        assert len(job) == 1


def test_a_closed_job_is_one_file(tmp_path: Path) -> None:
    filled_job(tmp_path / "j.db", rows=3).close()
    shutil.move(tmp_path / "j.db", tmp_path / "moved.db")

    assert [path.name for path in tmp_path.iterdir()] == ["moved.db"]
    with Job.open(tmp_path / "moved.db") as job:
        assert len(job) == 3


def test_importing_the_job_stays_quick() -> None:
    """Every command pays for it."""
    code = "import sys; import blend.store.job; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert not {"torch", "transformers", "sqlite_utils", "rich"} & set(run.stdout.split())
