"""The counter of each warehouse, which is also the lock of its appends, and how much is pending."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from catalog.store.database import Database
from ingest.journal.schema import heads

_of_warehouse = heads.c.warehouse == sa.bindparam("w")
_LOCK = sa.select(heads.c.id, heads.c.events, heads.c.bytes).where(_of_warehouse).with_for_update()
_CREATE = sa.text(
    "INSERT INTO journal_heads (warehouse, id, events, bytes) VALUES (:w, 0, 0, 0) ON CONFLICT DO NOTHING"
)
_ADVANCE = (
    sa.update(heads)
    .where(_of_warehouse)
    .values(
        id=heads.c.id + sa.bindparam("ids"),
        events=heads.c.events + sa.bindparam("more_events"),
        bytes=heads.c.bytes + sa.bindparam("more_bytes"),
    )
    .returning(heads.c.id, heads.c.events, heads.c.bytes)
)
_SUM = sa.select(
    sa.func.coalesce(sa.func.sum(heads.c.events), 0), sa.func.coalesce(sa.func.sum(heads.c.bytes), 0)
)
_HELD = sa.select(heads.c.warehouse).where(sa.or_(heads.c.events > 0, heads.c.bytes > 0))
_ID = sa.select(heads.c.id).where(_of_warehouse)


@dataclass(frozen=True, slots=True)
class Head:
    """The newest id of a warehouse, and what of it is pending."""

    id: int
    events: int
    stored_bytes: int


def lock(connection: sa.Connection, warehouse: str) -> Head:
    """Held to the end of the transaction. In SQLite every write transaction is alone from its beginning."""
    params = {"w": warehouse}
    row = connection.execute(_LOCK, params).fetchone()
    if row is None:
        connection.execute(_CREATE, params)
        row = connection.execute(_LOCK, params).one()
    return Head(row[0], row[1], row[2])


def advance(connection: sa.Connection, warehouse: str, ids: int, events: int, stored_bytes: int) -> Head:
    """Under the lock: count ids, events and bytes up or down."""
    params = {"w": warehouse, "ids": ids, "more_events": events, "more_bytes": stored_bytes}
    row = connection.execute(_ADVANCE, params).one()
    return Head(row[0], row[1], row[2])


def pending_inside(connection: sa.Connection) -> tuple[int, int]:
    """Events and bytes that are pending in all warehouses."""
    row = connection.execute(_SUM).one()
    return int(row[0]), int(row[1])


def pending(database: Database) -> tuple[int, int]:
    """The same outside of a transaction."""
    row = database.fetch_all(_SUM)[0]
    return int(row[0]), int(row[1])


def newest(database: Database, warehouse: str) -> int:
    row = database.fetch_one(_ID, {"w": warehouse})
    return row[0] if row is not None else 0


def warehouses(database: Database) -> list[str]:
    """All that hold something."""
    return [row[0] for row in database.fetch_all(_HELD, {})]
