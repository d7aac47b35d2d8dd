"""All changes of entries: a list of changes is compared and written in one transaction, under one number.

Locks are always taken in the same order, so that writes do not deadlock: first the row of the warehouse (only
if names or locations are added or removed), then the rows of the names in sorted order, last the counter. The
counter is locked only from its update to the end of COMMIT, so that writes to different tables run in
parallel.
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
from catalog.errors import AlreadyExists, Invalid, NamespaceNotEmpty, NoSuchNamespace, NoSuchWarehouse
from catalog.models import (
    CatalogEntry,
    ConcurrentUpdate,
    EntryChange,
    IdempotencyKeyConflict,
    IdempotencyRecord,
    WriteRequest,
)
from catalog.store.database import Database
from catalog.store.entries import pack
from catalog.store.schema import dropped, entries, heads, history, idempotency, locations, warehouses

InTransaction = Callable[[sa.Connection, int], None]
KEYS_A_DELETION = 10

_row = (
    entries.c.warehouse == sa.bindparam("w"),
    entries.c.namespace == sa.bindparam("ns"),
    entries.c.name == sa.bindparam("n"),
)
_is_base = (*_row, entries.c.uuid == sa.bindparam("u"), entries.c.version == sa.bindparam("v"))
_update = sa.update(entries).values(
    {c: sa.bindparam("new_" + c) for c in ("kind", "uuid", "version", "metadata_location", "document")}
)
_UPDATE = _update.where(*_is_base)
# Another table or view takes over the name, which drops the one that had it.
_REPLACE = _update.where(*_is_base, entries.c.protected == 0)
_DELETE = sa.delete(entries).where(*_is_base, entries.c.protected == 0)
_RENAME_FROM = sa.delete(entries).where(*_is_base, entries.c.protected == sa.bindparam("p"))
_EXISTS = sa.select(entries.c.uuid).where(*_row)
_COUNT = (
    sa.update(heads)
    .where(heads.c.warehouse == sa.bindparam("w"))
    .values(
        number=heads.c.number + 1,
        time_ms=sa.case((heads.c.time_ms > sa.bindparam("now"), heads.c.time_ms), else_=sa.bindparam("now")),
    )
    .returning(heads.c.number, heads.c.time_ms)
)
_HEAD = sa.select(heads.c.number).where(heads.c.warehouse == sa.bindparam("w"))
_LOCK_NAMES = (
    sa.select(warehouses.c.warehouse).where(warehouses.c.warehouse == sa.bindparam("w")).with_for_update()
)
_columns = entries.columns.keys()
# Both databases know this clause. A plain INSERT would end the whole transaction where the name is taken.
_INSERT = sa.text(
    f"INSERT INTO entries ({', '.join(_columns)})"  # noqa: S608 - fixed names
    f" VALUES ({', '.join(':' + name for name in _columns)}) ON CONFLICT DO NOTHING"
)
_INSERT_HISTORY = sa.insert(history)
# The row of a dropped table, copied from `entries` before it is deleted there.
_KEEP_DROPPED = sa.insert(dropped).from_select(
    dropped.columns.keys(),
    sa.select(
        entries.c.warehouse,
        sa.bindparam("id", type_=sa.Text),
        entries.c.kind,
        entries.c.namespace,
        entries.c.name,
        entries.c.uuid,
        entries.c.metadata_location,
        entries.c.document,
        sa.bindparam("dropped_ms", type_=sa.BigInteger),
        sa.bindparam("expires_ms", type_=sa.BigInteger),
        sa.bindparam("principal", type_=sa.Text),
    ).where(*_is_base),
)
_DELETE_DROPPED = sa.delete(dropped).where(
    dropped.c.warehouse == sa.bindparam("w"), dropped.c.uuid == sa.bindparam("u")
)
_INSERT_LOCATION = sa.insert(locations)
_RELEASE_LOCATIONS = sa.delete(locations).where(
    locations.c.warehouse == sa.bindparam("w"), locations.c.uuid == sa.bindparam("u")
)
OVERLAPPING = sa.select(locations.c.location, locations.c.uuid).where(
    locations.c.warehouse == sa.bindparam("w"),
    sa.or_(
        locations.c.location.in_(sa.bindparam("above", expanding=True)),
        sa.and_(locations.c.location > sa.bindparam("below"), locations.c.location < sa.bindparam("behind")),
    ),
)
_INSIDE = (
    sa.select(entries.c.name)
    .where(
        entries.c.warehouse == sa.bindparam("w"),
        sa.or_(
            sa.and_(entries.c.namespace == sa.bindparam("ns"), entries.c.name != ""),
            sa.and_(
                entries.c.namespace > sa.bindparam("below"), entries.c.namespace < sa.bindparam("behind")
            ),
        ),
    )
    .limit(1)
)
_BY_UUID = sa.select(entries.c.name).where(
    entries.c.warehouse == sa.bindparam("w"), entries.c.uuid == sa.bindparam("u")
)
_DELETE_EXPIRED_RECORDS = sa.delete(idempotency).where(idempotency.c.expires_ms <= sa.bindparam("now"))
_INSERT_RECORD = sa.insert(idempotency)
_DELETE_EXPIRED_RECORD = sa.delete(idempotency).where(
    *(idempotency.c[name] == sa.bindparam(name) for name in ("principal", "operation", "target", "key")),
    idempotency.c.expires_ms <= sa.bindparam("now"),
)


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
    first_version = 0
    if any(change.is_structural for change in changes):
        first_version = _lock_names(connection, warehouse)
    # A renamed table keeps its protection, and a protected table can be renamed.
    remaining = {change.after.uuid for change in changes if change.after is not None}
    moving = {
        c.base.uuid: c.base.protected for c in changes if c.base is not None and c.base.uuid in remaining
    }
    for change in changes:
        _set(connection, warehouse, change, first_version, moving, request)
        faults.reach("swap.row-set")
    _release_locations(connection, warehouse, changes)
    for change in changes:
        if change.is_structural:
            _check_structure(connection, warehouse, change)
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


def _lock_names(connection: sa.Connection, warehouse: str) -> int:
    """Lock the names of the warehouse. Returns the version of entries that are created now.

    The version of an entry is never higher than the number of the commit that wrote it. Starting above the
    counter therefore ensures that no version is used twice for one name, even if the name was dropped and
    created again.
    """
    if connection.dialect.name == "postgresql":  # SQLite has one writer at a time
        connection.execute(_LOCK_NAMES, {"w": warehouse})
    # A statement of its own: it must see what was committed while the lock was awaited.
    head = connection.execute(_HEAD, {"w": warehouse}).scalar()
    if head is None:
        raise NoSuchWarehouse(f"Warehouse does not exist: {warehouse}")
    return int(head) + 1


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
            if connection.execute(_EXISTS, where).fetchone() is not None:
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
            connection.execute(_KEEP_DROPPED, where | kept | {"expires_ms": change.keep_until_ms})
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
    assert entry.document is not None, "a written entry carries its document"
    return {
        "warehouse": warehouse,
        "namespace": entry.namespace,
        "name": entry.name,
        "kind": entry.kind,
        "uuid": entry.uuid,
        "version": version,
        "metadata_location": entry.metadata_location,
        "document": pack(entry.document),
        "protected": int(entry.protected),
    }


def _check_structure(connection: sa.Connection, warehouse: str, change: EntryChange) -> None:
    """Check the change against other names, after all rows are written, so that the order does not matter."""
    if change.after is None:
        if change.kind == "namespace":
            _require_empty(connection, warehouse, change.namespace)
        return
    if change.base is None:
        parent = change.namespace if change.name else change.namespace.rpartition("\x1f")[0]
        if parent and connection.execute(_EXISTS, {"w": warehouse, "ns": parent, "n": ""}).fetchone() is None:
            raise NoSuchNamespace(f"Namespace does not exist: {parent.replace(chr(31), '.')}")
        connection.execute(_DELETE_DROPPED, {"w": warehouse, "u": change.after.uuid})
    if change.name and (change.base is None or change.base.uuid != change.after.uuid):
        _require_one_name(connection, warehouse, change)
    for location in change.locations:
        _reserve(connection, warehouse, location, change.after.uuid)


def _require_one_name(connection: sa.Connection, warehouse: str, change: EntryChange) -> None:
    """Each uuid has one name, because locations and files belong to the uuid, which a client may choose."""
    assert change.after is not None
    if len(connection.execute(_BY_UUID, {"w": warehouse, "u": change.after.uuid}).fetchall()) > 1:
        raise AlreadyExists(
            f"A {change.kind} with the uuid {change.after.uuid} has a name already: "
            "rename it, or drop it first"
        )


def _require_empty(connection: sa.Connection, warehouse: str, namespace: str) -> None:
    params = {"w": warehouse, "ns": namespace, "below": namespace + "\x1f", "behind": namespace + "\x20"}
    found = connection.execute(_INSIDE, params).fetchone()
    if found is not None:
        raise NamespaceNotEmpty(f"Namespace {namespace.replace(chr(31), '.')} is not empty")


def overlapping_params(warehouse: str, location: str) -> dict[str, Any]:
    """Parameters of OVERLAPPING: reserved locations that equal the given one, contain it or are inside it."""
    parts = location.split("/")
    above = ["/".join(parts[:end]) for end in range(len(parts), 2, -1)]
    return {"w": warehouse, "above": above, "below": location + "/", "behind": location + "0"}


def _release_locations(connection: sa.Connection, warehouse: str, changes: Sequence[EntryChange]) -> None:
    """Release the locations of tables that no longer have a name, so that new tables can use them."""
    remaining = {change.after.uuid for change in changes if change.after is not None}
    for change in changes:
        removed = change.base
        if removed is not None and removed.kind != "namespace" and removed.uuid not in remaining:
            connection.execute(_RELEASE_LOCATIONS, {"w": warehouse, "u": removed.uuid})


def _reserve(connection: sa.Connection, warehouse: str, location: str, owner: str) -> None:
    overlapping = connection.execute(OVERLAPPING, overlapping_params(warehouse, location)).fetchall()
    for reserved, uuid_ in overlapping:
        if uuid_ != owner:
            raise Invalid(
                f"Location {location} overlaps {reserved}, which belongs to another table: "
                "choose another location, or leave it out to get a fresh one"
            )
    if all(reserved != location for reserved, _ in overlapping):
        connection.execute(_INSERT_LOCATION, {"warehouse": warehouse, "location": location, "uuid": owner})


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
