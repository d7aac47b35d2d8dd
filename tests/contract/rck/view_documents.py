"""View metadata documents that the engine produced: one for every kind of change, each with a name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from catalog.metadata.document import Metadata
from catalog.metadata.views import apply_view, new_view

UUID = "5f4f2b0e-5d0c-4b7a-9d1e-0a2b3c4d5e6f"
LOCATION = "file:///warehouse/db/v"
NOW_MS = 1_790_000_000_000
LAST_ADDED = -1


def produced_view_documents() -> Iterator[tuple[str, Metadata]]:
    first = _created()
    yield "view-created", first
    yield (
        "view-with-properties",
        _after(first, {"action": "set-properties", "updates": {"comment": "ärger 🧊"}}),
    )
    yield "view-moved", _after(first, {"action": "set-location", "location": f"{LOCATION}2"})
    replaced = _replaced(first, 2)
    yield "view-replaced", replaced
    back = {"action": "set-current-view-version", "view-version-id": 1}
    yield "view-put-back", _after(replaced, back)
    yield "view-in-two-dialects", _replaced(first, 3, dialects=("spark", "trino"))
    elsewhere: dict[str, Any] = {"default-catalog": "lake", "default-namespace": ["a", "b.c"]}
    yield "view-with-catalog", _replaced(first, 4, **elsewhere)
    long = first
    for number in range(2, 20):
        long = _replaced(long, number)
    yield "view-of-many-versions", long
    uuid = {"action": "assign-uuid", "uuid": UUID}
    upgrade = {"action": "upgrade-format-version", "format-version": 1}
    yield "view-assigned-again", _after(replaced, uuid, upgrade)


def _created() -> Metadata:
    request = {"name": "v", "schema": _schema(1), "view-version": _version(1), "properties": {"owner": "us"}}
    return new_view(request, location=LOCATION, view_uuid=UUID, now_ms=NOW_MS)


def _replaced(
    view: Metadata, number: int, *, dialects: tuple[str, ...] = ("spark",), **more: Any
) -> Metadata:
    return _after(
        view,
        {"action": "add-schema", "schema": _schema(number)},
        {"action": "add-view-version", "view-version": _version(number, dialects, **more)},
        {"action": "set-current-view-version", "view-version-id": LAST_ADDED},
    )


def _after(view: Metadata, *updates: Metadata) -> Metadata:
    now_ms = view["version-log"][-1]["timestamp-ms"] + 1000
    requirements = [{"type": "assert-view-uuid", "uuid": UUID}]
    return apply_view(view, requirements, list(updates), now_ms=now_ms)


def _schema(columns: int) -> Metadata:
    fields = [
        {"id": number, "name": f"c{number}", "required": False, "type": "string"} for number in range(columns)
    ]
    return {"type": "struct", "schema-id": 0, "fields": fields}


def _version(number: int, dialects: tuple[str, ...] = ("spark",), **more: Any) -> Metadata:
    return {
        "version-id": number,
        "timestamp-ms": NOW_MS + number,
        "schema-id": LAST_ADDED,
        "summary": {"engine-name": "spark", "engine-version": "4.1.0"},
        "default-namespace": ["db"],
        "representations": [{"type": "sql", "sql": f"select {number}", "dialect": name} for name in dialects],
        **more,
    }
