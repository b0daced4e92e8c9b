"""Results, each exactly once: recorded, counted, read back."""

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from blend.core.causes import message_of
from blend.core.completion import Completion
from blend.store.database import Database
from blend.store.followers import hand_on
from blend.store.records import Answered, Counts, Failure, FailureGroup
from blend.store.rows import count_rows, read_columns

MESSAGE_CHARACTERS = 200

STORED = (
    "row, run, attempts, status_code, finish_reason, prompt_tokens, completion_tokens,"
    " cached_tokens, started, finished, reason, answer, same_as"
)
COMPLETION = (
    "results.row, status_code, body, finish_reason, prompt_tokens, completion_tokens,"
    " cached_tokens, started, finished, same_as"
)


_NAMED = "(SELECT custom_id FROM requests WHERE requests.row = results.row)"
_LATEST = (
    f"SELECT {_NAMED}, 0, {COMPLETION} FROM results JOIN answers USING (answer)"
    " WHERE status_code = 200 OR NOT EXISTS"
    " (SELECT 1 FROM earlier_results AS e WHERE e.row = results.row AND e.status_code = 200)"
    f" UNION ALL SELECT {_NAMED}, 1, {COMPLETION}"
    " FROM earlier_results AS results JOIN answers USING (answer)"
    " WHERE status_code = 200 AND retry = (SELECT max(retry) FROM earlier_results AS e"
    " WHERE e.row = results.row AND e.status_code = 200)"
    " AND NOT EXISTS (SELECT 1 FROM results AS now"
    " WHERE now.row = results.row AND now.status_code = 200)"
    " ORDER BY 3"
)


def record(
    database: Database,
    run: int,
    completions: Sequence[Completion],
    *,
    now: float,
    durable: bool = True,
) -> None:
    """Save *completions* in one transaction, also as the results of rows that follow.

    Of two results for a row the first stays. A plan's sample runs before it is known who follows
    whom in that plan, so it brings the rows that ran their results alone.
    """
    size_bytes = sum(len(c.body) for c in completions)
    with database.write(durable=durable, size_bytes=size_bytes) as sql:
        followed = _first(
            sql,
            "EXISTS (SELECT 1 FROM followers)"
            " AND (SELECT purpose FROM runs WHERE run = ?) <> 'sample'",
            run,
        )
        for completion in completions:
            _record_one(sql, run, completion)
            if followed:
                hand_on(sql, "leader = ?", int(completion.row))
        sql.execute("UPDATE runs SET heartbeat = ? WHERE run = ?", (now, run))


def result(database: Database, row: int) -> Completion | None:
    """Return the result of one row; None while it has none."""
    with database.read() as sql:
        found = sql.execute(
            f"SELECT {COMPLETION} FROM results JOIN answers USING (answer) WHERE row = ?",
            (int(row),),
        ).fetchone()
    return Completion(*found) if found else None


def results(database: Database) -> Iterator[tuple[str, Completion]]:
    """Yield custom_id and result of every row that has one, in row order.

    One consistent state of the job, however long the reading takes, in flat memory.
    """
    with database.snapshot() as sql:
        for custom_id, *columns in sql.execute(
            f"SELECT {_NAMED}, {COMPLETION} FROM results JOIN answers USING (answer)"
            " ORDER BY results.row"
        ):
            yield custom_id, Completion(*columns)


def latest_answers(database: Database) -> Iterator[tuple[str, Completion, bool]]:
    """Yield custom_id, completion, and whether a retry took it back, in row order.

    Of each row the latest answer; its error where it has none. A retry that is not through, or
    that failed, costs no answer. One consistent state of the job, in flat memory.
    """
    with database.snapshot() as sql:
        for custom_id, earlier, *columns in sql.execute(_LATEST):
            yield custom_id, Completion(*columns), bool(earlier)


