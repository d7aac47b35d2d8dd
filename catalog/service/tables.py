"""Tables apart from commits: create, stage, register, load, drop, rename, undrop, protect."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import orjson

from catalog.changes import PURGE_WANTED, UNNUMBERED, Change, Entry, Kind
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
from catalog.metadata.document_defaults import with_defaults
from catalog.metadata.invariants import violations
from catalog.metadata.rebuild import summarize
from catalog.metadata.tables import new_table
from catalog.names import Identifier, Namespace
from catalog.service import places
from catalog.service.catalog import Catalog
from catalog.service.files import decode_metadata, metadata_folder, next_metadata_location
from catalog.service.namespaces import properties_of
from catalog.service.states import State
from catalog.service.writing import Asked, Decision, carry_out

NO_SUCH: dict[Kind, type[NoSuchTable | NoSuchView]] = {"table": NoSuchTable, "view": NoSuchView}


def load(state: State, identifier: Identifier, kind: Kind = "table") -> Entry:
    """The entry with its document."""
    entry = state.load(identifier.namespace.key, identifier.name)
    if entry is None or entry.kind != kind:
        raise NO_SUCH[kind](f"{kind.capitalize()} does not exist: {identifier}")
    return entry


def require(state: State, identifier: Identifier, kind: Kind = "table") -> Entry:
    """The same without the document."""
    entry = state.entry(identifier.namespace.key, identifier.name)
    if entry is None or entry.kind != kind:
        raise NO_SUCH[kind](f"{kind.capitalize()} does not exist: {identifier}")
    return entry


def require_file(catalog: Catalog, entry: Entry) -> None:
    """The metadata file is still there, where that can be seen for the price of a `stat`.

    The row would do to answer, but a table whose files someone has removed should say so at once, as other
    catalogs do, and not at the first scan.
    """
    location = str(entry.metadata_location)
    if catalog.files.has_vanished(location):
        raise FileNotFound(
            f"Failed to open input stream for file: {location} (`calve check --repair` writes it again)"
        )


def require_free(state: State, identifier: Identifier, kind: Kind) -> None:
    """No table and no view has the name; the text says which of them does."""
    entry = state.entry(identifier.namespace.key, identifier.name)
    if entry is None:
        return
    if entry.kind == kind:
        raise AlreadyExists(f"{kind.capitalize()} already exists: {identifier}")
    raise AlreadyExists(f"{entry.kind.capitalize()} with same name already exists: {identifier}")


def create(
    catalog: Catalog, state: State, asked: Asked, identifier: Identifier, request: dict[str, Any]
) -> Entry:
    namespace_properties = properties_of(state, identifier.namespace)
    metadata = _new_metadata(catalog, state, identifier, request, namespace_properties)
    return put_new(catalog, state, asked, identifier, "table", "create-table", metadata)


def stage(catalog: Catalog, state: State, identifier: Identifier, request: dict[str, Any]) -> dict[str, Any]:
    """A table that exists only in the client's hands: nothing is kept, its commit brings everything back."""
    namespace_properties = properties_of(state, identifier.namespace)
    require_free(state, identifier, "table")
    metadata = _new_metadata(catalog, state, identifier, request, namespace_properties)
    for place in places.own_places(metadata):
        if catalog.records.taken(state.warehouse.name, place):
            raise Invalid(f"Location {place} overlaps the location of another table")
    # DuckDB writes manifests into this folder without making it.
    catalog.files.make_directory(metadata_folder(metadata))
    return metadata


def _new_metadata(
    catalog: Catalog, state: State, identifier: Identifier, request: dict[str, Any], inherited: dict[str, str]
) -> dict[str, Any]:
    location = request.get("location")
    if location is None:
        location = places.default_location(identifier, inherited["location"])
    location = places.require_below(state.warehouse, location, "location").text.rstrip("/")
    for key, value in places.path_properties(request.get("properties")):
        places.require_inside(state.warehouse, value, key)
    return new_table(request, location=location, table_uuid=str(uuid.uuid4()), now_ms=catalog.now_ms())


def put_new(
    catalog: Catalog,
    state: State,
    asked: Asked,
    identifier: Identifier,
    kind: Kind,
    operation: str,
    metadata: dict[str, Any],
) -> Entry:
    """Write the first file of a new table or view, and give it its name."""
    text = orjson.dumps(metadata)
    uuid_ = metadata[f"{kind}-uuid"]

    def decide() -> Decision[Entry]:
        require_free(state, identifier, kind)
        location = next_metadata_location(metadata, None)
        made = Entry(kind, identifier.namespace.key, identifier.name, uuid_, UNNUMBERED, location, text)
        change = Change(
            operation,
            kind,
            made.namespace,
            made.name,
            None,
            made,
            summarize(metadata) if kind == "table" else {},
            places.own_places(metadata),
        )
        return Decision(made, [change], [(location, text)])

    return carry_out(catalog, state, asked, decide)


