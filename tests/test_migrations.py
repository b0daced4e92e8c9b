"""Older job files become present ones, newer ones are refused."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from blend.core.errors import BlendError
from blend.store.job import Job
from blend.store.migrations import MIGRATIONS, format_version, migrate


@pytest.fixture
def old_job(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A file of the first format with a row in it."""
    connection = sqlite3.connect(tmp_path / "old.db", isolation_level=None)
    migrate(connection, MIGRATIONS[:1])
    connection.execute("INSERT INTO meta VALUES ('model', '\"m\"')")
    yield connection
    connection.close()


def add_colour(sql: sqlite3.Connection) -> None:
    sql.execute("ALTER TABLE meta ADD COLUMN colour TEXT NOT NULL DEFAULT 'blue'")


def fail_half_way(sql: sqlite3.Connection) -> None:
    sql.execute("ALTER TABLE meta ADD COLUMN half TEXT")
    raise ZeroDivisionError


def test_an_old_file_goes_through_each_missing_migration_once(old_job: sqlite3.Connection) -> None:
    for _ in range(2):
        migrate(old_job, [*MIGRATIONS[:1], add_colour])

    assert format_version(old_job) == 2
    assert old_job.execute("SELECT * FROM meta").fetchall() == [("model", '"m"', "blue")]


def test_a_migration_that_fails_leaves_the_file_as_it_was(old_job: sqlite3.Connection) -> None:
    with pytest.raises(ZeroDivisionError):
        migrate(old_job, [*MIGRATIONS[:1], add_colour, fail_half_way])

    assert format_version(old_job) == 2
    assert old_job.execute("SELECT * FROM meta").fetchall() == [("model", '"m"', "blue")]


def test_a_first_format_file_opens_with_its_contents(
    tmp_path: Path, old_job: sqlite3.Connection
) -> None:
    old_job.close()
    with Job.open(tmp_path / "old.db") as job:
        assert job.meta("model") == "m"


def test_a_newer_format_is_refused_with_both_numbers(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    Job.open(path, create=True).close()
    newer = len(MIGRATIONS) + 1
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA user_version = {newer}")
    connection.close()

    with pytest.raises(BlendError, match=f"format {newer}, .* up to {newer - 1}"):
        Job.open(path)
