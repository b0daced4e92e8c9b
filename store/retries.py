"""Retries: results that are taken back, so that their rows run again."""

import json
import sqlite3
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from blend.core.causes import Group, cause_of
from blend.core.completion import Completion
from blend.core.input.known import known_tokens
from blend.store.database import Database
from blend.store.results import COMPLETION, STORED
from blend.store.rows import column


def failed_rows(database: Database, groups: Sequence[Group]) -> npt.NDArray[np.int64]:
    """Return the failed rows of these groups, ascending."""
    with database.read() as sql:
        found = [
            column(
                sql,
                "SELECT row FROM results"
                " WHERE status_code <> 200 AND status_code = ? AND cause_of(reason) = ?",
                status_code,
                cause_of(message),
            )
            for status_code, message in groups
        ]
    return np.sort(np.concatenate([np.empty(0, np.int64), *found]))


def truncated_rows(database: Database) -> npt.NDArray[np.int64]:
    """Return the rows whose answers were cut at max_tokens, ascending."""
    with database.read() as sql:
        return column(
            sql,
            "SELECT row FROM results WHERE status_code = 200 AND finish_reason = 'length'"
            " ORDER BY row",
        )


def retry(
    database: Database,
    rows: npt.NDArray[np.int64],
    *,
    asked: str,
    max_tokens: npt.NDArray[np.int64] | None,
    now: float,
) -> int:
    """Take the results of *rows* and of what is identical back, all or none; say how many.

    They move to ``earlier_results``, and the attempts go on counting. ``max_tokens``: the limit
    that each row runs with from now on.
    """
    with database.write(durable=True, size_bytes=256 * len(rows)) as sql:
        sql.execute("CREATE TEMP TABLE IF NOT EXISTS chosen (row INTEGER PRIMARY KEY)")
        sql.execute("DELETE FROM chosen")
        sql.executemany("INSERT INTO chosen VALUES (?)", ((row,) for row in rows.tolist()))
        # Identical requests go together: the one that runs brings the results of the others.
        sql.execute("INSERT OR IGNORE INTO chosen SELECT leader FROM followers WHERE row IN chosen")
        sql.execute("INSERT OR IGNORE INTO chosen SELECT row FROM followers WHERE leader IN chosen")
        number = sql.execute(
            "INSERT INTO retries (created, asked) VALUES (?, ?)", (now, asked)
        ).lastrowid
        sql.execute(
            f"INSERT INTO earlier_results (retry, {STORED})"
            f" SELECT ?, {STORED} FROM results WHERE row IN chosen",
            (number,),
        )
        sql.execute(
            "INSERT INTO attempts (row, attempts) SELECT row, attempts FROM results"
            " WHERE row IN chosen AND attempts > 0"
        )
        taken = sql.execute("DELETE FROM results WHERE row IN chosen").rowcount
        if max_tokens is not None:
            for row, limit in zip(rows.tolist(), max_tokens.tolist(), strict=True):
                _raise_limit(sql, row, limit)
    return taken


def _raise_limit(sql: sqlite3.Connection, row: int, max_tokens: int) -> None:
    (body,) = sql.execute("SELECT body FROM bodies WHERE row = ?", (row,)).fetchone()
    # Not orjson: an integer of more than 64 bits is the user's to send.
    known = known_tokens(json.loads(body), max_tokens=max_tokens)
    sql.execute(
        "UPDATE requests SET max_tokens = ?, known_tokens = ? WHERE row = ?",
        (max_tokens, known, row),
    )
    sql.execute("INSERT OR REPLACE INTO raised_limits VALUES (?, ?)", (row, max_tokens))


def earlier_results(database: Database, row: int) -> list[Completion]:
    """Return the results of *row* that retries took back, oldest first."""
    with database.read() as sql:
        found = sql.execute(
            f"SELECT {COMPLETION} FROM earlier_results AS results JOIN answers USING (answer)"
            " WHERE row = ? ORDER BY retry",
            (int(row),),
        ).fetchall()
    return [Completion(*columns) for columns in found]


def raised_limit(database: Database, row: int) -> int | None:
    """Return the limit of output tokens that a retry gave *row*; None where its own holds."""
    with database.read() as sql:
        found = sql.execute(
            "SELECT max_tokens FROM raised_limits WHERE row = ?", (int(row),)
        ).fetchone()
    return found[0] if found else None
