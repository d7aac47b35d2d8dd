"""Operations on tables other than commits: create, stage, register, load, drop, rename, undrop, protect."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import orjson

from catalog import locations
from catalog.errors import (
    AlreadyExists,
    Conflict,
    FileNotFound,
    Forbidden,
    Invalid,
    NoSuchNamespace,
    NoSuchTable,
    NoSuchView,
)
from catalog.metadata.document import decode_metadata, summarize, with_defaults
from catalog.metadata.invariants import violations
from catalog.metadata.tables import new_table
from catalog.models import PURGE_REQUESTED, UNNUMBERED, CatalogEntry, EntryChange, Kind
from catalog.names import Identifier, Namespace
from catalog.services.catalog import Catalog
from catalog.services.namespaces import properties_of
from catalog.services.warehouse_state import WarehouseState
from catalog.services.writes import (
    WriteContext,
    WritePlan,
    metadata_folder,
    next_metadata_location,
    write_with_retry,
)

NO_SUCH: dict[Kind, type[NoSuchTable | NoSuchView]] = {"table": NoSuchTable, "view": NoSuchView}


def load(state: WarehouseState, identifier: Identifier, kind: Kind = "table") -> CatalogEntry:
    """The table or view with its document. Raises NoSuchTable or NoSuchView."""
    entry = state.load(identifier.namespace.key, identifier.name)
    if entry is None or entry.kind != kind:
        raise NO_SUCH[kind](f"{kind.capitalize()} does not exist: {identifier}")
    return entry


def require(state: WarehouseState, identifier: Identifier, kind: Kind = "table") -> CatalogEntry:
    """The table or view without its document. Raises NoSuchTable or NoSuchView."""
    entry = state.entry(identifier.namespace.key, identifier.name)
    if entry is None or entry.kind != kind:
        raise NO_SUCH[kind](f"{kind.capitalize()} does not exist: {identifier}")
    return entry


def require_file(catalog: Catalog, entry: CatalogEntry) -> None:
    """Raise FileNotFound if the metadata file is missing, where storage can tell that at the cost of a
    `stat`.

    The row alone would be enough for the response. But a client should learn from the load, not from the
    first scan, that the files of a table were deleted. Other catalogs behave the same way.
    """
    location = str(entry.metadata_location)
    if catalog.files.is_missing(location):
        raise FileNotFound(
            f"Failed to open input stream for file: {location} (`calve check --repair` writes it again)"
        )


def require_available(state: WarehouseState, identifier: Identifier, kind: Kind) -> None:
    """Raise AlreadyExists if a table or view has the name."""
    entry = state.entry(identifier.namespace.key, identifier.name)
    if entry is None:
        return
    if entry.kind == kind:
        raise AlreadyExists(f"{kind.capitalize()} already exists: {identifier}")
    raise AlreadyExists(f"{entry.kind.capitalize()} with same name already exists: {identifier}")


def create(
    catalog: Catalog,
    state: WarehouseState,
    context: WriteContext,
    identifier: Identifier,
    request: dict[str, Any],
) -> CatalogEntry:
    namespace_properties = properties_of(state, identifier.namespace)
    metadata = _new_metadata(catalog, state, identifier, request, namespace_properties)
    chosen = request.get("location") is not None or any(locations.path_properties(request.get("properties")))
    return create_entry(
        catalog,
        state,
        context,
        identifier,
        "table",
        "create-table",
        metadata,
        has_new_locations=not chosen,
    )


def stage(
    catalog: Catalog, state: WarehouseState, identifier: Identifier, request: dict[str, Any]
) -> dict[str, Any]:
    """The metadata of a table that is not stored yet. The client's commit sends all of it back."""
    namespace_properties = properties_of(state, identifier.namespace)
    require_available(state, identifier, "table")
    metadata = _new_metadata(catalog, state, identifier, request, namespace_properties)
    for location in locations.own_locations(metadata):
        if catalog.records.overlapping(state.warehouse.name, location):
            raise Invalid(f"Location {location} overlaps the location of another table")
    # DuckDB writes manifests into this folder and does not create it.
    catalog.files.make_directory(metadata_folder(metadata))
    return metadata


def _new_metadata(
    catalog: Catalog,
    state: WarehouseState,
    identifier: Identifier,
    request: dict[str, Any],
    inherited: dict[str, str],
) -> dict[str, Any]:
    location = request.get("location")
    if location is None:
        location = locations.default_location(identifier, inherited["location"])
    location = locations.require_below(state.warehouse, location, "location").text.rstrip("/")
    for key, value in locations.path_properties(request.get("properties")):
        locations.require_inside(state.warehouse, value, key)
    return new_table(request, location=location, table_uuid=str(uuid.uuid4()), now_ms=catalog.now_ms())


