"""Resolve the text of `as_of`, `from` or `to` to the table at that moment.

Besides the moments of `/query` (a number, a time, `5 minutes ago`, a token), a snapshot of the table is a
moment: its id, or `snapshot:ID` if the id could be mistaken for a number or a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from catalog.errors import Conflict, Invalid, NoSuchTable, NotFound
from catalog.moments import AtNumber, AtTime, Now
from catalog.names import Identifier, WarehouseRef, namespace_from_levels
from catalog.services.catalog import Catalog
from query.moments import AtToken, requested_moment
from query.tables.access import TableAccess

SNAPSHOT_PREFIX = "snapshot:"
NUMBER_MAX = 2**62
CHUNK_ROWS = 1000
HISTORY_ROWS_MAX = 100_000  # of one table, to find the numbers of its snapshots


class NoSuchSnapshot(NotFound):
    type = "NoSuchSnapshotException"


@dataclass(frozen=True, slots=True)
class TableMoment:
    """A table at a moment, and its current snapshot at that moment."""

    table: Table
    snapshot: Snapshot | None
    number: int | None  # of the warehouse; None: a snapshot whose commit is not in the history
    time_ms: int

    @property
    def snapshot_id(self) -> int | None:
        return self.snapshot.snapshot_id if self.snapshot is not None else None

    def as_json(self) -> dict[str, Any]:
        return {"number": self.number, "time": str(AtTime(self.time_ms)), "snapshot_id": self.snapshot_id}


def table_at(access: TableAccess, text: str | None, what: str = "as_of") -> TableMoment:
    """Return the table at the moment. If it did not exist then, NoSuchTable says since when it exists."""
    if text is None:
        return _now(access)
    snapshot_id = _snapshot_id(access, text)
    if snapshot_id is not None:
        return _at_snapshot(access, snapshot_id)
    number, time_ms = warehouse_moment(access.catalog, access.warehouse.name, text, what, access)
    if not access.exists_at(number):
        raise _did_not_exist(access, number, time_ms)
    table = access.at(number)
    return TableMoment(table, table.current_snapshot(), number, time_ms)


def moment_number(access: TableAccess, text: str | None, what: str) -> int:
    """Return the number of the warehouse at the moment. A snapshot stands for the commit that added it."""
    if text is None:
        return (access.catalog.entries.number(access.warehouse.name) or (0, 0))[0]
    snapshot_id = _snapshot_id(access, text)
    if snapshot_id is None:
        return warehouse_moment(access.catalog, access.warehouse.name, text, what, access)[0]
    number = _at_snapshot(access, snapshot_id).number
    if number is None:
        raise Invalid(f"{what}: the history does not have the commit of snapshot {snapshot_id}")
    return number


def warehouse_moment(
    catalog: Catalog, warehouse: str, text: str, what: str, access: TableAccess | None = None
) -> tuple[int, int]:
    """Return the number of the warehouse at the moment, and its time."""
    now_ms = catalog.now_ms()
    head = (catalog.entries.number(warehouse) or (0, 0))[0]
    moment = requested_moment(text, now_ms)
    if isinstance(moment, AtToken):
        _require_visible(access, moment, what)
        return head, now_ms
    if isinstance(moment, Now):
        return head, now_ms
    if isinstance(moment, AtNumber):
        if moment.number > head:
            raise Invalid(f"{what}: {warehouse} has no commit {moment.number} yet; its newest is {head}")
        return _kept(catalog, warehouse, moment.number), time_of(catalog, warehouse, moment.number)
    if moment.ms > now_ms:
        raise Invalid(f"{what}: {moment} is in the future")
    return _kept(catalog, warehouse, catalog.history.number_at(warehouse, moment.ms)), moment.ms


def _kept(catalog: Catalog, warehouse: str, number: int) -> int:
    """Return the last kept moment at or before the number."""
    return catalog.resolve(WarehouseRef(warehouse, at=str(number)))


def time_of(catalog: Catalog, warehouse: str, number: int) -> int:
    """Return when the commit of this number was made; for 0, when the warehouse was created."""
    rows = catalog.history.events(warehouse, number - 1, 1) if number else []
    return int(rows[0]["time_ms"]) if rows else catalog.warehouse(warehouse).created_ms


def versions(access: TableAccess) -> Iterator[dict[str, Any]]:
    """Yield the history of the table, newest first; also under earlier names."""
    identifier, before, count = access.identifier, NUMBER_MAX, 0
    while count < HISTORY_ROWS_MAX:
        rows = access.catalog.history.versions(
            access.warehouse.name, identifier.namespace.key, identifier.name, before, CHUNK_ROWS
        )
        if not rows:
            return
        for row in rows:
            count += 1
            yield row
            before = row["number"]
            former = row["detail"].get("from")
            if row["operation"] == "rename-table" and former is not None:
                identifier = Identifier(namespace_from_levels(former["namespace"]), former["name"])
                break
            if not row["present"] or row["operation"] in ("create-table", "register-table"):
                return  # older rows belong to another table


def commits_of_snapshots(access: TableAccess) -> dict[int, dict[str, Any]]:
    """Return the history row of the commit that added each snapshot."""
    found: dict[int, dict[str, Any]] = {}
    for row in versions(access):
        for snapshot_id in row["detail"].get("added-snapshots", ()):
            found[snapshot_id] = row
    return found


def number_of_version(access: TableAccess, metadata_location: str) -> int | None:
    """Return the number of the commit that wrote this metadata file."""
    for row in versions(access):
        if row["metadata_location"] == metadata_location:
            return int(row["number"])
    return None


def _now(access: TableAccess) -> TableMoment:
    head = (access.catalog.entries.number(access.warehouse.name) or (0, 0))[0]
    table = access.current()
    return TableMoment(table, table.current_snapshot(), head, access.catalog.now_ms())


def _snapshot_id(access: TableAccess, text: str) -> int | None:
    text = text.strip()
    digits = text.removeprefix(SNAPSHOT_PREFIX)
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 19:
        return None
    if text != digits:
        return int(digits)
    moment = requested_moment(digits, access.catalog.now_ms()) if len(digits) <= 18 else None
    if isinstance(moment, AtNumber):
        return None
    if isinstance(moment, AtTime) and access.current().snapshot_by_id(int(digits)) is None:
        return None if moment.ms <= access.catalog.now_ms() else int(digits)
    return int(digits)


def _at_snapshot(access: TableAccess, snapshot_id: int) -> TableMoment:
    table = access.current()
    snapshot = table.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise NoSuchSnapshot(f"{access.identifier} has no snapshot {snapshot_id}")
    commit = commits_of_snapshots(access).get(snapshot_id)
    number = int(commit["number"]) if commit is not None else None
    return TableMoment(table, snapshot, number, snapshot.timestamp_ms)


def _did_not_exist(access: TableAccess, number: int, time_ms: int) -> NoSuchTable:
    name = f"{access.warehouse.name}.{access.identifier}"
    began = _began(access, number)
    if began is None:
        return NoSuchTable(f"Table does not exist: {access.identifier}")
    return NoSuchTable(
        f"The table {name} did not exist then ({AtTime(time_ms)}, number {number}): it exists from "
        f"{AtTime(began['time_ms'])} (number {began['number']})"
    )


def _began(access: TableAccess, number: int) -> dict[str, Any] | None:
    """Return the first commit after the number that created a table of this name."""
    found, before, name = None, NUMBER_MAX, access.identifier
    key = name.namespace.key
    while rows := access.catalog.history.versions(access.warehouse.name, key, name.name, before, CHUNK_ROWS):
        for row in rows:
            if row["number"] <= number:
                return found
            if row["present"] and row["kind"] == "table":
                found = row
        before = rows[-1]["number"]
    return found


def _require_visible(access: TableAccess | None, token: AtToken, what: str) -> None:
    if access is None or access.landing is None or token.warehouse != access.warehouse.name:
        raise Invalid(f"{what}: a token is for one table of the warehouse that gave it out")
    if what == "from":
        raise Invalid("from: a token names no exact moment of the past; send a number, a time or a snapshot")
    name = access.identifier.parts
    landed = access.landing.one(access.warehouse.name, name)
    if landed.landed_id < token.journal_id:
        raise Conflict(f"{what}: the changes up to this token are not visible yet; try again in a moment")
