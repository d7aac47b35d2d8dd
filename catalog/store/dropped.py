"""The purge queue: tables that were dropped with purge and whose files are not deleted yet.

They are rows of `dropped` that cannot be restored. `expires_ms` is 0 if no process has leased the row, else
the negated end of the lease. When a process ends without releasing its lease, another one continues after
that time.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from catalog.models import PURGE_REQUESTED, CatalogEntry
from catalog.store.database import Database, pack, unpack
from catalog.store.entries import InTransaction
from catalog.store.schema import dropped, queued_purges

READ_QUEUED = (
    sa.select(dropped.c.warehouse, dropped.c.uuid, -dropped.c.expires_ms)
    .where(queued_purges)
    .order_by(dropped.c.expires_ms.desc())
    .limit(sa.bindparam("limit", type_=sa.Integer))
)
READ_DOCUMENT = sa.select(dropped.c.name, dropped.c.metadata_location, dropped.c.document).where(
    dropped.c.warehouse == sa.bindparam("warehouse"),
    dropped.c.uuid == sa.bindparam("uuid"),
    dropped.c.expires_ms == sa.bindparam("expires_ms"),
)


@dataclass(frozen=True, slots=True)
class QueuedPurge:
    warehouse: str
    uuid: str
    leased_until_ms: int  # the lease of another process; it may have expired


@dataclass(frozen=True, slots=True)
class LeasedPurge:
    """A purge that this process has leased until `until_ms`."""

    warehouse: str
    uuid: str
    name: str
    metadata_location: str
    document: bytes
    until_ms: int


class PurgeStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    def queued(self, limit: int) -> list[QueuedPurge]:
        """Purges in the queue, of all warehouses, those without a lease first."""
        return [QueuedPurge(*row) for row in self._database.fetch_all(READ_QUEUED, {"limit": limit})]

    def lease(self, warehouse: str, uuid_: str, now_ms: int, until_ms: int) -> LeasedPurge | None:
        """Lease a purge. None if another process has leased it, or if it is done."""
        if not self._set(warehouse, uuid_, -until_ms, dropped.c.expires_ms.between(-now_ms, PURGE_REQUESTED)):
            return None
        params = {"warehouse": warehouse, "uuid": uuid_, "expires_ms": -until_ms}
        row = self._database.fetch_one(READ_DOCUMENT, params)
        return LeasedPurge(warehouse, uuid_, row[0], row[1], unpack(row[2]), until_ms) if row else None

    def renew(self, leased: LeasedPurge, until_ms: int) -> bool:
        """Change the end of the lease; 0 releases it. False if this process no longer has the lease."""
        return self._set(leased.warehouse, leased.uuid, -until_ms, dropped.c.expires_ms == -leased.until_ms)

    def done(self, leased: LeasedPurge) -> None:
        statement = sa.delete(dropped).where(
            dropped.c.warehouse == leased.warehouse, dropped.c.uuid == leased.uuid, queued_purges
        )
        self._database.write(lambda connection: connection.execute(statement))

    def _set(self, warehouse: str, uuid_: str, expires_ms: int, where: Any) -> bool:
        statement = (
            sa.update(dropped)
            .where(dropped.c.warehouse == warehouse, dropped.c.uuid == uuid_, where)
            .values(expires_ms=expires_ms)
        )
        return self._database.write(lambda connection: connection.execute(statement).rowcount) == 1


def enqueue_purge(
    warehouse: str,
    entries: Sequence[CatalogEntry],
    principal: str,
    now_ms: int,
    in_transaction: InTransaction | None,
) -> InTransaction:
    """A function that queues the tables in the SQL transaction of their drop, then runs `in_transaction`."""

    def add(connection: sa.Connection, number: int) -> None:
        for entry in entries:
            values = {
                "warehouse": warehouse,
                "id": str(uuid.uuid4()),
                "kind": entry.kind,
                "namespace": entry.namespace,
                "name": entry.name,
                "uuid": entry.uuid,
                "metadata_location": entry.metadata_location,
                "document": pack(entry.document or b"{}"),
                "dropped_ms": now_ms,
                "expires_ms": PURGE_REQUESTED,
                "principal": principal,
            }
            connection.execute(sa.insert(dropped).values(**values))
        if in_transaction is not None:
            in_transaction(connection, number)

    return add