def create_entry(
    catalog: Catalog,
    state: WarehouseState,
    context: WriteContext,
    identifier: Identifier,
    kind: Kind,
    operation: str,
    metadata: dict[str, Any],
    *,
    has_new_locations: bool = False,
) -> CatalogEntry:
    """Write the first metadata file of a new table or view and create its entry."""
    text = orjson.dumps(metadata)
    uuid_ = metadata[f"{kind}-uuid"]

    def make_plan() -> WritePlan[CatalogEntry]:
        require_available(state, identifier, kind)
        location = next_metadata_location(metadata, None)
        entry = CatalogEntry(
            kind, identifier.namespace.key, identifier.name, uuid_, UNNUMBERED, location, text
        )
        change = EntryChange(
            operation,
            kind,
            entry.namespace,
            entry.name,
            None,
            entry,
            summarize(metadata) if kind == "table" else {},
            locations.own_locations(metadata),
        )
        return WritePlan(entry, [change], [(location, text)], has_new_locations)

    return write_with_retry(catalog, state, context, make_plan)


def register(
    catalog: Catalog,
    state: WarehouseState,
    context: WriteContext,
    identifier: Identifier,
    location: object,
    *,
    overwrite: bool,
) -> CatalogEntry:
    """Create a table from an existing metadata file."""
    properties_of(state, identifier.namespace)
    file = locations.require_inside(state.warehouse, location, "metadata-location", file=True).text
    found, text = read_metadata(catalog, file)
    metadata = with_defaults(found, table_uuid=str(uuid.uuid4()))
    problems = violations(metadata)
    if problems:
        raise Invalid(f"Cannot register {file}: {problems[0]}")
    locations.check_metadata(state.warehouse, metadata)
    if metadata is not found:
        text = orjson.dumps(metadata)

    def make_plan() -> WritePlan[CatalogEntry]:
        base = state.load(identifier.namespace.key, identifier.name)
        if base is not None and (base.kind != "table" or not overwrite):
            require_available(state, identifier, "table")
        _refuse_protected(state, base, identifier, "overwrite")
        entry = CatalogEntry(
            "table",
            identifier.namespace.key,
            identifier.name,
            metadata["table-uuid"],
            UNNUMBERED,
            file,
            text,
        )
        change = EntryChange(
            "register-table",
            "table",
            entry.namespace,
            entry.name,
            base,
            entry,
            summarize(metadata),
            locations.own_locations(metadata),
        )
        return WritePlan(entry, [change])

    return write_with_retry(catalog, state, context, make_plan)


def read_metadata(catalog: Catalog, location: str) -> tuple[dict[str, Any], bytes]:
    """The content of a metadata file that another program wrote: parsed, and as text."""
    text = decode_metadata(location, catalog.files.read(location))
    try:
        metadata = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Invalid(f"The metadata file {location} is not JSON") from error
    if not isinstance(metadata, dict):
        raise Invalid(f"The metadata file {location} does not hold an object")
    return metadata, text


def drop(
    catalog: Catalog,
    state: WarehouseState,
    context: WriteContext,
    identifier: Identifier,
    kind: Kind = "table",
    *,
    forever: bool = False,
) -> CatalogEntry:
    """Drop a table or view.

    Its files stay, and it can be restored until its retention ends. With `forever` it is added to the purge
    queue instead and cannot be restored.
    """

    def make_plan() -> WritePlan[CatalogEntry]:
        # The store copies the document of a dropped table itself; a transaction stages it.
        entry = (load if state.is_transaction else require)(state, identifier, kind)
        _refuse_protected(state, entry, identifier, "drop")
        until_ms = PURGE_REQUESTED if forever else catalog.now_ms() + catalog.limits.drop_retention_s * 1000
        change = EntryChange(
            f"drop-{kind}",
            kind,
            entry.namespace,
            entry.name,
            entry,
            None,
            {"purge": forever},
            keep_until_ms=until_ms,
        )
        return WritePlan(entry, [change])

    return write_with_retry(catalog, state, context, make_plan)


