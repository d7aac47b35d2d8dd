"""Views: create, replace, register. Drop and rename are those of tables."""

from __future__ import annotations

import uuid
from typing import Any

import orjson

from catalog.changes import UNNUMBERED, Change, Entry
from catalog.errors import Invalid, NotWritten
from catalog.metadata.view_invariants import view_violations
from catalog.metadata.views import apply_view, is_view_replay, new_view
from catalog.names import Identifier
from catalog.service import places
from catalog.service.catalog import Catalog
from catalog.service.commits import not_committed
from catalog.service.documents import document_key
from catalog.service.files import next_metadata_location
from catalog.service.namespaces import properties_of
from catalog.service.states import State
from catalog.service.tables import load, put_new, read_metadata, require_free
from catalog.service.writing import Asked, Decision, carry_out


def create(
    catalog: Catalog, state: State, asked: Asked, identifier: Identifier, request: dict[str, Any]
) -> Entry:
    inherited = properties_of(state, identifier.namespace)
    location = request.get("location")
    if location is None:
        location = places.default_location(identifier, inherited["location"])
    location = places.require_below(state.warehouse, location, "location").text.rstrip("/")
    for key, value in places.path_properties(request.get("properties")):
        places.require_inside(state.warehouse, value, key)
    metadata = new_view(request, location=location, view_uuid=str(uuid.uuid4()), now_ms=catalog.now_ms())
    return put_new(catalog, state, asked, identifier, "view", "create-view", metadata)


def replace(
    catalog: Catalog,
    state: State,
    asked: Asked,
    identifier: Identifier,
    requirements: list[Any],
    updates: list[Any],
) -> Entry:
    """Apply updates to a view; concurrent replaces follow each other."""
    places.check_updates(state.warehouse, updates)

    def decide() -> Decision[Entry]:
        entry = load(state, identifier, "view")
        assert entry.document is not None
        before = catalog.documents.parsed(document_key(entry), entry.document)
        if is_view_replay(before, requirements, updates):
            return Decision(entry)
        after = apply_view(before, requirements, updates, now_ms=catalog.now_ms())
        if after is before:
            return Decision(entry)
        places.check_result(state.warehouse, before, after)
        location = next_metadata_location(after, entry.metadata_location)
        text = orjson.dumps(after)
        made = Entry("view", entry.namespace, entry.name, entry.uuid, entry.version + 1, location, text)
        detail = {"updates": [update["action"] for update in updates]}
        change = Change(
            "replace-view",
            "view",
            entry.namespace,
            entry.name,
            entry,
            made,
            detail,
            places.new_places(before, after),
        )
        return Decision(made, [change], [(location, text)])

    try:
        return carry_out(catalog, state, asked, decide)
    except NotWritten as error:
        raise not_committed(error) from error


def register(catalog: Catalog, state: State, asked: Asked, identifier: Identifier, location: object) -> Entry:
    """Give a name to a view whose metadata file is there already."""
    properties_of(state, identifier.namespace)
    place = places.require_inside(state.warehouse, location, "metadata-location", file=True).text
    metadata, text = read_metadata(catalog, place)
    problems = view_violations(metadata)
    if problems:
        raise Invalid(f"Cannot register {place}: {problems[0]}")
    places.require_below(state.warehouse, metadata.get("location"), "location")
    for key, value in places.path_properties(metadata.get("properties")):
        places.require_inside(state.warehouse, value, key)

    def decide() -> Decision[Entry]:
        require_free(state, identifier, "view")
        made = Entry(
            "view", identifier.namespace.key, identifier.name, metadata["view-uuid"], UNNUMBERED, place, text
        )
        change = Change(
            "register-view", "view", made.namespace, made.name, None, made, {}, places.own_places(metadata)
        )
        return Decision(made, [change])

    return carry_out(catalog, state, asked, decide)
