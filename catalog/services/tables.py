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
from catalog.metadata.document import summarize, with_defaults
from catalog.metadata.files import decode_metadata, metadata_folder, next_metadata_location
from catalog.metadata.invariants import violations
from catalog.metadata.tables import new_table
from catalog.models import PURGE_WANTED, UNNUMBERED, CatalogEntry, EntryChange, Kind
from catalog.names import Identifier, Namespace
from catalog.services.catalog import Catalog
from catalog.services.namespaces import properties_of
from catalog.services.warehouse_state import WarehouseState
from catalog.services.writes import WriteContext, WritePlan, write_with_retry

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
    if catalog.files.has_vanished(location):
        raise FileNotFound(
            f"Failed to open input stream for file: {location} (`calve check --repair` writes it again)"
        )


def require_free(state: WarehouseState, identifier: Identifier, kind: Kind) -> None:
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
    asked: WriteContext,
    identifier: Identifier,
    request: dict[str, Any],
) -> CatalogEntry:
    namespace_properties = properties_of(state, identifier.namespace)
    metadata = _new_metadata(catalog, state, identifier, request, namespace_properties)
    return put_new(catalog, state, asked, identifier, "table", "create-table", metadata)


def stage(
    catalog: Catalog, state: WarehouseState, identifier: Identifier, request: dict[str, Any]
) -> dict[str, Any]:
    """The metadata of a table that is not stored yet. The client's commit sends all of it back."""
    namespace_properties = properties_of(state, identifier.namespace)
    require_free(state, identifier, "table")
    metadata = _new_metadata(catalog, state, identifier, request, namespace_properties)
    for place in locations.own_locations(metadata):
        if catalog.records.taken(state.warehouse.name, place):
            raise Invalid(f"Location {place} overlaps the location of another table")
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


def put_new(
    catalog: Catalog,
    state: WarehouseState,
    asked: WriteContext,
    identifier: Identifier,
    kind: Kind,
    operation: str,
    metadata: dict[str, Any],
) -> CatalogEntry:
    """Write the first metadata file of a new table or view and create its entry."""
    text = orjson.dumps(metadata)
    uuid_ = metadata[f"{kind}-uuid"]

    def decide() -> WritePlan[CatalogEntry]:
        require_free(state, identifier, kind)
        location = next_metadata_location(metadata, None)
        made = CatalogEntry(
            kind, identifier.namespace.key, identifier.name, uuid_, UNNUMBERED, location, text
        )
        change = EntryChange(
            operation,
            kind,
            made.namespace,
            made.name,
            None,
            made,
            summarize(metadata) if kind == "table" else {},
            locations.own_locations(metadata),
        )
        return WritePlan(made, [change], [(location, text)])

    return write_with_retry(catalog, state, asked, decide)


def register(
    catalog: Catalog,
    state: WarehouseState,
    asked: WriteContext,
    identifier: Identifier,
    location: object,
    *,
    overwrite: bool,
) -> CatalogEntry:
    """Create a table from an existing metadata file."""
    properties_of(state, identifier.namespace)
    place = locations.require_inside(state.warehouse, location, "metadata-location", file=True).text
    found, text = read_metadata(catalog, place)
    metadata = with_defaults(found, table_uuid=str(uuid.uuid4()))
    problems = violations(metadata)
    if problems:
        raise Invalid(f"Cannot register {place}: {problems[0]}")
    locations.check_metadata(state.warehouse, metadata)
    if metadata is not found:
        text = orjson.dumps(metadata)

    def decide() -> WritePlan[CatalogEntry]:
        base = state.load(identifier.namespace.key, identifier.name)
        if base is not None and (base.kind != "table" or not overwrite):
            require_free(state, identifier, "table")
        _refuse_protected(state, base, identifier, "overwrite")
        made = CatalogEntry(
            "table",
            identifier.namespace.key,
            identifier.name,
            metadata["table-uuid"],
            UNNUMBERED,
            place,
            text,
        )
        change = EntryChange(
            "register-table",
            "table",
            made.namespace,
            made.name,
            base,
            made,
            summarize(metadata),
            locations.own_locations(metadata),
        )
        return WritePlan(made, [change])

    return write_with_retry(catalog, state, asked, decide)


def read_metadata(catalog: Catalog, place: str) -> tuple[dict[str, Any], bytes]:
    """The content of a metadata file that another program wrote: parsed, and as text."""
    text = decode_metadata(place, catalog.files.read(place))
    try:
        metadata = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Invalid(f"The metadata file {place} is not JSON") from error
    if not isinstance(metadata, dict):
        raise Invalid(f"The metadata file {place} does not hold an object")
    return metadata, text


