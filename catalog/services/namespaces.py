"""Namespaces: nested, with properties. A namespace can be dropped only when it is empty."""

from __future__ import annotations

import uuid
from typing import Any

import orjson

from catalog import locations
from catalog.errors import AlreadyExists, Invalid, NamespaceNotEmpty, NoSuchNamespace, Unprocessable
from catalog.models import CatalogEntry, EntryChange
from catalog.names import Namespace
from catalog.services.catalog import Catalog
from catalog.services.warehouse_state import WarehouseState
from catalog.services.writes import WriteContext, WritePlan, write_with_retry

PROPERTIES_MAX = 1000
PROPERTY_CHARACTERS_MAX = 65_536


def properties_of(state: WarehouseState, namespace: Namespace) -> dict[str, str]:
    """The properties of an existing namespace, including its location."""
    return _with_location(state, namespace, _properties(_require(state, namespace)))


def require_namespace(state: WarehouseState, namespace: Namespace) -> None:
    if state.entry(namespace.key, "") is None:
        raise NoSuchNamespace(f"Namespace does not exist: {namespace}")


def create(
    catalog: Catalog, state: WarehouseState, context: WriteContext, namespace: Namespace, properties: object
) -> dict[str, str]:
    checked = check_properties({} if properties is None else properties)
    _check_location(state, checked)
    _check_levels(namespace, catalog.limits.namespace_separator)

    def make_plan() -> WritePlan[dict[str, str]]:
        if state.entry(namespace.key, "") is not None:
            raise AlreadyExists(f"Namespace already exists: {namespace}")
        if len(namespace.levels) > 1:
            require_namespace(state, Namespace(namespace.levels[:-1]))
        entry = _entry(namespace, str(uuid.uuid4()), 1, checked)
        result = _with_location(state, namespace, checked)
        return WritePlan(result, [_change("create-namespace", namespace, None, entry, checked)])

    return write_with_retry(catalog, state, context, make_plan)


def drop(catalog: Catalog, state: WarehouseState, context: WriteContext, namespace: Namespace) -> None:
    def make_plan() -> WritePlan[None]:
        entry = _require(state, namespace)
        key = namespace.key
        if state.names(key, "table", "", 1) or state.names(key, "view", "", 1) or state.children(key, "", 1):
            raise NamespaceNotEmpty(f"Namespace {namespace} is not empty")
        return WritePlan(None, [_change("drop-namespace", namespace, entry, None, {})])

    write_with_retry(catalog, state, context, make_plan)


def update_properties(
    catalog: Catalog,
    state: WarehouseState,
    context: WriteContext,
    namespace: Namespace,
    updates: object,
    removals: object,
) -> dict[str, list[str]]:
    """Set and remove properties. Returns which keys were updated, removed and missing."""
    to_set = check_properties({} if updates is None else updates)
    to_remove = _check_removals([] if removals is None else removals)
    both = sorted(set(to_set) & set(to_remove))
    if both:
        raise Unprocessable(f"Cannot update and remove the same keys in one request: {', '.join(both)}")
    _check_location(state, to_set)

    def make_plan() -> WritePlan[dict[str, list[str]]]:
        entry = _require(state, namespace)
        before = _properties(entry)
        after_properties = {key: value for key, value in (before | to_set).items() if key not in to_remove}
        answer = {
            "updated": sorted(to_set),
            "removed": [key for key in to_remove if key in before],
            "missing": [key for key in to_remove if key not in before],
        }
        if after_properties == before:
            return WritePlan(answer)
        check_properties(after_properties)
        after = _entry(namespace, entry.uuid, entry.version + 1, after_properties)
        return WritePlan(answer, [_change("update-namespace", namespace, entry, after, after_properties)])

    return write_with_retry(catalog, state, context, make_plan)


def check_properties(value: object) -> dict[str, str]:
    """Check that the value maps strings to strings and is within the limits."""
    if not isinstance(value, dict):
        raise Invalid("properties must be an object of strings")
    if len(value) > PROPERTIES_MAX:
        raise Invalid(f"At most {PROPERTIES_MAX} properties are allowed")
    for key, text in value.items():
        if not isinstance(text, str):
            raise Invalid(f"The property {key} must be a string")
        if len(key) > PROPERTY_CHARACTERS_MAX or len(text) > PROPERTY_CHARACTERS_MAX:
            raise Invalid(f"The property {key[:40]} is longer than {PROPERTY_CHARACTERS_MAX} characters")
    return value


def _check_removals(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(key, str) for key in value):
        raise Invalid("removals must be a list of strings")
    if len(set(value)) != len(value):
        raise Invalid("removals must name each property once")
    return value


def _check_location(state: WarehouseState, properties: dict[str, str]) -> None:
    for key, value in properties.items():
        if key.lower() == "location":
            locations.require_inside(state.warehouse, value, "location")


def _check_levels(namespace: Namespace, separator: str) -> None:
    """Refuse levels that contain the separator: no URL could name such a namespace."""
    for level in namespace.levels:
        if separator in level:
            raise Invalid(
                f"Invalid namespace level name: {level} contains {separator!r}, which separates the levels "
                "of a namespace in addresses on this server (namespace-separator in /v1/config)"
            )


def _with_location(state: WarehouseState, namespace: Namespace, properties: dict[str, str]) -> dict[str, str]:
    """The properties, with the default location if none is set.

    Trino creates tables below the location of their schema and fails if the schema has none.
    """
    if "location" in properties:
        return properties
    return {**properties, "location": locations.default_namespace_location(state.warehouse, namespace)}


def _require(state: WarehouseState, namespace: Namespace) -> CatalogEntry:
    entry = state.load(namespace.key, "")
    if entry is None:
        raise NoSuchNamespace(f"Namespace does not exist: {namespace}")
    return entry


def _properties(entry: CatalogEntry) -> dict[str, str]:
    properties: dict[str, str] = orjson.loads(entry.document or b"{}")
    return properties


def _entry(namespace: Namespace, uuid_: str, version: int, properties: dict[str, str]) -> CatalogEntry:
    return CatalogEntry("namespace", namespace.key, "", uuid_, version, None, orjson.dumps(properties))


def _change(
    operation: str,
    namespace: Namespace,
    base: CatalogEntry | None,
    after: CatalogEntry | None,
    properties: dict[str, Any],
) -> EntryChange:
    # The history stores the properties, because a namespace has no metadata file to read them from later.
    detail = {"properties": properties}
    return EntryChange(operation, "namespace", namespace.key, "", base, after, detail)
