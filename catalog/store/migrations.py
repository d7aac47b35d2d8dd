"""Versions of the database schema, and the refusal of a database that is newer than the program.

A step runs in one transaction with the version it reaches, so that a crash leaves the old version or the new
one.
"""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa

from catalog.store import schema
from catalog.store.database import Database, lift_time_limits


class SchemaMismatch(Exception):
    """The database is not of the version that this program needs; the message says what to do."""


def _first(connection: sa.Connection) -> None:
    schema.metadata.create_all(connection)


def _second(connection: sa.Connection) -> None:
    """Lists of transactions, and of what is to be purged, without a look at every row."""
    new = {"transactions_by_time", "dropped_to_purge"}
    for index in (*schema.transactions.indexes, *schema.dropped.indexes):
        if index.name in new:
            index.create(connection, checkfirst=True)


STEPS: tuple[Callable[[sa.Connection], None], ...] = (_first, _second)
NEWEST = len(STEPS)


def version(database: Database) -> int:
    """The version the database is at; 0 where it is empty."""
    with database.engine.connect() as connection:
        return _version(connection)


def migrate(database: Database) -> tuple[int, int]:
    """Bring the database to this program's version. Answers (before, after). Safe to run by many at once."""

    def work(connection: sa.Connection) -> tuple[int, int]:
        if connection.dialect.name == "postgresql":
            lift_time_limits(connection)
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(4205337)"))
        before = _version(connection)
        _refuse_newer(before)
        for step in STEPS[before:]:
            step(connection)
        if before != NEWEST:
            connection.execute(sa.delete(schema.schema_version))
            connection.execute(sa.insert(schema.schema_version).values(version=NEWEST))
        return before, NEWEST

    return database.write(work)


def require_current(database: Database) -> None:
    """Raise SchemaMismatch unless the database is exactly of this program's version."""
    found = version(database)
    _refuse_newer(found)
    if found < NEWEST:
        raise SchemaMismatch(
            f"the database is at schema version {found}, this program needs {NEWEST}: run `calve migrate`"
        )


def _refuse_newer(found: int) -> None:
    if found > NEWEST:
        raise SchemaMismatch(
            f"the database is at schema version {found}, newer than this program knows ({NEWEST}): "
            "upgrade the program"
        )


def _version(connection: sa.Connection) -> int:
    if not sa.inspect(connection).has_table(schema.schema_version.name):
        return 0
    return connection.execute(sa.select(sa.func.max(schema.schema_version.c.version))).scalar() or 0
