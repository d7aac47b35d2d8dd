"""The results of verification in SQL: one row for each table."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
import sqlalchemy as sa

from catalog.store.database import Database
from ingest.change import TableName
from ingest.store.schema import landing_verifications as verifications
from ingest.store.tables import key_of, name_of

_of_warehouse = verifications.c.warehouse == sa.bindparam("w")
_of_table = (_of_warehouse, verifications.c.table_key == sa.bindparam("t"))
_columns = [column for column in verifications.c if column.name != "warehouse"]
_ALL = sa.select(*_columns).where(_of_warehouse)
_ONE = sa.select(*_columns).where(*_of_table)
_WANTED = sa.select(*_columns).where(
    _of_warehouse, sa.or_(verifications.c.requested_ms.is_not(None), verifications.c.reference.is_not(None))
)
_ENSURE = sa.text(
    "INSERT INTO landing_verifications (warehouse, table_key) VALUES (:w, :t) ON CONFLICT DO NOTHING"
)
_UPDATE = sa.update(verifications).where(*_of_table)
_CLEAR_REQUEST = sa.update(verifications).where(
    *_of_table, verifications.c.requested_ms <= sa.bindparam("started", type_=sa.BigInteger)
)


@dataclass(frozen=True, slots=True)
class Verification:
    """`found` is the newest check, `verified` the newest that found no difference, `reference` the checksums
    that a producer has posted.
    """

    table: TableName
    requested_ms: int | None = None
    job_id: str | None = None
    started_ms: int = 0
    checked_ms: int = 0
    number: int = 0
    found: Mapping[str, Any] = field(default_factory=dict)
    verified: Mapping[str, Any] | None = None
    reference: Mapping[str, Any] | None = None


class Verifications:
    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self, warehouse: str) -> dict[TableName, Verification]:
        rows = (_verification(row) for row in self._database.fetch_all(_ALL, {"w": warehouse}))
        return {row.table: row for row in rows}

    def one(self, warehouse: str, table: TableName) -> Verification:
        row = self._database.fetch_one(_ONE, {"w": warehouse, "t": key_of(table)})
        return _verification(row) if row is not None else Verification(table)

    def wanted(self, warehouse: str) -> list[Verification]:
        """Return verifications that were requested, or that have checksums of the source."""
        return [_verification(row) for row in self._database.fetch_all(_WANTED, {"w": warehouse})]

    def request(self, warehouse: str, table: TableName) -> None:
        self._set(warehouse, table, requested_ms=now_ms())

    def post(self, warehouse: str, table: TableName, reference: Mapping[str, Any]) -> None:
        """Set checksums of the source. They replace those of an earlier position."""
        self._set(warehouse, table, reference=_text(reference))

    def started(self, warehouse: str, table: TableName, job_id: str) -> None:
        self._set(warehouse, table, job_id=job_id, started_ms=now_ms())

    def checked(self, connection: sa.Connection, warehouse: str, record: Verification) -> None:
        """Store a check, inside the transaction that ends its job. A request that arrived later stays."""
        where = {"w": warehouse, "t": key_of(record.table)}
        connection.execute(_ENSURE, where)
        values = {
            "checked_ms": record.checked_ms,
            "number": record.number,
            "found": _text(record.found),
            "verified": _text(record.verified) if record.verified is not None else None,
            "reference": _text(record.reference) if record.reference is not None else None,
        }
        connection.execute(_UPDATE.values(**values), where)
        connection.execute(_CLEAR_REQUEST.values(requested_ms=None), where | {"started": record.started_ms})

    def _set(self, warehouse: str, table: TableName, **values: Any) -> None:
        def work(connection: sa.Connection) -> None:
            where = {"w": warehouse, "t": key_of(table)}
            connection.execute(_ENSURE, where)
            connection.execute(_UPDATE.values(**values), where)

        self._database.write(work)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _text(value: Mapping[str, Any]) -> str:
    return orjson.dumps(value).decode()


def _verification(row: Any) -> Verification:
    key, requested_ms, job_id, started_ms, checked_ms, number, found, verified, reference = row
    return Verification(
        name_of(key),
        requested_ms,
        job_id,
        started_ms,
        checked_ms,
        number,
        orjson.loads(found),
        orjson.loads(verified) if verified else None,
        orjson.loads(reference) if reference else None,
    )