def unregister(
    catalog: Catalog, state: WarehouseState, context: WriteContext, identifier: Identifier
) -> CatalogEntry:
    """Remove the table from the catalog and return its entry. Its files stay."""

    def make_plan() -> WritePlan[CatalogEntry]:
        entry = load(state, identifier)
        _refuse_protected(state, entry, identifier, "unregister")
        change = EntryChange("unregister-table", "table", entry.namespace, entry.name, entry, None)
        return WritePlan(entry, [change])

    return write_with_retry(catalog, state, context, make_plan)


def rename(
    catalog: Catalog,
    state: WarehouseState,
    context: WriteContext,
    source: Identifier,
    target: Identifier,
    kind: Kind = "table",
) -> None:
    """Rename a table or view. Its metadata and location stay the same."""

    def make_plan() -> WritePlan[None]:
        entry = load(state, source, kind)
        if state.entry(target.namespace.key, "") is None:
            raise NoSuchNamespace(f"Namespace does not exist: {target.namespace}")
        _refuse_existing(state, source, target, kind)
        moved = replace(entry, namespace=target.namespace.key, name=target.name)
        summary = summarize(orjson.loads(entry.document or b"{}")) if kind == "table" else {}
        removed = EntryChange(
            f"rename-{kind}", kind, entry.namespace, entry.name, entry, None, {"to": _to_json(target)}
        )
        added = EntryChange(
            f"rename-{kind}",
            kind,
            moved.namespace,
            moved.name,
            None,
            moved,
            {"from": _to_json(source), **summary},
        )
        return WritePlan(None, [removed, added])

    write_with_retry(catalog, state, context, make_plan)


def _refuse_existing(state: WarehouseState, source: Identifier, target: Identifier, kind: Kind) -> None:
    existing = state.entry(target.namespace.key, target.name)
    if existing is not None:
        raise AlreadyExists(
            f"Cannot rename {source} to {target}. {existing.kind.capitalize()} already exists"
        )


def _refuse_protected(
    state: WarehouseState, entry: CatalogEntry | None, identifier: Identifier, verb: str
) -> None:
    if entry is not None and state.is_protected(entry):
        raise Conflict(f"Cannot {verb} {identifier}: it is protected. Take the protection off first")


def undrop(
    catalog: Catalog,
    state: WarehouseState,
    context: WriteContext,
    dropped_id: str,
    target: Identifier | None = None,
) -> CatalogEntry:
    """Restore a dropped table or view, with its own name or another one."""

    def make_plan() -> WritePlan[CatalogEntry]:
        found = catalog.records.one_dropped(state.warehouse.name, dropped_id, catalog.now_ms())
        if found is None:
            raise NoSuchTable(f"No dropped table or view has the id {dropped_id}, or its retention has ended")
        entry = found.entry
        identifier = target or Identifier(Namespace.from_key(entry.namespace), entry.name)
        properties_of(state, identifier.namespace)
        require_available(state, identifier, entry.kind)
        restored = replace(
            entry, namespace=identifier.namespace.key, name=identifier.name, version=UNNUMBERED
        )
        summary = summarize(orjson.loads(entry.document or b"{}")) if entry.kind == "table" else {}
        former = Identifier(Namespace.from_key(entry.namespace), entry.name)
        if former != identifier:
            summary["from"] = _to_json(former)
        change = EntryChange(
            f"undrop-{entry.kind}",
            entry.kind,
            restored.namespace,
            restored.name,
            None,
            restored,
            summary,
            locations.own_locations(orjson.loads(entry.document or b"{}")),
        )
        return WritePlan(restored, [change])

    if state.is_transaction:
        raise Forbidden("A dropped table is brought back in the warehouse itself, not inside a transaction")
    return write_with_retry(catalog, state, context, make_plan)


def protect(catalog: Catalog, state: WarehouseState, identifier: Identifier, protected: bool) -> None:
    """Set or clear the flag that refuses drop, purge, unregister and overwrite."""
    if not catalog.records.protect(
        state.warehouse.name, identifier.namespace.key, identifier.name, protected
    ):
        raise NoSuchTable(f"Table does not exist: {identifier}")


def _to_json(identifier: Identifier) -> dict[str, Any]:
    return {"namespace": list(identifier.namespace.levels), "name": identifier.name}


def drop_table(
    catalog: Catalog, state: WarehouseState, context: WriteContext, identifier: Identifier, *, purge: bool
) -> None:
    """Drop a table. With `purge` its files are deleted soon after (see services/purge.py).

    Inside a transaction, the files are deleted after the transaction is published.
    """
    entry = drop(catalog, state, context, identifier, forever=purge)
    if purge and not state.is_transaction:
        catalog.purge_worker.submit(state.warehouse.name, [entry.uuid])
