"""The source columns of a partition or sort field: one (`source-id`) or since v3 several (`source-ids`)."""

from __future__ import annotations

from collections.abc import Mapping

from catalog.errors import Invalid
from catalog.metadata import transforms
from catalog.metadata.limits import FIELD_ID_MAX
from catalog.metadata.schemas import Column, SchemaIndex
from catalog.metadata.shapes import JsonObject, integer, integers, text


def check_field(field: JsonObject, version: int, at: str) -> None:
    """The parts that partition and sort fields share: a transform, and where its values come from."""
    transforms.canonical(text(field, "transform", at))
    several = field.get("source-ids")
    if several is None:
        integer(field, "source-id", at, high=FIELD_ID_MAX)
        return
    if version < 3:
        raise Invalid(f"{at}.source-ids is not supported until v3")
    if not integers(field, "source-ids", at, high=FIELD_ID_MAX):
        raise Invalid(f"{at}.source-ids must not be empty")
    if field.get("source-id") is not None and [integer(field, "source-id", at)] != several:
        raise Invalid(f"{at} has both source-id and source-ids, and they differ")


def source_ids(field: JsonObject) -> list[int]:
    """Of a checked field."""
    several: list[int] | None = field.get("source-ids")
    return [field["source-id"]] if several is None else several


def renumbered(field: JsonObject, ids: Mapping[int, int], at: str) -> JsonObject:
    """The field on new column ids."""
    unknown = [id_ for id_ in source_ids(field) if id_ not in ids]
    if unknown:
        raise Invalid(f"{at}: cannot find source column {unknown[0]} in the schema")
    changed: JsonObject = {}
    if field.get("source-id") is not None:
        changed["source-id"] = ids[field["source-id"]]
    if field.get("source-ids") is not None:
        changed["source-ids"] = [ids[id_] for id_ in field["source-ids"]]
    return field | changed


def bound_columns(field: JsonObject, index: SchemaIndex, what: str) -> list[Column]:
    """The source columns, each a primitive that the transform takes. `what` is "partition" or "sort"."""
    columns = []
    for id_ in source_ids(field):
        column = index.by_id.get(id_)
        if column is None:
            raise Invalid(f"Cannot find source column for {what} field: {_described(field)}")
        if not column.is_primitive:
            raise Invalid(f"Cannot {what} by non-primitive source field: {column.name} ({column.type})")
        if not transforms.accepts(field["transform"], column.kind):
            raise Invalid(f"Invalid source type {column.type} for transform: {field['transform']}")
        columns.append(column)
    return columns


def _described(field: JsonObject) -> str:
    sources = ", ".join(str(id_) for id_ in source_ids(field))
    return f"{field.get('name', '')} {field['transform']}({sources})".strip()
