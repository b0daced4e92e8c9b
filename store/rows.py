"""What planning and execution read of the rows: requests, prompts, sizes."""

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from blend.core.input.limits import with_limit
from blend.core.prompts import Prompts
from blend.core.request import Request
from blend.core.utf8 import as_utf8
from blend.store.database import Database
from blend.store.records import Sizes

ROWS_A_FETCH = 4096


def count_rows(sql: sqlite3.Connection) -> int:
    """Return the number of rows; they are numbered from 0 without gaps."""
    return int(sql.execute("SELECT coalesce(max(row) + 1, 0) FROM requests").fetchone()[0])


def request(database: Database, row: int) -> Request:
    """Return one request, ready for an engine; raises IndexError for a row the job has not."""
    with database.read() as sql:
        found = sql.execute(
            "SELECT custom_id, endpoint, body, tokens, requests.max_tokens, sequences,"
            " raised_limits.max_tokens FROM requests JOIN bodies USING (row)"
            " JOIN prompts USING (row) LEFT JOIN raised_limits USING (row) WHERE row = ?",
            (int(row),),
        ).fetchone()
    if found is None:
        raise IndexError(f"no row {row}")
    custom_id, endpoint, body, tokens, max_tokens, sequences, raised = found
    if raised is not None:
        body = with_limit(endpoint, body, raised)
    return Request(
        int(row), custom_id, endpoint, body, np.frombuffer(tokens, "<u4"), max_tokens, sequences
    )


def find(database: Database, custom_id: str) -> int | None:
    """Return the row of *custom_id*; None when the job has not got it."""
    with database.read() as sql:
        key = (as_utf8(custom_id),)
        found = sql.execute("SELECT row FROM requests WHERE custom_id = ?", key).fetchone()
    return found[0] if found else None


def any_body_has(database: Database, field: str) -> bool:
    """Return whether any request body has a field of that name, at whatever depth."""
    key = f'"{field}"'.encode()
    with database.read() as sql:
        found = sql.execute("SELECT EXISTS (SELECT 1 FROM bodies WHERE instr(body, ?))", (key,))
        return bool(found.fetchone()[0])


def origin(database: Database, row: int) -> tuple[str, int]:
    """Return path and line that *row* came from."""
    with database.read() as sql:
        path, line = sql.execute(
            "SELECT path, line FROM requests JOIN sources USING (source) WHERE row = ?", (int(row),)
        ).fetchone()
    return path, line


def custom_ids(database: Database, rows: Iterable[int]) -> list[str]:
    """Return the custom_id of each of *rows*, in their order."""
    query = "SELECT custom_id FROM requests WHERE row = ?"
    with database.read() as sql:
        return [sql.execute(query, (int(row),)).fetchone()[0] for row in rows]


def ids_from(database: Database, prefix: str, *, most: int) -> list[str]:
    """Return the custom_ids that begin with *prefix*, in their order, *most* at most."""
    query = "SELECT custom_id FROM requests WHERE custom_id >= ? ORDER BY custom_id LIMIT ?"
    with database.read() as sql:
        found = [one for (one,) in sql.execute(query, (as_utf8(prefix), most))]
    return [one for one in found if one.startswith(prefix)]


def sizes(database: Database) -> Sizes:
    """Return how large each row is, without reading a token."""
    with database.read() as sql:
        return _sizes(sql)


def sequences(database: Database) -> npt.NDArray[np.int32]:
    """Return how many sequences each row asks for, (n,)."""
    with database.read() as sql:
        each = np.ones(count_rows(sql), np.int32)
        more = {"row": np.int64, "sequences": np.int32}
        rows, several = read_columns(sql, more, "FROM requests WHERE sequences <> 1")
    each[rows] = several
    return each


def prompts(database: Database, rows: npt.NDArray[np.int64] | None) -> Prompts:
    """Return the tokens of all rows, or of those named, ascending; memory is that of the result."""
    with database.read() as sql:
        measured, known = _sizes(sql), _known_tokens(sql)
        if rows is not None and len(rows) == len(known):
            rows = None
        if rows is not None:
            measured = Sizes(*(getattr(measured, one.name)[rows] for one in fields(Sizes)))
            known = known[rows]
        starts = np.zeros(len(measured.prompt_tokens) + 1, np.int64)
        np.cumsum(measured.prompt_tokens, out=starts[1:])
        return Prompts(
            _tokens(sql, int(starts[-1]), rows),
            starts,
            measured.max_tokens,
            measured.sequences,
            known,
            rows,
        )


def pending(database: Database) -> npt.NDArray[np.bool_]:
    """Return which rows have no result yet, (n,)."""
    with database.read() as sql:
        without = np.ones(count_rows(sql), np.bool_)
        without[read_columns(sql, {"row": np.int64}, "FROM results")[0]] = False
    return without


def column(sql: sqlite3.Connection, query: str, *values: Any) -> npt.NDArray[np.int64]:
    """Return the integers of a one-column query."""
    return np.fromiter((r for (r,) in sql.execute(query, values)), np.int64)


def read_columns(
    sql: sqlite3.Connection, names: Mapping[str, npt.DTypeLike], source: str
) -> list[npt.NDArray[Any]]:
    """Return columns of *source*, a query from its FROM on, as arrays (k,) of the dtypes named.

    Sorted by the first. The columns hold numbers, no NULL; of a real, 15 digits come back.
    """
    # One text a column: a Python object for each number would take three times as long.
    joined = ", ".join(f"group_concat({name})" for name in names)
    texts = sql.execute(f"SELECT {joined} {source}").fetchone()
    found = [
        np.fromstring(text, dtype, sep=",") if text else np.empty(0, dtype)
        for text, dtype in zip(texts, names.values(), strict=True)
    ]
    # SQLite promises no order of what it joins, but the same for all columns.
    order = np.argsort(found[0], kind="stable")
    return [column[order] for column in found]


def _sizes(sql: sqlite3.Connection) -> Sizes:
    _, *found = read_columns(
        sql,
        {"row": np.int64, "prompt_tokens": np.int64, "max_tokens": np.int32, "sequences": np.int32},
        "FROM requests",
    )
    return Sizes(*found)


def _known_tokens(sql: sqlite3.Connection) -> npt.NDArray[np.float64]:
    query = "SELECT known_tokens FROM requests ORDER BY row"
    return np.fromiter((np.nan if k is None else k for (k,) in sql.execute(query)), np.float64)


def _tokens(
    sql: sqlite3.Connection, count: int, rows: npt.NDArray[np.int64] | None
) -> npt.NDArray[np.uint32]:
    tokens = np.empty(count, np.uint32)
    filled = 0
    wanted = np.ones(count_rows(sql), np.bool_)
    if rows is not None:
        wanted[:] = False
        wanted[rows] = True
    cursor = sql.execute("SELECT row, tokens FROM prompts ORDER BY row")
    while chunk := cursor.fetchmany(ROWS_A_FETCH):
        joined = np.frombuffer(b"".join(blob for row, blob in chunk if wanted[row]), "<u4")
        tokens[filled : filled + len(joined)] = joined
        filled += len(joined)
    return tokens
