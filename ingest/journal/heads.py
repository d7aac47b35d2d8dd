"""The counter of each warehouse, which is also the lock of its appends, and how much is pending."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from catalog.errors import Unavailable
from catalog.store.database import Database, Prepared, Read
from ingest.journal.schema import heads

_of_warehouse = heads.c.warehouse == sa.bindparam("w")
_LOCK = Prepared(sa.select(heads.c.id, heads.c.events, heads.c.bytes).where(_of_warehouse).with_for_update())
_CREATE = Prepared(
    sa.text(
        "INSERT INTO journal_heads (warehouse, id, events, bytes) VALUES (:w, 0, 0, 0) ON CONFLICT DO NOTHING"
    )
)
_ADVANCE = Prepared(
    sa.update(heads)
    .where(_of_warehouse)
    .values(
        id=heads.c.id + sa.bindparam("ids"),
        events=heads.c.events + sa.bindparam("more_events"),
        bytes=heads.c.bytes + sa.bindparam("more_bytes"),
    )
    .returning(heads.c.id, heads.c.events, heads.c.bytes)
)
_SUM = Prepared(
    sa.select(
        sa.func.coalesce(sa.func.sum(heads.c.events), 0), sa.func.coalesce(sa.func.sum(heads.c.bytes), 0)
    )
)
_ID = Read(sa.select(heads.c.id).where(_of_warehouse))


@dataclass(frozen=True, slots=True)
class Head:
    """The newest id of a warehouse, and what of it is pending."""

    id: int
    events: int
    stored_bytes: int


def lock(connection: sa.Connection, warehouse: str) -> Head:
    """Held to the end of the transaction. In SQLite every write transaction is alone from its beginning."""
    params = {"w": warehouse}
    row = _LOCK.run(connection, params).fetchone()
    if row is None:
        _CREATE.run(connection, params)
        row = _LOCK.run(connection, params).fetchone()
    return Head(row[0], row[1], row[2])


def advance(connection: sa.Connection, warehouse: str, ids: int, events: int, stored_bytes: int) -> Head:
    """Under the lock: count ids, events and bytes up or down."""
    params = {"w": warehouse, "ids": ids, "more_events": events, "more_bytes": stored_bytes}
    row = _ADVANCE.run(connection, params).fetchone()
    return Head(row[0], row[1], row[2])


def pending_inside(connection: sa.Connection) -> tuple[int, int]:
    """Events and bytes that are pending in all warehouses."""
    row = _SUM.run(connection, {}).fetchone()
    return int(row[0]), int(row[1])


def pending(database: Database) -> tuple[int, int]:
    """The same now, for any thread: it takes a connection of the pool only for this moment."""
    driver: Any = database.engine.dialect.dbapi
    try:
        with database.engine.connect() as connection:
            return pending_inside(connection)
    except (sa.exc.SQLAlchemyError, driver.Error) as error:
        raise Unavailable("the journal's database does not answer; try again") from error


def newest(database: Database, warehouse: str) -> int:
    row = database.row(_ID, {"w": warehouse})
    return row[0] if row is not None else 0
