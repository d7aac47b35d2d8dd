"""Migrations of the database schema. A database that is newer than the program is refused.

Alembic runs the steps in versions/. Its import takes half a second, so the version is read with plain SQL and
Alembic is imported only if a step is missing.

To add a step, change catalog/store/schema.py, run `alembic -x database=sqlite:////tmp/catalog.db revision
--autogenerate --rev-id 0008 -m "what it does"`, review the generated file, and set NEWEST.
"""

from __future__ import annotations

import logging

import sqlalchemy as sa

from catalog.store.database import Database, lift_time_limits
from catalog.store.schema import schema_version

NEWEST = 7

log = logging.getLogger(__name__)
_alembic_version = sa.table("alembic_version", sa.column("version_num"))


class SchemaMismatch(Exception):
    """The schema version of the database is not the one that this program needs."""


def version(database: Database) -> int:
    """The schema version of the database; 0 if it is empty."""
    with database.engine.connect() as connection:
        return _version(connection)


def migrate(database: Database) -> tuple[int, int]:
    """Migrate the database to this program's version. Returns (before, after). Processes may run it
    concurrently.

    All steps run in one transaction, so that a crash leaves either the old version or the new one.
    """

    def work(connection: sa.Connection) -> tuple[int, int]:
        if connection.dialect.name == "postgresql":
            lift_time_limits(connection)
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(4205337)"))
        before = _version(connection)
        _refuse_newer(before)
        if before != NEWEST:
            logging.getLogger("alembic").setLevel(logging.WARNING)  # its import logs seven lines
            from catalog.store.migrations.upgrade import upgrade

            upgrade(connection, before)
            log.info("migrated the database", extra={"before": before, "after": NEWEST})
        return before, NEWEST

    found = version(database)
    _refuse_newer(found)
    return (found, found) if found == NEWEST else database.write(work)


def require_current(database: Database) -> None:
    """Raise SchemaMismatch unless the database has exactly this program's version."""
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
    tables = sa.inspect(connection)
    if tables.has_table(_alembic_version.name):
        number = connection.execute(sa.select(_alembic_version.c.version_num)).scalar()
        return int(number or 0)
    if tables.has_table(schema_version.name):  # versions 1 and 2 had no Alembic
        return connection.execute(sa.select(sa.func.max(schema_version.c.version))).scalar() or 0
    return 0
