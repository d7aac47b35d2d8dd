"""Alembic's environment: the database, and the tables that it is compared with.

The program passes a connection. On the command line, `-x database=URL` selects the database.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context

from catalog.store.database import Database
from catalog.store.schema import metadata


def _include(name: str | None, kind: str, _parents: object) -> bool:
    """Skip other tables: ingest may use the same database and has its own versions."""
    return kind != "table" or name in metadata.tables


def _run(connection: sa.Connection) -> None:
    context.configure(connection=connection, target_metadata=metadata, include_name=_include)
    with context.begin_transaction():
        context.run_migrations()


_given = context.config.attributes.get("connection")
if _given is not None:
    _run(_given)
else:
    _database = Database(context.get_x_argument(as_dictionary=True)["database"])
    _database.write(_run)
    _database.close()
