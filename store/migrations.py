"""How a job file of an older format becomes one of the present format.

The format of a file is its ``user_version``: the number of migrations it has been through. Each
migration runs in one transaction together with its number, so that a file is always of a whole
format, whenever the process dies. A migration, once released, is never edited: append another.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

APPLICATION_ID = int.from_bytes(b"blnd", "big")

Migration = Callable[[sqlite3.Connection], None]


def migrate(connection: sqlite3.Connection, migrations: Sequence[Migration]) -> None:
    """Run those *migrations* that the file has not been through, one transaction each."""
    while (version := format_version(connection)) < len(migrations):
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have migrated while this one waited for the lock.
            if format_version(connection) == version:
                migrations[version](connection)
                connection.execute(f"PRAGMA user_version = {version + 1}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def format_version(connection: sqlite3.Connection) -> int:
    """Return the number of migrations that the file has been through; 0 for an empty file."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def application_id(connection: sqlite3.Connection) -> int:
    """Return the mark that says which program a SQLite file belongs to; 0 for none."""
    return int(connection.execute("PRAGMA application_id").fetchone()[0])


def _create_tables(connection: sqlite3.Connection) -> None:
    _script("schema.sql")(connection)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def _statements(script: str) -> Iterator[str]:
    # executescript() would commit the transaction that holds the statements together.
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _add_known_tokens(connection: sqlite3.Connection) -> None:
    # Output tokens of each sequence where the request itself says how many; else NULL.
    connection.execute(
        "ALTER TABLE requests ADD COLUMN known_tokens INTEGER CHECK (known_tokens > 0)"
    )


def _script(name: str) -> Migration:
    def run(connection: sqlite3.Connection) -> None:
        for statement in _statements(Path(__file__).with_name(name).read_text("utf-8")):
            connection.execute(statement)

    return run


def _add_supervision(connection: sqlite3.Connection) -> None:
    # `deaths`: how often an engine died with the row inside; goes with the row's result.
    connection.execute("ALTER TABLE attempts ADD COLUMN deaths INTEGER NOT NULL DEFAULT 0")
    # `engine_pid` leads the engine's process group; `cause`: why the run ended, where it says more
    # than the outcome.
    connection.execute("ALTER TABLE runs ADD COLUMN engine_pid INTEGER")
    connection.execute("ALTER TABLE runs ADD COLUMN cause TEXT")


MIGRATIONS: tuple[Migration, ...] = (
    _create_tables,
    _add_known_tokens,
    _script("retries.sql"),
    _add_supervision,
    _script("followers.sql"),
)
