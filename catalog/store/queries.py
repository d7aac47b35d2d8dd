"""Queries of all server processes. A row is a copy: its process has the query."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa

from catalog.store.database import Database
from catalog.store.schema import queries

_columns = (
    queries.c.id,
    queries.c.process,
    queries.c.caller,
    queries.c.warehouse,
    queries.c.document,
    queries.c.is_ended,
    queries.c.saved_ms,
)
READ_ONE = sa.select(*_columns).where(queries.c.id == sa.bindparam("id"))
READ_OTHERS = sa.select(*_columns).where(
    queries.c.process != sa.bindparam("process"), queries.c.saved_ms > sa.bindparam("after_ms")
)
READ_CANCELLED = sa.select(queries.c.id, queries.c.cancelled_by).where(
    queries.c.process == sa.bindparam("process"), queries.c.is_ended == 0, queries.c.cancelled_by != ""
)


@dataclass(frozen=True, slots=True)
class SavedQuery:
    id: str
    process: str
    caller: str
    warehouse: str
    document: str  # JSON, as the list of queries shows it
    is_ended: int
    saved_ms: int


class QueryStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    def save(self, rows: Sequence[SavedQuery], forgotten: Collection[str], before_ms: int) -> None:
        """Insert or update the rows. Delete the forgotten ones, and those that were saved before a time."""
        values = [asdict(row) | {"cancelled_by": ""} for row in rows]
        updated = [name for name in SavedQuery.__slots__ if name != "id"]

        def work(connection: sa.Connection) -> None:
            if values:
                insert = _insert(connection)(queries)
                changes = {name: insert.excluded[name] for name in updated}
                connection.execute(insert.on_conflict_do_update(index_elements=["id"], set_=changes), values)
            old = sa.or_(queries.c.id.in_(list(forgotten)), queries.c.saved_ms < before_ms)
            connection.execute(sa.delete(queries).where(old))

        self._database.write(work)

    def one(self, id_: str) -> SavedQuery | None:
        row = self._database.fetch_one(READ_ONE, {"id": id_})
        return None if row is None else SavedQuery(*row)

    def of_others(self, process: str, after_ms: int) -> list[SavedQuery]:
        """Return what other processes have saved after a time."""
        rows = self._database.fetch_all(READ_OTHERS, {"process": process, "after_ms": after_ms})
        return [SavedQuery(*row) for row in rows]

    def cancel(self, id_: str, caller: str) -> None:
        """Request that the process of the query ends it."""
        statement = sa.update(queries).where(queries.c.id == id_).values(cancelled_by=caller)
        self._database.write(lambda connection: connection.execute(statement))

    def cancelled(self, process: str) -> list[tuple[str, str]]:
        """Return queries of a process that it must end, each with the caller of that request."""
        return [(row[0], row[1]) for row in self._database.fetch_all(READ_CANCELLED, {"process": process})]


def _insert(connection: sa.Connection) -> Any:
    if connection.dialect.name == "sqlite":
        from sqlalchemy.dialects.sqlite import insert as sqlite_insert

        return sqlite_insert
    from sqlalchemy.dialects.postgresql import insert as postgresql_insert

    return postgresql_insert
