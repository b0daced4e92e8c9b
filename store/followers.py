"""Rows that get the result of another row: who follows whom, and what that takes."""

import sqlite3

import numpy as np

from blend.core.input.identity import DIGEST_BYTES, request_digest
from blend.core.planning.identical import Followers, find_followers
from blend.store.database import Database
from blend.store.rows import column, count_rows

_COPIED = (
    "status_code, finish_reason, 0 AS prompt_tokens, 0 AS completion_tokens, 0 AS cached_tokens,"
    " started, finished, reason, answer"
)


def followers(database: Database) -> Followers:
    """Return who follows whom since the latest plan."""
    with database.read() as sql:
        return _followers(sql, "SELECT row, leader FROM followers ORDER BY row")


def leader(database: Database, row: int) -> int | None:
    """Return the row whose result *row* gets; None for one that runs itself."""
    with database.read() as sql:
        found = sql.execute("SELECT leader FROM followers WHERE row = ?", (int(row),)).fetchone()
    return found[0] if found else None


def settled(database: Database) -> Followers:
    """Return the rows that have another row's result."""
    with database.read() as sql:
        return _settled(sql)


def identical_rows(database: Database) -> Followers:
    """Return who can follow whom, from all requests and results there are; changes nothing.

    Reads each body once, and holds a digest of each.
    """
    with database.read() as sql:
        n = count_rows(sql)
        digests = np.zeros(n, f"S{DIGEST_BYTES}")
        for row, endpoint, body, raised in sql.execute(
            "SELECT requests.row, endpoint, body, raised_limits.max_tokens FROM requests"
            " JOIN bodies USING (row) LEFT JOIN raised_limits USING (row)"
        ):
            digests[row] = request_digest(endpoint, body, max_tokens=raised) or b""
        open_rows = np.ones(n, np.bool_)
        open_rows[column(sql, "SELECT row FROM results")] = False
        answered = np.zeros(n, np.bool_)
        own = "SELECT row FROM results WHERE status_code = 200 AND same_as IS NULL"
        answered[column(sql, own)] = True
        return find_followers(
            digests, open_rows=open_rows, answered=answered, settled=_settled(sql)
        )


def replace(sql: sqlite3.Connection, new: Followers) -> None:
    """Say who follows whom from now on; whose leader has a result gets it."""
    sql.execute("DELETE FROM followers")
    sql.executemany(
        "INSERT INTO followers VALUES (?, ?)",
        zip(new.rows.tolist(), new.leaders.tolist(), strict=True),
    )
    hand_on(sql, "leader IN (SELECT row FROM results)")


def hand_on_all(database: Database) -> None:
    """Give their leader's result to the followers that lack one."""
    with database.write(durable=True) as sql:
        hand_on(sql, "leader IN (SELECT row FROM results)")


def hand_on(sql: sqlite3.Connection, leaders: str, *values: int) -> None:
    """Give their leader's result to the followers of *leaders*, a condition, that have none."""
    lacking = (
        f"FROM followers WHERE {leaders}"
        " AND NOT EXISTS (SELECT 1 FROM results AS r WHERE r.row = followers.row)"
    )
    sql.execute(
        "INSERT INTO results (row, run, attempts, status_code, finish_reason, prompt_tokens,"
        " completion_tokens, cached_tokens, started, finished, reason, answer, same_as)"
        " SELECT f.row, run, coalesce(attempts.attempts, 0),"
        f" {_COPIED}, leader FROM (SELECT row, leader {lacking}) AS f"
        " JOIN results ON results.row = leader LEFT JOIN attempts ON attempts.row = f.row",
        values,
    )
    sql.execute(
        "DELETE FROM attempts WHERE row IN"
        f" (SELECT row FROM followers WHERE {leaders})"
        " AND row IN (SELECT row FROM results)",
        values,
    )


def _settled(sql: sqlite3.Connection) -> Followers:
    return _followers(sql, "SELECT row, same_as FROM results WHERE same_as IS NOT NULL")


def _followers(sql: sqlite3.Connection, query: str) -> Followers:
    pairs = np.array(sql.execute(query).fetchall(), np.int64).reshape(-1, 2)
    return Followers(np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1]))
