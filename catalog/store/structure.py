"""Names and locations: the checks of changes that add or remove them, inside the transaction of a write.

They run under the lock on the names of the warehouse, after all rows are written, so that the order of the
changes does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from catalog.errors import AlreadyExists, Invalid, NamespaceNotEmpty, NoSuchNamespace, NoSuchWarehouse
from catalog.models import EntryChange
from catalog.store.schema import dropped, entries, heads, locations, warehouses

row = (
    entries.c.warehouse == sa.bindparam("w"),
    entries.c.namespace == sa.bindparam("ns"),
    entries.c.name == sa.bindparam("n"),
)
is_base = (*row, entries.c.uuid == sa.bindparam("u"), entries.c.version == sa.bindparam("v"))
EXISTS = sa.select(entries.c.uuid).where(*row)
_HEAD = sa.select(heads.c.number).where(heads.c.warehouse == sa.bindparam("w"))
_LOCK_NAMES = (
    sa.select(warehouses.c.warehouse).where(warehouses.c.warehouse == sa.bindparam("w")).with_for_update()
)
# The row of a dropped table, copied from `entries` before it is deleted there.
KEEP_DROPPED = sa.insert(dropped).from_select(
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
    ).where(*is_base),
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


def lock_names(connection: sa.Connection, warehouse: str) -> int:
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


def check_structure(connection: sa.Connection, warehouse: str, change: EntryChange) -> None:
    """Check the change against other names, after all rows are written, so that the order does not matter."""
    if change.after is None:
        if change.kind == "namespace":
            _require_empty(connection, warehouse, change.namespace)
        return
    if change.base is None:
        parent = change.namespace if change.name else change.namespace.rpartition("\x1f")[0]
        if parent and connection.execute(EXISTS, {"w": warehouse, "ns": parent, "n": ""}).fetchone() is None:
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


def release_locations(connection: sa.Connection, warehouse: str, changes: Sequence[EntryChange]) -> None:
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
