"""Entries: reads of the newest state, and all changes of it.

A list of changes is compared and written in one transaction, under one number. Locks are always taken in the
same order, so that writes do not deadlock: first the row of the warehouse (only if names or locations are
added or removed), then the rows of the names in sorted order, last the counter. The counter is locked only
from its update to the end of COMMIT, so that writes to different tables run in parallel.
"""

from __future__ import annotations

import time
import uuid
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import sqlalchemy as sa

from catalog import faults
from catalog.errors import NoSuchWarehouse
from catalog.models import (
    CatalogEntry,
    ConcurrentUpdate,
    EntryChange,
    IdempotencyKeyConflict,
    IdempotencyRecord,
    Kind,
    Warehouse,
    WriteRequest,
)
from catalog.store.database import Database, pack_entry, unpack
from catalog.store.schema import dropped, entries, heads, history, idempotency, warehouses
from catalog.store.structure import (
    EXISTS,
    KEEP_DROPPED,
    check_structure,
    is_base,
    lock_names,
    release_locations,
)

_by_name = sa.and_(
    entries.c.warehouse == sa.bindparam("warehouse"),
    entries.c.namespace == sa.bindparam("namespace"),
    entries.c.name == sa.bindparam("name"),
)
_head_columns = (
    entries.c.kind,
    entries.c.uuid,
    entries.c.version,
    entries.c.metadata_location,
    entries.c.protected,
)
READ_HEAD = sa.select(*_head_columns).where(_by_name)
# The warehouse comes with the entry, because most operations need both.
READ_ENTRY = (
    sa.select(warehouses.c.root, warehouses.c.created_ms, *_head_columns)
    .outerjoin_from(
        warehouses,
        entries,
        sa.and_(
            entries.c.warehouse == warehouses.c.warehouse,
            entries.c.namespace == sa.bindparam("namespace"),
            entries.c.name == sa.bindparam("name"),
        ),
    )
    .where(warehouses.c.warehouse == sa.bindparam("warehouse"))
)
READ_WHOLE = READ_ENTRY.add_columns(entries.c.document)
READ_LATER = (
    sa.select(entries.c.document)
    .where(entries.c.warehouse == sa.bindparam("warehouse"), entries.c.uuid == sa.bindparam("uuid"))
    .union_all(
        sa.select(dropped.c.document).where(
            dropped.c.warehouse == sa.bindparam("warehouse"), dropped.c.uuid == sa.bindparam("uuid")
        )
    )
)
READ_PROTECTED = sa.select(entries.c.protected).where(
    entries.c.warehouse == sa.bindparam("warehouse"), entries.c.uuid == sa.bindparam("uuid")
)
READ_NAMES = (
    sa.select(entries.c.name)
    .where(
        entries.c.warehouse == sa.bindparam("warehouse"),
        entries.c.namespace == sa.bindparam("namespace"),
        entries.c.name > sa.bindparam("after"),
        entries.c.kind == sa.bindparam("kind"),
    )
    .order_by(entries.c.name)
    .limit(sa.bindparam("limit", type_=sa.Integer))
)
READ_NAMESPACES = (
    sa.select(entries.c.namespace)
    .where(
        entries.c.warehouse == sa.bindparam("warehouse"),
        entries.c.kind == "namespace",
        entries.c.namespace > sa.bindparam("after"),
        entries.c.namespace < sa.bindparam("before"),
    )
    .order_by(entries.c.namespace)
    .limit(sa.bindparam("limit", type_=sa.Integer))
)
READ_NUMBER = sa.select(heads.c.number, heads.c.time_ms).where(heads.c.warehouse == sa.bindparam("warehouse"))
CHUNK_ROWS = 1000

InTransaction = Callable[[sa.Connection, int], None]
KEYS_A_DELETION = 10

_update = sa.update(entries).values(
    {c: sa.bindparam("new_" + c) for c in ("kind", "uuid", "version", "metadata_location", "document")}
)
_UPDATE = _update.where(*is_base)
# Another table or view takes over the name, which drops the one that had it.
_REPLACE = _update.where(*is_base, entries.c.protected == 0)
_DELETE = sa.delete(entries).where(*is_base, entries.c.protected == 0)
_RENAME_FROM = sa.delete(entries).where(*is_base, entries.c.protected == sa.bindparam("p"))
_COUNT = (
    sa.update(heads)
    .where(heads.c.warehouse == sa.bindparam("w"))
    .values(
        number=heads.c.number + 1,
        time_ms=sa.case((heads.c.time_ms > sa.bindparam("now"), heads.c.time_ms), else_=sa.bindparam("now")),
    )
    .returning(heads.c.number, heads.c.time_ms)
)
_columns = entries.columns.keys()
# Both databases know this clause. A plain INSERT would end the whole transaction where the name is taken.
_INSERT = sa.text(
    f"INSERT INTO entries ({', '.join(_columns)})"  # noqa: S608 - fixed names
    f" VALUES ({', '.join(':' + name for name in _columns)}) ON CONFLICT DO NOTHING"
)
_INSERT_HISTORY = sa.insert(history)
_DELETE_EXPIRED_RECORDS = sa.delete(idempotency).where(idempotency.c.expires_ms <= sa.bindparam("now"))
_INSERT_RECORD = sa.insert(idempotency)
_DELETE_EXPIRED_RECORD = sa.delete(idempotency).where(
    *(idempotency.c[name] == sa.bindparam(name) for name in ("principal", "operation", "target", "key")),
    idempotency.c.expires_ms <= sa.bindparam("now"),
)


