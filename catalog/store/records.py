"""Small records beside the entries: idempotency keys, dropped tables, protection, reports, locations."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
import zstandard

from catalog.models import CatalogEntry, Dropped, IdempotencyRecord, Kind
from catalog.store.database import Database, unpack
from catalog.store.entries import save_record
from catalog.store.schema import dropped, entries, idempotency, reports
from catalog.store.structure import OVERLAPPING, overlapping_params

READ_RECORD = sa.select(idempotency.c.body_hash, idempotency.c.status, idempotency.c.answer).where(
    idempotency.c.principal == sa.bindparam("principal"),
    idempotency.c.operation == sa.bindparam("operation"),
    idempotency.c.target == sa.bindparam("target"),
    idempotency.c.key == sa.bindparam("key"),
    idempotency.c.expires_ms > sa.bindparam("now_ms"),
)
_dropped_columns = (
    dropped.c.id,
    dropped.c.kind,
    dropped.c.namespace,
    dropped.c.name,
    dropped.c.uuid,
    dropped.c.metadata_location,
    dropped.c.document,
    dropped.c.dropped_ms,
    dropped.c.expires_ms,
    dropped.c.principal,
)
READ_DROPPED_BEFORE = (
    sa.select(*(sa.null() if column is dropped.c.document else column for column in _dropped_columns))
    .where(
        dropped.c.warehouse == sa.bindparam("warehouse"),
        dropped.c.expires_ms > sa.bindparam("now_ms"),
        sa.tuple_(dropped.c.dropped_ms, dropped.c.id)
        < sa.tuple_(sa.bindparam("dropped_ms"), sa.bindparam("id")),
    )
    .order_by(dropped.c.dropped_ms.desc(), dropped.c.id.desc())
    .limit(sa.bindparam("limit", type_=sa.Integer))
)
READ_ONE_DROPPED = sa.select(*_dropped_columns).where(
    dropped.c.warehouse == sa.bindparam("warehouse"),
    dropped.c.id == sa.bindparam("id"),
    dropped.c.expires_ms > sa.bindparam("now_ms"),
)
READ_REPORTS = (
    sa.select(reports.c.id, reports.c.received_ms, reports.c.principal, reports.c.uuid, reports.c.report)
    .where(
        reports.c.warehouse == sa.bindparam("warehouse"),
        reports.c.namespace == sa.bindparam("namespace"),
        reports.c.name == sa.bindparam("name"),
        reports.c.id < sa.bindparam("before"),
    )
    .order_by(reports.c.id.desc())
    .limit(sa.bindparam("limit", type_=sa.Integer))
)
READ_ALL_ENTRIES = (
    sa.select(
        entries.c.namespace,
        entries.c.name,
        entries.c.kind,
        entries.c.uuid,
        entries.c.version,
        entries.c.metadata_location,
        entries.c.document,
        entries.c.protected,
    )
    .where(
        entries.c.warehouse == sa.bindparam("warehouse"),
        sa.or_(
            entries.c.namespace > sa.bindparam("namespace"),
            sa.and_(entries.c.namespace == sa.bindparam("namespace"), entries.c.name > sa.bindparam("name")),
        ),
    )
    .order_by(entries.c.namespace, entries.c.name)
    .limit(sa.bindparam("limit", type_=sa.Integer))
)


class RecordStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    # -- idempotency

    def record(self, record: IdempotencyRecord, now_ms: int) -> IdempotencyRecord | None:
        params = {
            "principal": record.principal,
            "operation": record.operation,
            "target": record.target,
            "key": record.key,
            "now_ms": now_ms,
        }
        row = self._database.fetch_one(READ_RECORD, params)
        if row is None:
            return None
        return IdempotencyRecord(
            record.principal,
            record.operation,
            record.target,
            record.key,
            row[0],
            record.expires_ms,
            row[1],
            row[2],
        )

    def save(self, record: IdempotencyRecord, now_ms: int) -> None:
        """Save the result of a request that changed nothing. Raises IdempotencyKeyConflict."""
        self._database.write(lambda connection: save_record(connection, record, now_ms))

    # -- dropped and protected

    def dropped_before(
        self, warehouse: str, now_ms: int, dropped_ms: int, id_: str, limit: int
    ) -> list[Dropped]:
        """Tables and views dropped before the given one (by time, then id), newest first, without
        documents.
        """
        params = {
            "warehouse": warehouse,
            "now_ms": now_ms,
            "dropped_ms": dropped_ms,
            "id": id_,
            "limit": limit,
        }
        return [_dropped(row) for row in self._database.fetch_all(READ_DROPPED_BEFORE, params)]

    def one_dropped(self, warehouse: str, dropped_id: str, now_ms: int) -> Dropped | None:
        row = self._database.fetch_one(
            READ_ONE_DROPPED, {"warehouse": warehouse, "id": dropped_id, "now_ms": now_ms}
        )
        return _dropped(row) if row else None

    def protect(self, warehouse: str, namespace: str, name: str, protected: bool) -> bool:
        """Set the flag. False if there is no such entry."""
        statement = (
            sa.update(entries)
            .where(entries.c.warehouse == warehouse, entries.c.namespace == namespace, entries.c.name == name)
            .values(protected=int(protected))
        )
        return self._database.write(lambda connection: connection.execute(statement).rowcount) == 1

    # -- locations

    def overlapping(self, warehouse: str, location: str) -> list[tuple[str, str]]:
        """(location, uuid) of the reserved locations that overlap a canonical location."""
        rows = self._database.fetch_all(OVERLAPPING, overlapping_params(warehouse, location))
        return [(row[0], row[1]) for row in rows]

    # -- reports

    def add_report(self, values: dict[str, Any], keep_after_ms: int, rows_max: int) -> None:
        """Add a report of a table. Reports that are too old or too many are deleted."""
        same_table = [reports.c[name] == values[name] for name in ("warehouse", "namespace", "name")]
        too_many = sa.select(reports.c.id).where(*same_table).order_by(reports.c.id.desc())
        newest_too_many = too_many.offset(rows_max).limit(1).scalar_subquery()

        def work(connection: sa.Connection) -> None:
            connection.execute(sa.insert(reports).values(**values))
            connection.execute(sa.delete(reports).where(reports.c.received_ms < keep_after_ms))
            connection.execute(sa.delete(reports).where(*same_table, reports.c.id <= newest_too_many))

        self._database.write(work)

    def reports(self, warehouse: str, namespace: str, name: str, before: int, limit: int) -> list[Any]:
        params = {
            "warehouse": warehouse,
            "namespace": namespace,
            "name": name,
            "before": before,
            "limit": limit,
        }
        return list(self._database.fetch_all(READ_REPORTS, params))

    # -- everything, for `calve check`

    def entries_after(self, warehouse: str, namespace: str, name: str, limit: int) -> list[CatalogEntry]:
        params = {"warehouse": warehouse, "namespace": namespace, "name": name, "limit": limit}
        return [
            CatalogEntry(row[2], row[0], row[1], row[3], row[4], row[5], _unpacked(row[6]), bool(row[7]))
            for row in self._database.fetch_all(READ_ALL_ENTRIES, params)
        ]


def _dropped(row: Any) -> Dropped:
    kind: Kind = row[1]
    document = unpack(row[6]) if row[6] is not None else None
    entry = CatalogEntry(kind, row[2], row[3], row[4], 0, row[5], document)
    return Dropped(row[0], entry, row[7], row[8], row[9])


def _unpacked(document: bytes) -> bytes:
    """Empty if the document cannot be decompressed, so that `calve check` can report a damaged row and
    continue.
    """
    try:
        return unpack(document)
    except zstandard.ZstdError:
        return b""
