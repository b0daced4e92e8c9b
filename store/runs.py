"""Runs: who worked on the job, when, how it ended, and the sampled timeline of each."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

from blend.store.database import Database
from blend.store.records import Outcome, Purpose, Run, Step
from blend.store.settings import json_text

KILLED: Outcome = "killed"

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def here() -> tuple[str, int, str]:
    """Return host, pid and boot id: together they name this process for good."""
    boot_id = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else ""
    return os.uname().nodename, os.getpid(), boot_id


def begin_run(
    database: Database,
    *,
    purpose: Purpose,
    engine: str,
    engine_pid: int | None,
    settings: dict[str, Any],
    now: float,
) -> int:
    """Open a run of this process and return its number.

    Runs that other processes left open are marked as killed: the job's lock tells they are dead.
    """
    with database.write(durable=False) as sql:
        sql.execute(
            "UPDATE runs SET finished = heartbeat, outcome = ?"
            " WHERE outcome IS NULL AND (host, pid, boot_id) <> (?, ?, ?)",
            (KILLED, *here()),
        )
        run = sql.execute(
            "INSERT INTO runs"
            " (purpose, engine, engine_pid, settings, host, pid, boot_id, started, heartbeat)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (purpose, engine, engine_pid, json_text(settings), *here(), now, now),
        ).lastrowid
    assert run is not None
    return run


def end_run(
    database: Database, run: int, outcome: Outcome, *, cause: str | None, now: float
) -> None:
    """Close a run, saying how it ended."""
    with database.write(durable=True) as sql:
        sql.execute(
            "UPDATE runs SET finished = ?1, heartbeat = ?1, outcome = ?2, cause = ?3"
            " WHERE run = ?4",
            (now, outcome, cause, run),
        )


def beat(database: Database, run: int, *, now: float) -> None:
    """Say that a run is alive."""
    with database.write(durable=False) as sql:
        sql.execute("UPDATE runs SET heartbeat = ? WHERE run = ?", (now, run))


def last_sign_of_life(database: Database) -> float | None:
    """Return when the process at work on the job was last heard of; None when none is in a run."""
    with database.read() as sql:
        found = sql.execute("SELECT max(heartbeat) FROM runs WHERE outcome IS NULL").fetchone()
    return found[0] if found else None


def all_runs(database: Database) -> list[Run]:
    """Return every run, oldest first, with the number of results it brought."""
    with database.read() as sql:
        found = sql.execute(
            "SELECT run, purpose, engine, settings, host, pid, boot_id, started, heartbeat,"
            " finished, outcome, coalesce(brought, 0), engine_pid, cause FROM runs LEFT JOIN"
            " (SELECT run, count(*) AS brought FROM (SELECT run FROM results"
            " UNION ALL SELECT run FROM earlier_results) GROUP BY run) USING (run) ORDER BY run"
        ).fetchall()
    return [_run(*columns) for columns in found]


def executions(database: Database, since: float) -> list[int]:
    """Return the executions that began at *since* or after, without any plan's warm-up."""
    with database.read() as sql:
        found = sql.execute(
            "SELECT run FROM runs WHERE purpose = 'execute' AND started >= ? ORDER BY run", (since,)
        )
        return [run for (run,) in found]


def _run(run: int, purpose: Purpose, engine: str, settings: str, *columns: Any) -> Run:
    return Run(run, purpose, engine, orjson.loads(settings), *columns)


def executed(database: Database) -> bool:
    """Return whether an execution has worked on the job; a plan's warm-up is none."""
    with database.read() as sql:
        query = "SELECT EXISTS (SELECT 1 FROM runs WHERE purpose = 'execute')"
        return bool(sql.execute(query).fetchone()[0])


def add_steps(database: Database, run: int, steps: Iterable[Step | tuple[float, ...]]) -> None:
    """Append to the timeline of a run."""
    with database.write(durable=False) as sql:
        sql.executemany(
            "INSERT INTO steps (run, seconds, steps, running, waiting, kv_tokens, prefill_tokens,"
            " decode_tokens, cached_tokens, preemptions, answered)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            ((run, *step) for step in steps),
        )


def steps(database: Database, run: int) -> list[Step]:
    """Return the timeline of a run."""
    with database.read() as sql:
        return [
            Step(*columns)
            for columns in sql.execute(
                "SELECT seconds, steps, running, waiting, kv_tokens, prefill_tokens, decode_tokens,"
                " cached_tokens, preemptions, answered FROM steps WHERE run = ? ORDER BY step",
                (run,),
            )
        ]