def register(
    catalog: Catalog, state: State, asked: Asked, identifier: Identifier, location: object, *, overwrite: bool
) -> Entry:
    """Give a name to a table whose metadata file is there already."""
    properties_of(state, identifier.namespace)
    place = places.require_inside(state.warehouse, location, "metadata-location", file=True).text
    found, text = read_metadata(catalog, place)
    metadata = with_defaults(found, table_uuid=str(uuid.uuid4()))
    problems = violations(metadata)
    if problems:
        raise Invalid(f"Cannot register {place}: {problems[0]}")
    places.check_metadata(state.warehouse, metadata)
    if metadata is not found:
        text = orjson.dumps(metadata)

    def decide() -> Decision[Entry]:
        base = state.load(identifier.namespace.key, identifier.name)
        if base is not None and (base.kind != "table" or not overwrite):
            require_free(state, identifier, "table")
        _refuse_protected(state, base, identifier, "overwrite")
        made = Entry(
            "table",
            identifier.namespace.key,
            identifier.name,
            metadata["table-uuid"],
            UNNUMBERED,
            place,
            text,
        )
        change = Change(
            "register-table",
            "table",
            made.namespace,
            made.name,
            base,
            made,
            summarize(metadata),
            places.own_places(metadata),
        )
        return Decision(made, [change])

    return carry_out(catalog, state, asked, decide)


def read_metadata(catalog: Catalog, place: str) -> tuple[dict[str, Any], bytes]:
    """A metadata file that others wrote: parsed, and as text."""
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
    state: State,
    asked: Asked,
    identifier: Identifier,
    kind: Kind = "table",
    *,
    forever: bool = False,
) -> Entry:
    """Take the name away.

    Files stay, and the entry can be brought back until its retention ends; unless it is dropped `forever`,
    and then it stays on the list of what to purge until its files are gone.
    """

    def decide() -> Decision[Entry]:
        entry = load(state, identifier, kind)
        _refuse_protected(state, entry, identifier, "drop")
        until_ms = PURGE_WANTED if forever else catalog.now_ms() + catalog.limits.drop_retention_s * 1000
        change = Change(
            f"drop-{kind}",
            kind,
            entry.namespace,
            entry.name,
            entry,
            None,
            {"purge": forever},
            keep_until_ms=until_ms,
        )
        return Decision(entry, [change])

    return carry_out(catalog, state, asked, decide)


def unregister(catalog: Catalog, state: State, asked: Asked, identifier: Identifier) -> Entry:
    """Take the name away and answer where the metadata is; everything stays as it is in storage."""

    def decide() -> Decision[Entry]:
        entry = load(state, identifier)
        _refuse_protected(state, entry, identifier, "unregister")
        change = Change("unregister-table", "table", entry.namespace, entry.name, entry, None)
        return Decision(entry, [change])

    return carry_out(catalog, state, asked, decide)


def rename(
    catalog: Catalog, state: State, asked: Asked, source: Identifier, target: Identifier, kind: Kind = "table"
) -> None:
    """Another name for the same thing: neither metadata nor location change."""

    def decide() -> Decision[None]:
        entry = load(state, source, kind)
        if state.entry(target.namespace.key, "") is None:
            raise NoSuchNamespace(f"Namespace does not exist: {target.namespace}")
        _refuse_taken(state, source, target, kind)
        moved = replace(entry, namespace=target.namespace.key, name=target.name)
        noted = summarize(orjson.loads(entry.document or b"{}")) if kind == "table" else {}
        away = Change(
            f"rename-{kind}", kind, entry.namespace, entry.name, entry, None, {"to": _spelled(target)}
        )
        here = Change(
            f"rename-{kind}",
            kind,
            moved.namespace,
            moved.name,
            None,
            moved,
            {"from": _spelled(source), **noted},
        )
        return Decision(None, [away, here])

    carry_out(catalog, state, asked, decide)


def _refuse_taken(state: State, source: Identifier, target: Identifier, kind: Kind) -> None:
    taken = state.entry(target.namespace.key, target.name)
    if taken is not None:
        raise AlreadyExists(f"Cannot rename {source} to {target}. {taken.kind.capitalize()} already exists")


def _refuse_protected(state: State, entry: Entry | None, identifier: Identifier, verb: str) -> None:
    if entry is not None and state.is_protected(entry):
        raise Conflict(f"Cannot {verb} {identifier}: it is protected. Take the protection off first")


def undrop(
    catalog: Catalog, state: State, asked: Asked, dropped_id: str, target: Identifier | None = None
) -> Entry:
    """Bring a dropped table or view back, under its own name or another."""

    def decide() -> Decision[Entry]:
        found = catalog.records.one_dropped(state.warehouse.name, dropped_id, catalog.now_ms())
        if found is None:
            raise NoSuchTable(f"No dropped table or view has the id {dropped_id}, or its retention has ended")
        entry = found.entry
        identifier = target or Identifier(Namespace.from_key(entry.namespace), entry.name)
        properties_of(state, identifier.namespace)
        require_free(state, identifier, entry.kind)
        back = replace(entry, namespace=identifier.namespace.key, name=identifier.name, version=UNNUMBERED)
        noted = summarize(orjson.loads(entry.document or b"{}")) if entry.kind == "table" else {}
        change = Change(
            f"undrop-{entry.kind}",
            entry.kind,
            back.namespace,
            back.name,
            None,
            back,
            noted,
            places.own_places(orjson.loads(entry.document or b"{}")),
        )
        return Decision(back, [change])

    if state.holds_back:
        raise Forbidden("A dropped table is brought back in the warehouse itself, not inside a transaction")
    return carry_out(catalog, state, asked, decide)


def protect(catalog: Catalog, state: State, identifier: Identifier, protected: bool) -> None:
    """Set or clear the flag that refuses drop, purge, unregister and overwrite."""
    if not catalog.records.protect(
        state.warehouse.name, identifier.namespace.key, identifier.name, protected
    ):
        raise NoSuchTable(f"Table does not exist: {identifier}")


def _spelled(identifier: Identifier) -> dict[str, Any]:
    return {"namespace": list(identifier.namespace.levels), "name": identifier.name}
