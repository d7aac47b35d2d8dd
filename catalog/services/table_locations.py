"""Places: every location that a client names must lie inside its warehouse, before any storage is touched."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from catalog.errors import Invalid
from catalog.locations import Location, slug
from catalog.models import Warehouse
from catalog.names import Identifier, Namespace

# Properties that make engines, or this server, write somewhere. Compared without case: no variant slips
# through.
PATH_PROPERTIES = frozenset(
    {"write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path"}
)


_root = lru_cache(1024)(Location.parse)  # of warehouses, which are few


def require_inside(warehouse: Warehouse, text: object, what: str, *, file: bool = False) -> Location:
    """The location, parsed, if it lies inside the warehouse; else Invalid."""
    location = Location.parse_file(text) if file else Location.parse(text)
    if not location.is_inside(_root(warehouse.root)):
        raise Invalid(
            f"The {what} {location.text} is outside the warehouse: it must lie below {warehouse.root}"
        )
    return location


def require_below(warehouse: Warehouse, text: object, what: str) -> Location:
    """The same, and not the root itself: a table there would leave no place for any other."""
    location = require_inside(warehouse, text, what)
    if location == _root(warehouse.root):
        raise Invalid(
            f"The {what} {location.text} is the warehouse itself: it must lie below {warehouse.root}"
        )
    return location


def check_result(warehouse: Warehouse, before: dict[str, Any] | None, after: dict[str, Any]) -> None:
    """What the request came to, whatever it was spelled like: the last look before anything is written."""
    if before is None or before["location"] != after["location"]:
        require_below(warehouse, after["location"], "location")
    if before is None or before.get("properties") is not after.get("properties"):
        for key, value in path_properties(after.get("properties")):
            require_inside(warehouse, value, key)


def default_namespace_location(warehouse: Warehouse, namespace: Namespace) -> str:
    """Below the root of the warehouse, one folder for each level."""
    return "/".join([warehouse.root.rstrip("/"), *(slug(level) for level in namespace.levels)])


def default_location(identifier: Identifier, namespace_location: str) -> str:
    """A fresh place that no other table has had: readable, and unique by a uuid."""
    return f"{namespace_location.rstrip('/')}/{slug(identifier.name)}-{uuid.uuid4().hex}"


def path_properties(properties: object) -> Iterator[tuple[str, object]]:
    if isinstance(properties, dict):
        for key, value in properties.items():
            if isinstance(key, str) and key.lower() in PATH_PROPERTIES:
                yield key, value


def check_updates(warehouse: Warehouse, updates: list[Any]) -> None:
    """Every place that a list of updates names, whatever the rest of it looks like."""
    for update in updates:
        if not isinstance(update, dict):
            continue
        if str(update.get("action")).lower() == "set-location":
            require_below(warehouse, update.get("location"), "location")
        for field in ("updates", "updated"):  # the second is an older name of the first
            for key, value in path_properties(update.get(field)):
                require_inside(warehouse, value, key)
        for what, place in _files_of(update):
            require_inside(warehouse, place, what, file=True)


def _files_of(update: dict[str, Any]) -> Iterator[tuple[str, object]]:
    snapshot = update.get("snapshot")
    if isinstance(snapshot, dict):
        yield from _files_of_snapshot(snapshot)
    for key in ("statistics", "partition-statistics"):
        value = update.get(key)
        if isinstance(value, dict) and "statistics-path" in value:
            yield "statistics-path", value["statistics-path"]


def _files_of_snapshot(snapshot: dict[str, Any]) -> Iterator[tuple[str, object]]:
    if snapshot.get("manifest-list") is not None:
        yield "manifest-list", snapshot["manifest-list"]
    manifests = snapshot.get("manifests")
    for place in manifests if isinstance(manifests, list) else []:
        yield "manifest", place


def check_metadata(warehouse: Warehouse, metadata: dict[str, Any]) -> None:
    """Every place in a whole document that somebody else wrote."""
    require_below(warehouse, metadata.get("location"), "location")
    for key, value in path_properties(metadata.get("properties")):
        require_inside(warehouse, value, key)
    for snapshot in metadata.get("snapshots") or []:
        for what, place in _files_of_snapshot(snapshot):
            require_inside(warehouse, place, what, file=True)
    for key in ("statistics", "partition-statistics"):
        for statistics in metadata.get(key) or []:
            require_inside(warehouse, statistics.get("statistics-path"), "statistics-path", file=True)
    for old in metadata.get("metadata-log") or []:
        require_inside(warehouse, old.get("metadata-file"), "metadata-log entry", file=True)


def own_locations(metadata: dict[str, Any]) -> tuple[str, ...]:
    """Canonical places that a table writes to: its location, and path properties that lie outside of it."""
    location = Location.parse(metadata["location"])
    places = [location]
    for _, value in path_properties(metadata.get("properties")):
        place = Location.parse(value)
        if not any(place.is_inside(known) for known in places):
            places.append(place)
    return tuple(place.canonical for place in places)


def new_locations(before: dict[str, Any] | None, after: dict[str, Any]) -> tuple[str, ...]:
    """Places of `after` that `before` did not have."""
    if before is None:
        return own_locations(after)
    if before["location"] == after["location"] and before.get("properties") is after.get("properties"):
        return ()  # the usual commit: nothing to look at
    had = own_locations(before)
    return tuple(place for place in own_locations(after) if place not in had)
