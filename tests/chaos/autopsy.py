"""What a job holds after an accident, read from a copy: the next command finds it untouched."""

import shutil
import sqlite3
from collections.abc import Set
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.subject import Stage


@dataclass(frozen=True, slots=True)
class Found:
    """The rows with results, and how often rows began once more.

    ``in_flight`` rows run, says the job; ``unsaved`` ones have begun, and have no result.
    """

    answered: Set[int]
    in_flight: int
    unsaved: int
    again: int


def examine(job: Path, folder: Path) -> Found:
    """Return what is in a job at which nobody works; AssertionError when it is damaged."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for suffix in ("", "-wal"):
        file = job.with_name(job.name + suffix)
        if file.exists():
            shutil.copy(file, folder)
    if not (folder / job.name).exists():
        return Found(frozenset(), 0, 0, 0)
    with closing(sqlite3.connect(folder / job.name)) as sql:
        assert sql.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert sql.execute("PRAGMA foreign_key_check").fetchall() == []
        if not sql.execute("PRAGMA user_version").fetchone()[0]:
            return Found(frozenset(), 0, 0, 0)
        answered = frozenset(row for (row,) in sql.execute("SELECT row FROM results"))
        started = sql.execute("SELECT count(*) FROM attempts WHERE running_in IS NOT NULL")
        unsaved = sql.execute(
            "SELECT count(*) FROM attempts WHERE row NOT IN (SELECT row FROM results)"
        )
        # A row that got the answer of another has begun no time.
        again = sql.execute("SELECT total(max(attempts - 1, 0)) FROM results")
        counts = (int(one.fetchone()[0]) for one in (started, unsaved, again))
        return Found(answered, *counts)


def share_done(job: Path, stage: Stage, rows: int) -> float:
    """Return how much of a stage is done, by the tables of a job that is being worked on."""
    if stage == "export":
        written = [path.stat().st_size for path in job.parent.glob("out.jsonl.partial-*")]
        return max(written, default=0) / (400 * rows)
    table = "requests" if stage == "ingest" else "results"
    if not job.exists():
        return 0.0
    try:
        with closing(sqlite3.connect(f"file:{job}?mode=ro", uri=True, timeout=0.1)) as sql:
            return float(sql.execute(f"SELECT count(*) FROM {table}").fetchone()[0]) / rows
    except sqlite3.OperationalError:
        return 0.0