def output_tokens(database: Database) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the rows answered by a run of their own, ascending, and the output tokens of each.

    (k,) and (k,).
    """
    with database.read() as sql:
        rows, tokens = read_columns(
            sql,
            {"row": np.int64, "completion_tokens": np.int64},
            "FROM results WHERE status_code = 200 AND same_as IS NULL",
        )
    return rows, tokens


def answered(database: Database) -> Answered:
    """Return what the answered rows took, without reading a text."""
    names = ("row", "prompt_tokens", "completion_tokens", "cached_tokens")
    with database.read() as sql:
        found = read_columns(
            sql, dict.fromkeys(names, np.int64), "FROM results WHERE status_code = 200"
        )
    return Answered(*found)


def failed(database: Database) -> Iterator[Failure]:
    """Yield every failed row in row order: one consistent state, in flat memory."""
    with database.snapshot() as sql:
        for columns in sql.execute(
            "SELECT custom_id, path, line, status_code, reason, attempts FROM results"
            " JOIN requests USING (row) JOIN sources USING (source)"
            " WHERE status_code <> 200 ORDER BY results.row"
        ):
            yield Failure(*columns)


def counts(database: Database) -> Counts:
    """Return how far the job is."""
    with database.read() as sql:
        total = count_rows(sql)
        total_prompt_tokens = _first(sql, "total(prompt_tokens) FROM requests")
        done, failed, truncated, copied, sources, *tokens = sql.execute(
            "SELECT count(*), total(status_code <> 200),"
            " total(status_code = 200 AND finish_reason = 'length'),"
            " count(same_as), count(DISTINCT same_as),"
            " total(prompt_tokens), total(completion_tokens), total(cached_tokens) FROM results"
        ).fetchone()
        running = _first(sql, "count(*) FROM attempts WHERE running_in IS NOT NULL")
        rejected = _first(sql, "count(*) FROM rejected")
        answered_before = _first(
            sql,
            "count(DISTINCT row) FROM earlier_results AS e WHERE status_code = 200 AND NOT EXISTS"
            " (SELECT 1 FROM results AS r WHERE r.row = e.row AND r.status_code = 200)",
        )
    return Counts(
        total=total,
        answered=done - int(failed),
        failed=int(failed),
        pending=total - done - running,
        running=running,
        truncated=int(truncated),
        rejected=rejected,
        total_prompt_tokens=int(total_prompt_tokens),
        prompt_tokens=int(tokens[0]),
        output_tokens=int(tokens[1]),
        cached_tokens=int(tokens[2]),
        answered_before=answered_before,
        copied=copied,
        copied_from=sources,
    )


def failures(database: Database) -> list[FailureGroup]:
    """Return the failed rows grouped by status and cause, most frequent first.

    Messages that differ in numbers and identifiers alone count as one cause.
    """
    with database.read() as sql:
        # The reason is that of the first row: SQLite takes bare columns from where the minimum is.
        found = sql.execute(
            "SELECT status_code, reason, rows, custom_id FROM"
            " (SELECT status_code, reason, count(*) AS rows, min(row) AS row FROM results"
            " WHERE status_code <> 200 GROUP BY status_code, cause_of(reason))"
            " JOIN requests USING (row) ORDER BY rows DESC, row"
        ).fetchall()
    return [FailureGroup(*columns) for columns in found]


def _record_one(sql: sqlite3.Connection, run: int, completion: Completion) -> None:
    row = int(completion.row)
    started = sql.execute(
        "DELETE FROM attempts WHERE row = ? RETURNING attempts", (row,)
    ).fetchone()
    if sql.execute("SELECT 1 FROM results WHERE row = ?", (row,)).fetchone():
        return
    answer = sql.execute("INSERT INTO answers (body) VALUES (?)", (completion.body,)).lastrowid
    sql.execute(
        f"INSERT INTO results ({STORED}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)",
        (
            row,
            run,
            started[0] if started else 0,
            completion.status_code,
            completion.finish_reason,
            completion.prompt_tokens,
            completion.completion_tokens,
            completion.cached_tokens,
            completion.started,
            completion.finished,
            _reason(completion),
            answer,
        ),
    )


def _reason(completion: Completion) -> str | None:
    """Return the beginning of the error's message; None for an answer."""
    return message_of(completion.body)[:MESSAGE_CHARACTERS] if completion.failed else None


def _first(sql: sqlite3.Connection, query: str, *values: Any) -> Any:
    return sql.execute(f"SELECT {query}", values).fetchone()[0]
