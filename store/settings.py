"""What a job knows about itself: JSON values under a key, and bytes under a key."""

from collections.abc import Mapping
from typing import Any

import orjson

from blend.store.database import Database


def meta(database: Database, key: str) -> Any | None:
    """Return a JSON value set before; None when it was not."""
    with database.read() as sql:
        found = sql.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return orjson.loads(found[0]) if found else None


def set_meta(database: Database, values: Mapping[str, Any]) -> None:
    """Set JSON values, all or none."""
    with database.write(durable=True) as sql:
        sql.executemany(
            "INSERT OR REPLACE INTO meta VALUES (?, ?)",
            ((key, json_text(value)) for key, value in values.items()),
        )


def blob(database: Database, key: str) -> bytes | None:
    """Return bytes set before; None when they were not."""
    with database.read() as sql:
        found = sql.execute("SELECT value FROM blobs WHERE key = ?", (key,)).fetchone()
    return found[0] if found else None


def set_blob(database: Database, key: str, value: bytes) -> None:
    """Set the bytes under *key*."""
    with database.write(durable=False, size_bytes=len(value)) as sql:
        sql.execute("INSERT OR REPLACE INTO blobs VALUES (?, ?)", (key, value))


def json_text(value: Any) -> str:
    """Return *value* as JSON; numpy numbers and arrays become plain ones."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS).decode()
