"""What ingest writes: sources, their rows and their rejected lines, in step with the offset."""

import sqlite3
from collections.abc import Iterator, Sequence
from typing import cast

from blend.core.input.draft import Reason, Rejection
from blend.core.utf8 import as_utf8
from blend.store.database import Database
from blend.store.records import NewRow, RejectedGroup, Source
from blend.store.rows import count_rows

_COLUMNS = "source, path, size_bytes, digest, offset_bytes, lines, complete"


def open_source(database: Database, path: str, *, size: int, digest: str) -> Source:
    """Return the source of this file, new or as far as it was ingested before."""
    key = (as_utf8(path), size, digest)
    with database.write(durable=False) as sql:
        sql.execute(
            "INSERT INTO sources (path, size_bytes, digest) VALUES (?, ?, ?)"
            " ON CONFLICT DO NOTHING",
            key,
        )
        found = sql.execute(
            f"SELECT {_COLUMNS} FROM sources WHERE (path, size_bytes, digest) = (?, ?, ?)", key
        ).fetchone()
    return _source(found)


def all_sources(database: Database) -> list[Source]:
    """Return every source, in the order of ingestion."""
    with database.read() as sql:
        return [_source(r) for r in sql.execute(f"SELECT {_COLUMNS} FROM sources ORDER BY source")]


def find_ids(database: Database, custom_ids: Sequence[str]) -> dict[str, tuple[str, int]]:
    """Return path and line of those *custom_ids* that the job has."""
    found = {}
    with database.read() as sql:
        for custom_id in custom_ids:
            place = sql.execute(
                "SELECT path, line FROM requests JOIN sources USING (source) WHERE custom_id = ?",
                (custom_id,),
            ).fetchone()
            if place:
                found[custom_id] = place
    return found


def append(
    database: Database,
    source: Source,
    rows: Sequence[NewRow],
    rejected: Sequence[Rejection],
    *,
    offset: int,
    line: int,
    complete: bool,
) -> None:
    """Add rows and rejections and move the source on, all in one transaction.

    Raises ValueError when the source is already past *offset*: its rows would come in twice.
    """
    size_bytes = sum(len(row.body) + row.tokens.nbytes for row in rows)
    with database.write(durable=complete, size_bytes=size_bytes) as sql:
        moved = sql.execute(
            "UPDATE sources SET offset_bytes = ?1, lines = ?2, complete = ?3"
            " WHERE source = ?4 AND offset_bytes <= ?1 AND lines <= ?2",
            (offset, line, complete, source.id),
        ).rowcount
        if not moved:
            raise ValueError(f"source {source.id} is already past offset {offset}, line {line}")
        _insert_rows(sql, source, rows)
        sql.executemany(
            "INSERT INTO rejected VALUES (?, ?, ?, ?, ?, ?)",
            ((source.id, r.line, r.column, r.reason, r.message, r.custom_id) for r in rejected),
        )


def _insert_rows(sql: sqlite3.Connection, source: Source, rows: Sequence[NewRow]) -> None:
    numbered = list(enumerate(rows, count_rows(sql)))
    sql.executemany(
        "INSERT INTO requests (row, custom_id, source, line, endpoint, prompt_tokens, max_tokens,"
        " sequences, known_tokens) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            (
                number,
                row.custom_id,
                source.id,
                row.line,
                row.endpoint,
                len(row.tokens),
                row.max_tokens,
                row.sequences,
                row.known_tokens,
            )
            for number, row in numbered
        ),
    )
    sql.executemany("INSERT INTO bodies VALUES (?, ?)", ((n, row.body) for n, row in numbered))
    sql.executemany(
        "INSERT INTO prompts VALUES (?, ?)",
        ((n, row.tokens.astype("<u4").tobytes()) for n, row in numbered),
    )


def all_rejected(database: Database) -> Iterator[tuple[str, Rejection]]:
    """Yield path and rejection of every rejected line, in the order of ingestion."""
    with database.snapshot() as sql:
        for path, line, column, reason, message, custom_id in sql.execute(
            "SELECT path, line, column, reason, message, custom_id"
            " FROM rejected JOIN sources USING (source) ORDER BY source, line"
        ):
            yield path, Rejection(line, column, cast(Reason, reason), message, custom_id)


def rejections_by_reason(database: Database) -> list[RejectedGroup]:
    """Return the rejections grouped by reason, most frequent first."""
    with database.read() as sql:
        groups = sql.execute(
            "SELECT reason, count(*), (SELECT min(source) FROM rejected WHERE reason = r.reason)"
            " FROM rejected AS r GROUP BY reason ORDER BY count(*) DESC, reason"
        ).fetchall()
        return [
            RejectedGroup(
                reason,
                count,
                *sql.execute(
                    "SELECT path, line, column, message FROM rejected JOIN sources USING (source)"
                    " WHERE reason = ? AND source = ? ORDER BY line LIMIT 1",
                    (reason, source),
                ).fetchone(),
            )
            for reason, count, source in groups
        ]


def _source(columns: tuple[int, str, int, str, int, int, int]) -> Source:
    number, path, size, digest, offset, line, complete = columns
    return Source(number, path, size, digest, offset, line, bool(complete))
