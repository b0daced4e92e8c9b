"""Remember which custom_ids a file has used, in flat memory whatever its size."""

import sqlite3
from hashlib import blake2b
from types import TracebackType
from typing import Self

_CACHE_KIBIBYTES = 32_768


class SeenIds:
    """A set of custom_ids with the place where each was first used, in a temporary database."""

    def __init__(self) -> None:
        # An empty name: SQLite keeps the pages in a bounded cache and spills to a file that it
        # removes by itself.
        self._connection = sqlite3.connect("", isolation_level=None)
        for statement in (
            f"PRAGMA cache_size = -{_CACHE_KIBIBYTES}",
            "PRAGMA journal_mode = OFF",
            "PRAGMA synchronous = OFF",
            "CREATE TABLE seen (digest BLOB PRIMARY KEY, source TEXT, line INTEGER) WITHOUT ROWID",
            "BEGIN",
        ):
            self._connection.execute(statement)

    def add(self, custom_id: str, *, source: str, line: int) -> tuple[str, int] | None:
        """Record a use of an id; return source and line of its first use if it had one."""
        # A digest, because ids may be megabytes long.
        digest = blake2b(custom_id.encode(), digest_size=16).digest()
        inserted = self._connection.execute(
            "INSERT INTO seen VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (digest, source, line)
        )
        if inserted.rowcount:
            return None
        first: tuple[str, int] = self._connection.execute(
            "SELECT source, line FROM seen WHERE digest = ?", (digest,)
        ).fetchone()
        return first

    def close(self) -> None:
        """Drop the database."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
