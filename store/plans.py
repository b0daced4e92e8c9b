"""Plans and the schedule of the latest one."""

import sqlite3
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from blend.core.planning.identical import Followers
from blend.core.schedule import Schedule
from blend.store import blending, followers
from blend.store.database import Database
from blend.store.records import Place, PlanRecord
from blend.store.rows import count_rows, read_columns
from blend.store.settings import json_text

ROWS_A_SLICE = 16_384
SUBTREES = "subtrees"
EXPECTED = "expected tokens"
"""Of each row, as in its line of the schedule: read at once, it is there in no time."""

_SCHEDULE = np.dtype(
    [
        ("order", np.int64),
        ("side", np.int8),
        ("expected_tokens", np.float64),
        ("uncached_tokens", np.int64),
        ("density", np.float64),
    ]
)


def save_plan(
    database: Database,
    record: PlanRecord,
    *,
    schedule: Schedule,
    new_followers: Followers,
    now: float,
) -> int:
    """Save a plan with its schedule and return its number; earlier plans lose their schedules.

    The schedule is of the rows that follow none; followers of a row with a result get it.
    """
    if record.policy != schedule.policy:
        raise ValueError(f"a {record.policy} plan with a {schedule.policy} schedule")
    with database.write(durable=True, size_bytes=64 * len(schedule)) as sql:
        texts = (record.settings, record.digests, record.predictions, record.outline)
        plan = sql.execute(
            "INSERT INTO plans (policy, settings, digests, predictions, outline, root_density,"
            " created) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (record.policy, *map(json_text, texts), float(schedule.root_density), now),
        ).lastrowid
        assert plan is not None
        sql.execute("DELETE FROM schedule")
        sql.execute("DELETE FROM blobs WHERE key IN (?, ?, ?)", (blending.KEY, SUBTREES, EXPECTED))
        sql.executemany(
            "INSERT INTO schedule (plan, position, row, side, expected_tokens, uncached_tokens,"
            " density, length_source) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            _lines(plan, schedule, record),
        )
        sql.executemany("INSERT INTO blobs VALUES (?, ?)", _packed(sql, record, schedule))
        followers.replace(sql, new_followers)
        sql.executemany(
            "INSERT INTO samples VALUES (?, ?, ?, ?)",
            zip(
                [plan] * len(record.sample_rows),
                record.sample_rows.tolist(),
                record.sample_tokens.tolist(),
                record.sample_finished.astype(int).tolist(),
                strict=True,
            ),
        )
    return plan


def plan(database: Database) -> PlanRecord | None:
    """Return the latest plan, without its schedule; None before the first."""
    with database.read() as sql:
        found = sql.execute(
            "SELECT plan, policy, settings, digests, predictions, outline, created"
            " FROM plans ORDER BY plan DESC LIMIT 1"
        ).fetchone()
        if found is None:
            return None
        number, policy, *texts, created = found
        sample = np.fromiter(
            sql.execute(
                "SELECT row, tokens, finished FROM samples WHERE plan = ? ORDER BY row", (number,)
            ),
            np.dtype([("row", np.int64), ("tokens", np.float64), ("finished", np.bool_)]),
        )
    settings, digests, predictions, outline = (orjson.loads(text) for text in texts)
    return PlanRecord(
        policy,
        settings,
        digests,
        predictions,
        outline,
        np.ascontiguousarray(sample["row"]),
        np.ascontiguousarray(sample["tokens"]),
        np.ascontiguousarray(sample["finished"]),
        id=number,
        created=created,
    )


def schedule(database: Database) -> Schedule | None:
    """Return the schedule of the latest plan; None before the first plan."""
    with database.read() as sql:
        latest = sql.execute(
            "SELECT plan, policy, root_density FROM plans ORDER BY plan DESC LIMIT 1"
        ).fetchone()
        if latest is None:
            return None
        number, policy, root_density = latest
        table = np.fromiter(
            sql.execute(
                "SELECT row, side, expected_tokens, uncached_tokens, density"
                " FROM schedule WHERE plan = ? ORDER BY position",
                (number,),
            ),
            _SCHEDULE,
        )
        packed = sql.execute("SELECT value FROM blobs WHERE key = ?", (blending.KEY,)).fetchone()
    known = blending.from_bytes(packed[0]) if packed else None
    columns: dict[str, Any] = {
        name: np.ascontiguousarray(table[name]) for name in _SCHEDULE.fields or ()
    }
    return Schedule(policy, root_density=root_density, blending=known, **columns)


def expected_tokens(database: Database) -> npt.NDArray[np.float64]:
    """Return the output tokens that the latest plan expects of a sequence of each row, (n,).

    NaN for a row that is in no plan.
    """
    with database.read() as sql:
        packed = sql.execute("SELECT value FROM blobs WHERE key = ?", (EXPECTED,)).fetchone()
        expected = np.full(count_rows(sql), np.nan)
        if packed:
            planned = np.frombuffer(zlib.decompress(packed[0]), "<f8")
            expected[: len(planned)] = planned
            return expected
        # A plan that is older than the packed column.
        rows, tokens = read_columns(
            sql,
            {"row": np.int64, "expected_tokens": np.float64},
            "FROM schedule WHERE plan = (SELECT max(plan) FROM plans)",
        )
    expected[rows] = tokens
    return expected


def subtrees(database: Database) -> npt.NDArray[np.int32] | None:
    """Return the index in the plan's outline of the deepest subtree of each row, (n,).

    None before the first plan, and where that plan is older than this account of it.
    """
    with database.read() as sql:
        packed = sql.execute("SELECT value FROM blobs WHERE key = ?", (SUBTREES,)).fetchone()
    return np.frombuffer(zlib.decompress(packed[0]), "<i4") if packed else None


def place(database: Database, row: int) -> Place | None:
    """Return where the latest plan puts *row*; None when it has no plan."""
    with database.read() as sql:
        found = sql.execute(
            "SELECT position, side, expected_tokens, uncached_tokens, density, length_source"
            " FROM schedule WHERE plan = (SELECT max(plan) FROM plans) AND row = ?",
            (int(row),),
        ).fetchone()
    return Place(*found) if found else None


def _packed(
    sql: sqlite3.Connection, record: PlanRecord, schedule: Schedule
) -> Iterator[tuple[str, bytes]]:
    """Yield what is read of a plan as a whole, as bytes under a key."""
    expected = np.full(count_rows(sql), np.nan)
    expected[schedule.order] = schedule.expected_tokens
    yield EXPECTED, zlib.compress(expected.astype("<f8").tobytes(), 1)
    if record.subtree is not None:
        yield SUBTREES, zlib.compress(record.subtree.astype("<i4").tobytes(), 1)
    if schedule.blending is not None:
        yield blending.KEY, blending.to_bytes(schedule.blending)


def _lines(plan: int, schedule: Schedule, record: PlanRecord) -> Iterator[tuple[Any, ...]]:
    # Slice by slice: whole columns as Python numbers would take ten times their memory.
    for lo in range(0, len(schedule), ROWS_A_SLICE):
        part = slice(lo, lo + ROWS_A_SLICE)
        rows = schedule.order[part]
        source = record.length_source
        yield from zip(
            [plan] * len(rows),
            range(lo, lo + len(rows)),
            rows.tolist(),
            schedule.side[part].tolist(),
            schedule.expected_tokens[part].tolist(),
            schedule.uncached_tokens[part].tolist(),
            schedule.density[part].tolist(),
            [None] * len(rows) if source is None else source[rows].tolist(),
            strict=True,
        )
