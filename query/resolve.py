"""Resolve the tables that a statement names to tables of warehouses at one moment.

Each warehouse that a statement names is pinned once to a number of its history, so that a query of many
tables reads one state. Everything here reads SQL: call it in a thread.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from catalog.api.context import state_for, visible_role
from catalog.errors import Invalid, NoSuchTable, NoSuchWarehouse
from catalog.models import Caller, CatalogEntry
from catalog.moments import AtNumber, AtTime, Now
from catalog.names import Identifier, Namespace, WarehouseRef, namespace_from_levels
from catalog.services.catalog import Catalog
from catalog.services.warehouse_state import WarehouseState

NUMBER_MAX = 2**62
CHUNK_ROWS = 1000
SUPERSEDED_CHUNKS_MAX = 20
NEAR_NAMES_MAX = 3
NEAR_NAMESPACES_MAX = 50
NEAR_TABLES_MAX = 1000
# DuckDB attaches its own databases under these names
RESERVED_ALIASES = frozenset({"main", "temp", "system", "memory"})


@dataclass(frozen=True, slots=True)
class Pin:
    """One warehouse of a query at one moment."""

    warehouse: str
    reference: str  # the reference that DuckDB attaches
    alias: str  # under this name
    number: int | None  # None: an open transaction
    time_ms: int  # the requested moment
    state: WarehouseState

    def attachment(self, token: str | None) -> dict[str, Any]:
        """Return what a query process attaches."""
        return {
            "name": self.alias,
            "reference": self.reference,
            "token": token,
            "is_fixed": self.number is not None,
            "made_ms": self.state.warehouse.created_ms,
        }

    def as_json(self, commit_ms: int | None, journal_id: int | None = None) -> dict[str, Any]:
        """`journal_id` is given if changes were added up to it."""
        found = {
            "warehouse": self.warehouse,
            "number": self.number,
            "time": str(AtTime(self.time_ms)),
            "commit_time": None if commit_ms is None else str(AtTime(commit_ms)),
        }
        return found if journal_id is None else found | {"token": f"{self.warehouse}:{journal_id}"}


@dataclass(frozen=True, slots=True)
class TableRead:
    """One table of a query."""

    pin: Pin
    identifier: Identifier
    snapshot_id: int | None  # None: the table has no snapshot yet, or the SQL computes it
    summary: dict[str, str]  # of the snapshot
    location: str
    partitioned_by: list[str]

    @property
    def shown(self) -> str:
        return f"{self.pin.warehouse}.{self.identifier}"


@dataclass(frozen=True, slots=True)
class Overlay:
    """Rows that replace rows of one table (overlay.py). `data` is an Arrow IPC stream."""

    table: tuple[str, str, str]  # attached catalog, schema, name
    view: tuple[str, str, str]  # the name under which the query reads the table with these rows
    shape: dict[str, Any]
    data: bytes = field(repr=False)

    def as_message(self) -> dict[str, Any]:
        return {"table": self.table, "view": self.view, "shape": self.shape}


@dataclass(slots=True)
class Plan:
    """What a query process needs to run the statement, and what the response says about it."""

    pins: dict[str, Pin] = field(default_factory=dict)
    names: dict[str, tuple[str, str, str, int | None]] = field(default_factory=dict)
    reads: list[TableRead] = field(default_factory=list)
    overlays: list[Overlay] = field(default_factory=list)
    cuts: dict[str, int] = field(
        default_factory=dict
    )  # by warehouse: changes are added up to this journal id

    @property
    def snapshots(self) -> dict[str, int | None]:
        return {read.shown: read.snapshot_id for read in self.reads}


class Resolver:
    """Resolves the tables of one statement for one caller."""

    def __init__(
        self,
        catalog: Catalog,
        caller: Caller,
        warehouse: WarehouseRef,
        namespace: Namespace,
        moment: AtNumber | AtTime | Now,
        snapshot_id: int | None = None,
    ) -> None:
        self._catalog = catalog
        self._caller = caller
        self._warehouse = warehouse
        self._namespace = namespace
        self._moment = moment
        self._snapshot_id = snapshot_id
        self._now_ms = catalog.now_ms()
        self._plan = Plan()

    @property
    def reads_snapshot(self) -> bool:
        """Return whether the request names the snapshot to read."""
        return self._snapshot_id is not None

    def plan(self, tables: Sequence[dict[str, Any]]) -> Plan:
        """Pin the warehouses and resolve the tables. A second call pins them anew."""
        self._plan, self._now_ms = Plan(), self._catalog.now_ms()
        if self._snapshot_id is not None and len(tables) != 1:
            raise Invalid(
                f"snapshot_id is for a query of one table, and this one has {len(tables)}: "
                "write AT (VERSION => id) behind the table, or use as_of"
            )
        self._pin(self._warehouse.name)
        for table in tables:
            self._resolve(table)
        return self._plan

    def superseded_ms(self) -> int | None:
        """Return when the oldest commit was made that the pinned tables lack; None if they are current."""
        found = [self._next_change(read) for read in self._plan.reads]
        return min((ms for ms in found if ms is not None), default=None)

    def _next_change(self, read: TableRead) -> int | None:
        pin, identifier = read.pin, read.identifier
        key, name = identifier.namespace.key, identifier.name
        if pin.number is None or isinstance(self._moment, Now):
            return None
        next_ms, before = None, NUMBER_MAX
        for _ in range(SUPERSEDED_CHUNKS_MAX):
            rows = self._catalog.history.versions(pin.warehouse, key, name, before, CHUNK_ROWS)
            later = [row for row in rows if row["number"] > pin.number]
            if later:
                next_ms, before = int(later[-1]["time_ms"]), int(later[-1]["number"])
            if len(later) < CHUNK_ROWS:
                break
        return next_ms

    def commit_ms(self, pin: Pin) -> int | None:
        """Return when the newest commit of the pinned state was made; None if there is none."""
        if not pin.number:
            return None
        return self._time_of(pin.warehouse, pin.number)

    # -- warehouses

    def _pin(self, name: str) -> Pin:
        if name not in self._plan.pins:
            self._plan.pins[name] = self._new_pin(name)
        return self._plan.pins[name]

    def _new_pin(self, name: str) -> Pin:
        visible_role(self._caller, name)
        self._catalog.warehouse(name)
        alias = self._alias(name)
        if self._warehouse.transaction is not None and name == self._warehouse.name:
            state = state_for(self._catalog, self._caller, self._warehouse)
            return Pin(name, str(self._warehouse), alias, None, self._now_ms, state)
        number, time_ms = self._moment_of(name)
        ref = WarehouseRef(name, at=str(number))
        return Pin(name, str(ref), alias, number, time_ms, self._catalog.state(ref))

    def _moment_of(self, name: str) -> tuple[int, int]:
        """Return the number of the state to read, and the requested time."""
        head = self._catalog.entries.number(name)
        newest = head[0] if head else 0
        moment = self._moment
        if isinstance(moment, Now):
            return newest, self._now_ms
        if isinstance(moment, AtNumber) and name == self._warehouse.name:
            if moment.number > newest:
                raise Invalid(
                    f"as_of: {name} has no commit {moment.number} yet; its newest commit is {newest}"
                )
            return self._kept(name, moment.number), self._time_of(name, moment.number)
        ms = self._time_of(self._warehouse.name, moment.number) if isinstance(moment, AtNumber) else moment.ms
        if ms > self._now_ms:
            raise Invalid(f"as_of: {AtTime(ms)} is in the future")
        return self._kept(name, self._catalog.history.number_at(name, ms)), ms

    def _kept(self, name: str, number: int) -> int:
        return self._catalog.resolve(WarehouseRef(name, at=str(number)))

    def _time_of(self, name: str, number: int) -> int:
        rows = self._catalog.history.events(name, number - 1, 1) if number else []
        return int(rows[0]["time_ms"]) if rows else self._catalog.warehouse(name).created_ms

    def _alias(self, name: str) -> str:
        """Return the name itself, unless DuckDB uses it already, ignoring case."""
        used = RESERVED_ALIASES | {pin.alias.lower() for pin in self._plan.pins.values()}
        alias = name
        while alias.lower() in used:
            alias += "_"
        return alias

    # -- tables

    def _resolve(self, table: dict[str, Any]) -> None:
        pin, identifier = self._named(table)
        entry = pin.state.load(identifier.namespace.key, identifier.name)
        if entry is None or entry.kind != "table":
            raise self._missing(pin, identifier, entry)
        document = self._document(entry)
        snapshot_id = self._snapshot(table, identifier, document)
        is_given = table["at"] == "VERSION" or self._snapshot_id is not None
        schema = str(identifier.namespace)
        resolved = (pin.alias, schema, identifier.name, snapshot_id if is_given else None)
        self._plan.names[table["key"]] = resolved
        known = {one["snapshot-id"]: one for one in document.get("snapshots") or ()}
        summary = known.get(snapshot_id, {}).get("summary", {})
        location, fields = document["location"], _partition_fields(document)
        self._plan.reads.append(TableRead(pin, identifier, snapshot_id, summary, location, fields))

    def _document(self, entry: CatalogEntry) -> dict[str, Any]:
        return self._catalog.documents.parsed(entry)

    def _named(self, table: dict[str, Any]) -> tuple[Pin, Identifier]:
        first, schema, name = table["catalog"], table["schema"], table["name"]
        here = self._pin(self._warehouse.name)
        if not schema:
            return here, Identifier(self._namespace, name)
        levels = schema.split(".")
        if not first:
            return here, Identifier(namespace_from_levels(levels), name)
        if self._is_warehouse(first):
            return self._pin(first), Identifier(namespace_from_levels(levels), name)
        nested = namespace_from_levels([*first.split("."), *levels])
        if here.state.entry(nested.key, "") is not None:
            return here, Identifier(nested, name)
        raise NoSuchWarehouse(f"Warehouse does not exist: {first} (in {first}.{schema}.{name})")

    def _is_warehouse(self, name: str) -> bool:
        return self._caller.role(name) is not None and self._catalog.warehouses.get(name) is not None

    def _snapshot(
        self, table: dict[str, Any], identifier: Identifier, document: dict[str, Any]
    ) -> int | None:
        """Return the snapshot that is read; None if there is none, or the SQL computes it."""
        if self._snapshot_id is not None:
            if table["at"] is not None:
                raise Invalid("Use snapshot_id or AT (...) in the SQL, not both")
            return _known_snapshot(document, self._snapshot_id, identifier)
        text = table["at_text"]
        if table["at"] == "VERSION":
            return _version(document, text, identifier)
        if table["at"] == "TIMESTAMP":
            return None
        current = document.get("current-snapshot-id")
        return current if isinstance(current, int) and current >= 0 else None

    # -- errors

    def _missing(self, pin: Pin, identifier: Identifier, entry: CatalogEntry | None) -> NoSuchTable:
        shown = f"{pin.warehouse}.{identifier}"
        if entry is not None:
            return NoSuchTable(f"{shown} is a {entry.kind}, and /query reads tables")
        began = self._began(pin, identifier)
        if began is not None:
            return NoSuchTable(
                f"{shown} did not exist as of {AtTime(pin.time_ms)} (number {pin.number}): it exists "
                f"from {AtTime(began['time_ms'])} (number {began['number']})"
            )
        near = self._near(pin, identifier)
        hint = f". Did you mean {' or '.join(near)}?" if near else ""
        return NoSuchTable(f"Table does not exist: {shown}{hint}")

    def _began(self, pin: Pin, identifier: Identifier) -> dict[str, Any] | None:
        """Return the first commit after the pinned state that created a table of this name."""
        if pin.number is None:
            return None
        found, before = None, NUMBER_MAX
        key = identifier.namespace.key
        while rows := self._catalog.history.versions(pin.warehouse, key, identifier.name, before, CHUNK_ROWS):
            for row in rows:
                if row["number"] <= pin.number:
                    return found
                if row["present"]:
                    found = row
            before = rows[-1]["number"]
        return found

    def _near(self, pin: Pin, identifier: Identifier) -> list[str]:
        names = []
        own = identifier.namespace.key  # a warehouse may have more namespaces than are searched
        for key in dict.fromkeys([own, *pin.state.children("", "", NEAR_NAMESPACES_MAX)]):
            namespace = Namespace.from_key(key)
            found = pin.state.names(key, "table", "", NEAR_TABLES_MAX)
            names += [str(Identifier(namespace, name)) for name in found]
        by_lower = {name.lower(): name for name in names}
        wanted = str(identifier).lower()
        same = [name for name in names if name.rpartition(".")[2].lower() == identifier.name.lower()]
        near = difflib.get_close_matches(wanted, by_lower, NEAR_NAMES_MAX)
        return list(dict.fromkeys([*same, *(by_lower[name] for name in near)]))[:NEAR_NAMES_MAX]


def _partition_fields(document: dict[str, Any]) -> list[str]:
    specs = {spec["spec-id"]: spec for spec in document.get("partition-specs") or ()}
    spec = specs.get(document.get("default-spec-id"), {})
    return [str(field["name"]) for field in spec.get("fields", ())]


def _version(document: dict[str, Any], text: str | None, identifier: Identifier) -> int:
    if text is None:
        raise Invalid("AT (VERSION => ...) takes a snapshot id, or the name of a tag or branch as text")
    if text.isascii() and text.isdigit():
        return _known_snapshot(document, int(text), identifier)
    refs = document.get("refs") or {}
    if text not in refs:
        known = ", ".join(sorted(refs)) or "none"
        raise Invalid(f"{identifier} has no tag or branch {text}: it has {known}")
    return int(refs[text]["snapshot-id"])


def _known_snapshot(document: dict[str, Any], snapshot_id: int, identifier: Identifier) -> int:
    if not any(one["snapshot-id"] == snapshot_id for one in document.get("snapshots") or ()):
        raise Invalid(f"{identifier} has no snapshot {snapshot_id} at this moment")
    return snapshot_id
