"""Views: create, replace, register. Dropping and renaming are in services/tables.py."""

from __future__ import annotations

import uuid
from typing import Any

import orjson

from catalog import locations
from catalog.errors import Invalid, NotWritten
from catalog.metadata.view_invariants import view_violations
from catalog.metadata.views import apply_view, is_view_replay, new_view
from catalog.models import UNNUMBERED, CatalogEntry, EntryChange
from catalog.names import Identifier
from catalog.services.catalog import Catalog
from catalog.services.commits import not_committed
from catalog.services.namespaces import properties_of
from catalog.services.tables import create_entry, load, read_metadata, require_available
from catalog.services.warehouse_state import WarehouseState
from catalog.services.writes import WriteContext, WritePlan, next_metadata_location, write_with_retry


def create(
    catalog: Catalog,
    state: WarehouseState,
    context: WriteContext,
    identifier: Identifier,
    request: dict[str, Any],
) -> CatalogEntry:
    inherited = properties_of(state, identifier.namespace)
    location = request.get("location")
    if location is None:
        location = locations.default_location(identifier, inherited["location"])
    location = locations.require_below(state.warehouse, location, "location").text.rstrip("/")
    for key, value in locations.path_properties(request.get("properties")):
        locations.require_inside(state.warehouse, value, key)
    metadata = new_view(request, location=location, view_uuid=str(uuid.uuid4()), now_ms=catalog.now_ms())
    return create_entry(catalog, state, context, identifier, "view", "create-view", metadata)


def replace(
    catalog: Catalog,
    state: WarehouseState,
    context: WriteContext,
    identifier: Identifier,
    requirements: list[Any],
    updates: list[Any],
) -> CatalogEntry:
    """Apply updates to a view."""
    locations.check_updates(state.warehouse, updates)

    def make_plan() -> WritePlan[CatalogEntry]:
        entry = load(state, identifier, "view")
        before = catalog.documents.parsed(entry)
        if is_view_replay(before, requirements, updates):
            return WritePlan(entry)
        after = apply_view(before, requirements, updates, now_ms=catalog.now_ms())
        if after is before:
            return WritePlan(entry)
        locations.check_result(state.warehouse, before, after)
        location = next_metadata_location(after, entry.metadata_location)
        text = orjson.dumps(after)
        replaced = CatalogEntry(
            "view", entry.namespace, entry.name, entry.uuid, entry.version + 1, location, text
        )
        detail = {"updates": [update["action"] for update in updates]}
        change = EntryChange(
            "replace-view",
            "view",
            entry.namespace,
            entry.name,
            entry,
            replaced,
            detail,
            locations.new_locations(before, after),
        )
        return WritePlan(replaced, [change], [(location, text)])

    try:
        return write_with_retry(catalog, state, context, make_plan)
    except NotWritten as error:
        raise not_committed(error) from error


def register(
    catalog: Catalog, state: WarehouseState, context: WriteContext, identifier: Identifier, location: object
) -> CatalogEntry:
    """Create a view from an existing metadata file."""
    properties_of(state, identifier.namespace)
    file = locations.require_inside(state.warehouse, location, "metadata-location", file=True).text
    metadata, text = read_metadata(catalog, file)
    problems = view_violations(metadata)
    if problems:
        raise Invalid(f"Cannot register {file}: {problems[0]}")
    locations.require_below(state.warehouse, metadata.get("location"), "location")
    for key, value in locations.path_properties(metadata.get("properties")):
        locations.require_inside(state.warehouse, value, key)

    def make_plan() -> WritePlan[CatalogEntry]:
        require_available(state, identifier, "view")
        created = CatalogEntry(
            "view", identifier.namespace.key, identifier.name, metadata["view-uuid"], UNNUMBERED, file, text
        )
        change = EntryChange(
            "register-view",
            "view",
            created.namespace,
            created.name,
            None,
            created,
            {},
            locations.own_locations(metadata),
        )
        return WritePlan(created, [change])

    return write_with_retry(catalog, state, context, make_plan)
