"""A PostgreSQL source: its columns, and checksums in one snapshot of its data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from calve.errors import CalveError

_COLUMNS = """
SELECT a.attname, CASE WHEN b.typtype = 'e' THEN 'enum' ELSE b.typname END
FROM pg_attribute a
JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""
_KEY = """
SELECT a.attname FROM pg_index i
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
WHERE i.indrelid = to_regclass(%s) AND i.indisprimary
ORDER BY array_position(i.indkey::int2[], a.attnum)
"""
_POSITION = """
SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END) - '0/0'
"""
Rows = list[tuple[Any, ...]]


class SourceFailed(CalveError):
    """The source cannot be read; the message says what to do."""


class Snapshot:
    """The data of the source at one moment. `position` is the end of its log then."""

    def __init__(self, connection: Any, position: int) -> None:
        self._connection = connection
        self.position: int | None = position

    @property
    def position_text(self) -> str:
        """As PostgreSQL writes it."""
        position = self.position or 0
        return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"

    def rows(self, statement: str, *values: str) -> Rows:
        import psycopg

        try:
            return list(self._connection.execute(statement, values or None).fetchall())
        except psycopg.Error as error:
            raise SourceFailed(f"the source refused a query: {str(error).splitlines()[0]}") from error


class PostgresSource:
    """`address` is a libpq address: postgresql://user@host/database."""

    def __init__(self, address: str) -> None:
        self._address = address

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Read-only. The end of the log is read just after the snapshot is taken: a mirror that has passed it
        may have more than the snapshot, and never less.
        """
        import psycopg

        try:
            connection = psycopg.connect(self._address, autocommit=True)
        except psycopg.Error as error:
            raise SourceFailed(f"cannot connect to the source: {str(error).splitlines()[0]}") from error
        with connection:
            try:
                connection.execute("SET default_transaction_read_only = on")
                connection.execute("SET TimeZone = 'UTC'")
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
                found = connection.execute(_POSITION).fetchone()
            except psycopg.Error as error:
                raise SourceFailed(f"the source refused a query: {str(error).splitlines()[0]}") from error
            yield Snapshot(connection, int(found[0]) if found is not None else 0)

    def columns(self, table: str) -> dict[str, str]:
        """The type of each column, by name. `table` may have a schema, and quotes where SQL needs them."""
        with self.snapshot() as snapshot:
            found = snapshot.rows(_COLUMNS, table)
        if not found:
            raise SourceFailed(f"the source has no table {table}: name it with --source-table")
        return {str(name): str(type_) for name, type_ in found}

    def key(self, table: str) -> tuple[str, ...]:
        """The primary key; () if there is none."""
        with self.snapshot() as snapshot:
            return tuple(str(row[0]) for row in snapshot.rows(_KEY, table))
