"""Attempts: which rows are in flight, in which run, and how often an engine died with them inside.

A row has a line in their table from its first start, or a retry, until its result.
"""

from collections.abc import Iterable

from blend.store.database import Database


def start_rows(database: Database, run: int, rows: Iterable[int]) -> None:
    """Mark *rows* as in flight in *run*, so that a killed process still knows what it had begun.

    Quick, not durable: after a loss of power there is nothing in flight to know of.
    """
    with database.write(durable=False) as sql:
        sql.executemany(
            "INSERT INTO attempts (row, attempts, running_in) VALUES (?1, 1, ?2) ON CONFLICT (row)"
            " DO UPDATE SET attempts = attempts + 1, running_in = ?2",
            ((int(row), run) for row in rows),
        )


def carry_on(database: Database, run: int, rows: Iterable[int]) -> None:
    """Mark *rows*, which another run has begun, as in flight in *run*; no other is in flight."""
    with database.write(durable=False) as sql:
        sql.execute("UPDATE attempts SET running_in = NULL WHERE running_in IS NOT NULL")
        sql.executemany(
            "UPDATE attempts SET running_in = ?2 WHERE row = ?1", ((int(row), run) for row in rows)
        )


def release(database: Database, rows: Iterable[int] | None) -> int:
    """Return *rows* in flight, or all that are, to pending, and say how many there were."""
    with database.write(durable=False) as sql:
        if rows is None:
            return sql.execute(
                "UPDATE attempts SET running_in = NULL WHERE running_in IS NOT NULL"
            ).rowcount
        return sql.executemany(
            "UPDATE attempts SET running_in = NULL WHERE row = ? AND running_in IS NOT NULL",
            ((int(row),) for row in rows),
        ).rowcount


def note_deaths(database: Database, rows: Iterable[int]) -> None:
    """Note that the engine died with *rows* inside."""
    with database.write(durable=False) as sql:
        sql.executemany(
            "UPDATE attempts SET deaths = deaths + 1 WHERE row = ?", ((int(row),) for row in rows)
        )


def deaths(database: Database) -> dict[int, int]:
    """Return, for each row without a result, how often an engine died with it inside, if ever."""
    with database.read() as sql:
        return dict(sql.execute("SELECT row, deaths FROM attempts WHERE deaths > 0 ORDER BY row"))


def of_row(database: Database, row: int) -> int:
    """Return how often *row* was given to an engine."""
    with database.read() as sql:
        found = sql.execute(
            "SELECT attempts FROM results WHERE row = ?1"
            " UNION ALL SELECT attempts FROM attempts WHERE row = ?1",
            (int(row),),
        ).fetchone()
    return found[0] if found else 0