class EntryStore:
    """Reads of the newest state. Nothing is cached."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(
        self, warehouse: str, namespace: str, name: str, *, whole: bool = False
    ) -> tuple[Warehouse, CatalogEntry | None]:
        """The warehouse and the entry; with its document, if `whole`. Raises NoSuchWarehouse."""
        params = {"warehouse": warehouse, "namespace": namespace, "name": name}
        row = self._database.fetch_one(READ_WHOLE if whole else READ_ENTRY, params)
        if row is None:
            raise NoSuchWarehouse(f"Warehouse does not exist: {warehouse}")
        found = Warehouse(warehouse, row[0], row[1])
        if row[2] is None:
            return found, None
        document = unpack(row[7]) if whole else None
        return found, CatalogEntry(row[2], namespace, name, row[3], row[4], row[5], document, bool(row[6]))

    def by_uuid(self, warehouse: str, uuid: str) -> bytes | None:
        """The newest document of a table or view with this uuid, under any name, or its last one if it is
        dropped.
        """
        row = self._database.fetch_one(READ_LATER, {"warehouse": warehouse, "uuid": uuid})
        return unpack(row[0]) if row else None

    def is_protected(self, warehouse: str, uuid: str) -> bool:
        """Whether the table or view with this uuid exists and is protected, under any name."""
        row = self._database.fetch_one(READ_PROTECTED, {"warehouse": warehouse, "uuid": uuid})
        return row is not None and bool(row[0])

    def names(self, warehouse: str, namespace: str, kind: Kind, after: str, limit: int) -> list[str]:
        params: dict[str, Any] = {"warehouse": warehouse, "namespace": namespace, "kind": kind}
        return [
            row[0] for row in self._database.fetch_all(READ_NAMES, params | {"after": after, "limit": limit})
        ]

    def children(self, warehouse: str, parent: str, after: str, limit: int) -> list[str]:
        """Keys of the namespaces directly below `parent` ("": top level), after the key `after`."""
        prefix = parent + "\x1f" if parent else ""
        # Keys below a parent are between "parent 0x1F" and "parent 0x20". At the top level there is no bound.
        before = parent + "\x20" if parent else "\U0010ffff"
        found: list[str] = []
        after = max(after, prefix)
        while len(found) < limit:
            params = {"warehouse": warehouse, "after": after, "before": before, "limit": CHUNK_ROWS}
            chunk = [row[0] for row in self._database.fetch_all(READ_NAMESPACES, params)]
            found += [key for key in chunk if "\x1f" not in key[len(prefix) :]]
            if len(chunk) < CHUNK_ROWS:
                break
            after = chunk[-1]
        return found[:limit]

    def number(self, warehouse: str) -> tuple[int, int] | None:
        """The number and the time (ms) of the newest commit. None if the warehouse does not exist."""
        row = self._database.fetch_one(READ_NUMBER, {"warehouse": warehouse})
        return (row[0], row[1]) if row else None


# Changes


@dataclass(frozen=True, slots=True)
class Written:
    """The number of the commit, and the version of new entries."""

    number: int
    first_version: int


def write(
    database: Database, warehouse: str, request: WriteRequest, in_transaction: InTransaction | None = None
) -> Written:
    """Apply all changes or none. `in_transaction` runs in the same transaction, with the number.

    Raises ConcurrentUpdate, IdempotencyKeyConflict, NoSuchNamespace, NamespaceNotEmpty, Invalid (a location
    that overlaps another table's), Unavailable (nothing was changed) and CommitStateUnknown.
    """
    if in_transaction is None and (written := database.write_changes(warehouse, request)) is not None:
        return Written(*written)
    return database.write(lambda connection: apply(connection, warehouse, request, in_transaction))


def apply(
    connection: sa.Connection,
    warehouse: str,
    request: WriteRequest,
    in_transaction: InTransaction | None = None,
) -> Written:
    """As `write`, inside the caller's transaction."""
    changes = sorted(request.changes, key=lambda change: change.key)
    structural = [change for change in changes if change.is_structural]
    first_version = lock_names(connection, warehouse) if structural else 0
    # A renamed table keeps its protection, and a protected table can be renamed.
    remaining = {change.after.uuid for change in changes if change.after is not None}
    moving = {
        c.base.uuid: c.base.protected for c in changes if c.base is not None and c.base.uuid in remaining
    }
    for change in changes:
        _set(connection, warehouse, change, first_version, moving, request)
        faults.reach("swap.row-set")
    if structural:
        release_locations(connection, warehouse, changes)
    for change in structural:
        check_structure(connection, warehouse, change)
    faults.reach("swap.before-number")
    number, time_ms = _take_number(connection, warehouse)
    faults.reach("swap.before-history")
    _insert_history(connection, warehouse, changes, number, time_ms, request.principal, first_version)
    if request.record is not None:
        faults.reach("swap.before-record")
        save_record(connection, request.record, request.now_ms)
    if in_transaction is not None:
        in_transaction(connection, number)
    return Written(number, first_version)


def _set(
    connection: sa.Connection,
    warehouse: str,
    change: EntryChange,
    first_version: int,
    moving: Mapping[str, bool],
    request: WriteRequest,
) -> None:
    where: dict[str, Any] = {"w": warehouse, "ns": change.namespace, "n": change.name}
    base, after = change.base, change.after
    if base is None:
        if after is None:
            if connection.execute(EXISTS, where).fetchone() is not None:
                raise ConcurrentUpdate(change.key)
            return
        row = _row_of(warehouse, after, first_version)
        row["protected"] = int(moving.get(after.uuid, after.protected))
        if connection.execute(_INSERT, row).rowcount != 1:
            raise ConcurrentUpdate(change.key)
        return
    where |= {"u": base.uuid, "v": base.version}
    if after is None:
        if change.kind != "namespace" and change.keep_until_ms is not None:
            kept = {"id": str(uuid.uuid4()), "dropped_ms": request.now_ms, "principal": request.principal}
            connection.execute(KEEP_DROPPED, where | kept | {"expires_ms": change.keep_until_ms})
        where["p"] = int(base.protected)  # if it was protected since it was read, it must be read again
        result = connection.execute(_RENAME_FROM if base.uuid in moving else _DELETE, where)
    else:
        values = _row_of(warehouse, after, _version_after(change, first_version))
        where |= {
            f"new_{name}": values[name]
            for name in ("kind", "uuid", "version", "metadata_location", "document")
        }
        result = connection.execute(_UPDATE if base.uuid == after.uuid else _REPLACE, where)
    if result.rowcount != 1:
        raise ConcurrentUpdate(change.key)


def _version_after(change: EntryChange, first_version: int) -> int:
    base, after = change.base, change.after
    if base is not None and after is not None and base.uuid == after.uuid:
        return base.version + 1
    return first_version


def _row_of(warehouse: str, entry: CatalogEntry, version: int) -> dict[str, Any]:
    return {
        "warehouse": warehouse,
        "namespace": entry.namespace,
        "name": entry.name,
        "kind": entry.kind,
        "uuid": entry.uuid,
        "version": version,
        "metadata_location": entry.metadata_location,
        "document": pack_entry(entry),
        "protected": int(entry.protected),
    }


def _take_number(connection: sa.Connection, warehouse: str) -> tuple[int, int]:
    """The next number and the time of the commit: the current time, but not before a moment that was read.

    If the clock were read earlier, the time would be too early by the time that writing the files took.
    """
    row = connection.execute(_COUNT, {"w": warehouse, "now": time.time_ns() // 1_000_000}).fetchone()
    if row is None:
        raise NoSuchWarehouse(f"Warehouse does not exist: {warehouse}")
    return row[0], row[1]


def _insert_history(
    connection: sa.Connection,
    warehouse: str,
    changes: Sequence[EntryChange],
    number: int,
    time_ms: int,
    principal: str,
    first_version: int,
) -> None:
    rows = []
    for ordinal, change in enumerate(changes):
        entry = change.after or change.base
        assert entry is not None, "a change has a before or an after"
        version = entry.version if change.after is None else _version_after(change, first_version)
        rows.append(
            {
                "warehouse": warehouse,
                "number": number,
                "ordinal": ordinal,
                "time_ms": time_ms,
                "operation": change.operation,
                "kind": change.kind,
                "namespace": change.namespace,
                "name": change.name,
                "present": int(change.after is not None),
                "uuid": entry.uuid,
                "version": version,
                "metadata_location": entry.metadata_location,
                "principal": principal,
                "detail": orjson.dumps(change.detail).decode(),
            }
        )
    if rows:
        connection.execute(_INSERT_HISTORY, rows)


def deletes_expired_records(record: IdempotencyRecord) -> bool:
    """Whether the write with this record deletes all expired records: one of `KEYS_A_DELETION` does."""
    return zlib.crc32(record.key.encode()) % KEYS_A_DELETION == 0


def save_record(connection: sa.Connection, record: IdempotencyRecord, now_ms: int) -> None:
    values = {name: getattr(record, name) for name in IdempotencyRecord.__slots__}
    connection.execute(_DELETE_EXPIRED_RECORD, values | {"now": now_ms})  # an expired record is replaced
    if deletes_expired_records(record):
        connection.execute(_DELETE_EXPIRED_RECORDS, {"now": now_ms})
    try:
        connection.execute(_INSERT_RECORD, values)
    except sa.exc.IntegrityError as error:
        raise IdempotencyKeyConflict from error