def drop(
    catalog: Catalog,
    state: WarehouseState,
    asked: WriteContext,
    identifier: Identifier,
    kind: Kind = "table",
    *,
    forever: bool = False,
) -> CatalogEntry:
    """Drop a table or view.

    Its files stay, and it can be restored until its retention ends. With `forever` it is added to the purge
    queue instead and cannot be restored.
    """

    def decide() -> WritePlan[CatalogEntry]:
        entry = load(state, identifier, kind)
        _refuse_protected(state, entry, identifier, "drop")
        until_ms = PURGE_WANTED if forever else catalog.now_ms() + catalog.limits.drop_retention_s * 1000
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

    return write_with_retry(catalog, state, asked, decide)


def unregister(
    catalog: Catalog, state: WarehouseState, asked: WriteContext, identifier: Identifier
) -> CatalogEntry:
    """Remove the table from the catalog and return its entry. Its files stay."""

    def decide() -> WritePlan[CatalogEntry]:
        entry = load(state, identifier)
        _refuse_protected(state, entry, identifier, "unregister")
        change = EntryChange("unregister-table", "table", entry.namespace, entry.name, entry, None)
        return WritePlan(entry, [change])

    return write_with_retry(catalog, state, asked, decide)


def rename(
    catalog: Catalog,
    state: WarehouseState,
    asked: WriteContext,
    source: Identifier,
    target: Identifier,
    kind: Kind = "table",
) -> None:
    """Rename a table or view. Its metadata and location stay the same."""

    def decide() -> WritePlan[None]:
        entry = load(state, source, kind)
        if state.entry(target.namespace.key, "") is None:
            raise NoSuchNamespace(f"Namespace does not exist: {target.namespace}")
        _refuse_taken(state, source, target, kind)
        moved = replace(entry, namespace=target.namespace.key, name=target.name)
        noted = summarize(orjson.loads(entry.document or b"{}")) if kind == "table" else {}
        away = EntryChange(
            f"rename-{kind}", kind, entry.namespace, entry.name, entry, None, {"to": _spelled(target)}
        )
        here = EntryChange(
            f"rename-{kind}",
            kind,
            moved.namespace,
            moved.name,
            None,
            moved,
            {"from": _spelled(source), **noted},
        )
        return WritePlan(None, [away, here])

    write_with_retry(catalog, state, asked, decide)


def _refuse_taken(state: WarehouseState, source: Identifier, target: Identifier, kind: Kind) -> None:
    taken = state.entry(target.namespace.key, target.name)
    if taken is not None:
        raise AlreadyExists(f"Cannot rename {source} to {target}. {taken.kind.capitalize()} already exists")


def _refuse_protected(
    state: WarehouseState, entry: CatalogEntry | None, identifier: Identifier, verb: str
) -> None:
    if entry is not None and state.is_protected(entry):
        raise Conflict(f"Cannot {verb} {identifier}: it is protected. Take the protection off first")


def undrop(
    catalog: Catalog,
    state: WarehouseState,
    asked: WriteContext,
    dropped_id: str,
    target: Identifier | None = None,
) -> CatalogEntry:
    """Restore a dropped table or view, with its own name or another one."""

    def decide() -> WritePlan[CatalogEntry]:
        found = catalog.records.one_dropped(state.warehouse.name, dropped_id, catalog.now_ms())
        if found is None:
            raise NoSuchTable(f"No dropped table or view has the id {dropped_id}, or its retention has ended")
        entry = found.entry
        identifier = target or Identifier(Namespace.from_key(entry.namespace), entry.name)
        properties_of(state, identifier.namespace)
        require_free(state, identifier, entry.kind)
        back = replace(entry, namespace=identifier.namespace.key, name=identifier.name, version=UNNUMBERED)
        noted = summarize(orjson.loads(entry.document or b"{}")) if entry.kind == "table" else {}
        change = EntryChange(
            f"undrop-{entry.kind}",
            entry.kind,
            back.namespace,
            back.name,
            None,
            back,
            noted,
            locations.own_locations(orjson.loads(entry.document or b"{}")),
        )
        return WritePlan(back, [change])

    if state.is_transaction:
        raise Forbidden("A dropped table is brought back in the warehouse itself, not inside a transaction")
    return write_with_retry(catalog, state, asked, decide)


def protect(catalog: Catalog, state: WarehouseState, identifier: Identifier, protected: bool) -> None:
    """Set or clear the flag that refuses drop, purge, unregister and overwrite."""
    if not catalog.records.protect(
        state.warehouse.name, identifier.namespace.key, identifier.name, protected
    ):
        raise NoSuchTable(f"Table does not exist: {identifier}")


def _spelled(identifier: Identifier) -> dict[str, Any]:
    return {"namespace": list(identifier.namespace.levels), "name": identifier.name}


def drop_table(
    catalog: Catalog, state: WarehouseState, asked: WriteContext, identifier: Identifier, *, purge: bool
) -> None:
    """Drop a table. With `purge` its files are deleted soon after (see services/purge.py).

    Inside a transaction, the files are deleted after the transaction is published.
    """
    entry = drop(catalog, state, asked, identifier, forever=purge)
    if purge and not state.is_transaction:
        catalog.purge_worker.submit(state.warehouse.name, [entry.uuid])
