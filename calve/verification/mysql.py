"""A MySQL or MariaDB source: its columns, and checksums in one snapshot of its data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

from calve.verification.postgresql import Rows, SourceFailed

_COLUMNS = """
SELECT column_name, column_type FROM information_schema.columns
WHERE table_schema = COALESCE(%s, DATABASE()) AND table_name = %s ORDER BY ordinal_position
"""
_SESSION = (
    "SET SESSION time_zone = '+00:00'",
    # With NO_BACKSLASH_ESCAPES or ANSI_QUOTES the statements would mean something else.
    "SET SESSION sql_mode = ''",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
)
PORT = 3306


class Snapshot:
    """The data of the source at one moment.

    A producer's positions name the beginnings of events, and the end of the log is never one. So `position`
    is not known, and differences must last.
    """

    position: int | None = None
    position_text = ""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def rows(self, statement: str, *values: str | None) -> Rows:
        import pymysql

        try:
            with self._connection.cursor() as cursor:
                cursor.execute(statement, values or None)
                return [tuple(row) for row in cursor.fetchall()]
        except pymysql.Error as error:
            raise SourceFailed(f"the source refused a query: {error}") from error


class MySqlSource:
    """`address` is mysql://user:password@host:port/database, or mariadb://…"""

    def __init__(self, address: str) -> None:
        self._parts = urlsplit(address)

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Read-only, in UTC."""
        connection = self._connected()
        try:
            snapshot = Snapshot(connection)
            for statement in _SESSION:
                snapshot.rows(statement)
            yield snapshot
        finally:
            connection.close()

    def columns(self, table: str) -> dict[str, str]:
        """The type of each column, by name. `table` is `table` or `database.table`."""
        database, _, name = table.rpartition(".")
        with self.snapshot() as snapshot:
            found = snapshot.rows(_COLUMNS, database or None, name)
        if not found:
            raise SourceFailed(f"the source has no table {table}: name it with --source-table")
        return {_text(column): short_type(_text(type_)) for column, type_ in found}

    def _connected(self) -> Any:
        try:
            import pymysql
        except ImportError as error:
            raise SourceFailed("a MySQL source needs a driver: pip install 'calve[mysql]'") from error
        parts = self._parts
        try:
            return pymysql.connect(
                host=parts.hostname or "127.0.0.1",
                port=parts.port or PORT,
                user=unquote(parts.username or ""),
                password=unquote(parts.password or ""),
                database=unquote(parts.path.strip("/")) or None,
                charset="utf8mb4",
            )
        except pymysql.Error as error:
            raise SourceFailed(f"cannot connect to the source: {error}") from error


def short_type(column_type: str) -> str:
    """`decimal(12,2)` as `decimal`; `tinyint(1)`, which is how MySQL writes a boolean, stays."""
    text = column_type.lower()
    if text.startswith("tinyint(1)"):
        return "tinyint(1)"
    name = text.partition("(")[0].split(" ")[0]
    return f"{name} unsigned" if " unsigned" in text and name == "bigint" else name


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
