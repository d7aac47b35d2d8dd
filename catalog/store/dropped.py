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

from catalog.models import PURGE_WANTED, CatalogEntry
from catalog.store.database import Database
from catalog.store.entries import pack, unpack
from catalog.store.schema import dropped, wanted_purges
from catalog.store.writes import Also

READ_WANTED = (
    sa.select(dropped.c.warehouse, dropped.c.uuid, -dropped.c.expires_ms)
    .where(wanted_purges)
    .order_by(dropped.c.expires_ms.desc())
    .limit(sa.bindparam("limit", type_=sa.Integer))
)
READ_DOCUMENT = sa.select(dropped.c.name, dropped.c.metadata_location, dropped.c.document).where(
    dropped.c.warehouse == sa.bindparam("warehouse"),
    dropped.c.uuid == sa.bindparam("uuid"),
    dropped.c.expires_ms == sa.bindparam("expires_ms"),
)


@dataclass(frozen=True, slots=True)
class WantedPurge:
    warehouse: str
    uuid: str
    held_until_ms: int  # the lease of another process; it may have expired


@dataclass(frozen=True, slots=True)
class HeldPurge:
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

    def wanted(self, limit: int) -> list[WantedPurge]:
        """Purges in the queue, of all warehouses, those without a lease first."""
        return [WantedPurge(*row) for row in self._database.fetch_all(READ_WANTED, {"limit": limit})]

    def take(self, warehouse: str, uuid_: str, now_ms: int, until_ms: int) -> HeldPurge | None:
        """Lease a purge. None if another process has leased it, or if it is done."""
        if not self._set(warehouse, uuid_, -until_ms, dropped.c.expires_ms.between(-now_ms, PURGE_WANTED)):
            return None
        params = {"warehouse": warehouse, "uuid": uuid_, "expires_ms": -until_ms}
        row = self._database.fetch_one(READ_DOCUMENT, params)
        return HeldPurge(warehouse, uuid_, row[0], row[1], unpack(row[2]), until_ms) if row else None

    def hold(self, held: HeldPurge, until_ms: int) -> bool:
        """Change the end of the lease; 0 releases it. False if this process no longer has the lease."""
        return self._set(held.warehouse, held.uuid, -until_ms, dropped.c.expires_ms == -held.until_ms)

    def done(self, held: HeldPurge) -> None:
        statement = sa.delete(dropped).where(
            dropped.c.warehouse == held.warehouse, dropped.c.uuid == held.uuid, wanted_purges
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
    warehouse: str, entries: Sequence[CatalogEntry], principal: str, now_ms: int, also: Also | None
) -> Also:
    """A function that adds the tables to the queue in the SQL transaction of their drop, then runs `also`."""

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
                "expires_ms": PURGE_WANTED,
                "principal": principal,
            }
            connection.execute(sa.insert(dropped).values(**values))
        if also is not None:
            also(connection, number)

    return add
