"""Whether a document of any origin has the shape that the engine relies on.

`malformations(metadata)` lists what has not, in plain sentences; it never raises. Relations between the parts
are for `invariants.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ParamSpec

from catalog.errors import Invalid
from catalog.metadata import partitioning, shapes, sorting
from catalog.metadata.limits import FORMAT_VERSION_MAX, FORMAT_VERSION_MIN
from catalog.metadata.schemas import index_schema
from catalog.metadata.shapes import JsonObject
from catalog.metadata.top_level import is_uuid

P = ParamSpec("P")

_REF_TYPES = ("branch", "tag")
_IDS = (
    "last-column-id",
    "current-schema-id",
    "default-spec-id",
    "last-partition-id",
    "default-sort-order-id",
)
_LISTS = ("schemas", "partition-specs", "sort-orders")
_OPTIONAL_LISTS = (
    "snapshots",
    "snapshot-log",
    "metadata-log",
    "statistics",
    "partition-statistics",
    "encryption-keys",
)


def refusal(check: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> list[str]:
    """What a check says against something: one sentence, or nothing."""
    try:
        check(*args, **kwargs)
    except Invalid as refused:
        return [refused.message]
    return []


def malformations(metadata: JsonObject) -> list[str]:
    # The entries are looked at only if the lists are lists.
    return [*_top_level(metadata)] or [*_entries(metadata)]


def _top_level(metadata: JsonObject) -> Iterator[str]:
    version = metadata.get("format-version")
    yield from refusal(shapes.check_json, metadata, "the document")
    yield from refusal(
        shapes.integer, metadata, "format-version", low=FORMAT_VERSION_MIN, high=FORMAT_VERSION_MAX
    )
    yield from refusal(_check_uuid, metadata)
    yield from refusal(shapes.text, metadata, "location")
    for key in _IDS:
        yield from refusal(shapes.integer, metadata, key)
    yield from refusal(shapes.long, metadata, "last-updated-ms")
    yield from refusal(shapes.string_map, metadata, "properties")
    for key in _LISTS:
        yield from refusal(shapes.objects, metadata, key)
    for key in _OPTIONAL_LISTS:
        if metadata.get(key) is not None:
            yield from refusal(shapes.objects, metadata, key)
    if metadata.get("refs") is not None:
        yield from refusal(shapes.mapping, metadata, "refs")
    yield from refusal(shapes.optional_long, metadata, "current-snapshot-id", low=-1)
    if version != 1:
        yield from refusal(shapes.long, metadata, "last-sequence-number")
    if version == 3:
        yield from refusal(shapes.long, metadata, "next-row-id")


def _check_uuid(metadata: JsonObject) -> None:
    if not is_uuid(metadata.get("table-uuid")):
        raise Invalid(f"table-uuid must be a UUID, not {shapes.shown(metadata.get('table-uuid'))}")


def _entries(metadata: JsonObject) -> Iterator[str]:
    version = metadata["format-version"]
    for at, schema in _placed(metadata, "schemas"):
        yield from refusal(shapes.integer, schema, "schema-id", at)
        yield from refusal(index_schema, schema, version, at)
    for at, spec in _placed(metadata, "partition-specs"):
        yield from refusal(_check_spec, spec, version, at)
    for at, order in _placed(metadata, "sort-orders"):
        yield from refusal(_check_order, order, version, at)
    for at, snapshot in _placed(metadata, "snapshots"):
        yield from refusal(_check_snapshot, snapshot, at)
    for name, ref in (metadata.get("refs") or {}).items():
        yield from refusal(_check_ref, ref, f"refs.{name}")
    for key, id_key, check in _ENTRIES:
        for at, entry in _placed(metadata, key):
            yield from refusal(check, entry, id_key, at)


# What else each entry of these lists must have.
_ENTRIES: tuple[tuple[str, str, Callable[[JsonObject, str, str], object]], ...] = (
    ("snapshot-log", "snapshot-id", shapes.long),
    ("snapshot-log", "timestamp-ms", shapes.long),
    ("metadata-log", "metadata-file", shapes.text),
    ("metadata-log", "timestamp-ms", shapes.long),
    ("statistics", "snapshot-id", shapes.long),
    ("statistics", "statistics-path", shapes.text),
    ("partition-statistics", "snapshot-id", shapes.long),
    ("partition-statistics", "statistics-path", shapes.text),
    ("encryption-keys", "key-id", shapes.text),
)


def _placed(metadata: JsonObject, key: str) -> Iterator[tuple[str, Any]]:
    for place, entry in enumerate(metadata.get(key) or ()):
        yield f"{key}[{place}]", entry


def _check_spec(spec: JsonObject, version: int, at: str) -> None:
    shapes.integer(spec, "spec-id", at)
    for place, field in enumerate(partitioning.read_fields(spec, version, at)):
        shapes.integer(field, "field-id", f"{at}.fields[{place}]")


def _check_order(order: JsonObject, version: int, at: str) -> None:
    shapes.integer(order, "order-id", at)
    sorting.read_fields(order, version, at)


def _check_snapshot(snapshot: JsonObject, at: str) -> None:
    shapes.long(snapshot, "snapshot-id", at)
    shapes.long(snapshot, "timestamp-ms", at)
    for key in ("sequence-number", "first-row-id", "added-rows"):
        shapes.optional_long(snapshot, key, at)
    if snapshot.get("manifests") is None:
        shapes.text(snapshot, "manifest-list", at)
    if snapshot.get("summary") is not None:
        shapes.string_map(snapshot, "summary", at)


def _check_ref(ref: object, at: str) -> None:
    if not isinstance(ref, dict):
        raise shapes.wrong(at, "an object", ref)
    shapes.long(ref, "snapshot-id", at)
    if shapes.text(ref, "type", at) not in _REF_TYPES:
        raise Invalid(f"{at}.type must be one of {', '.join(_REF_TYPES)}")
