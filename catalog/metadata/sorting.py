"""Sort orders, and the updates add-sort-order and set-default-sort-order."""

from __future__ import annotations

from typing import Any

from catalog.errors import Invalid
from catalog.metadata import transforms
from catalog.metadata.document import UNSORTED_ORDER_ID, with_id
from catalog.metadata.draft import LAST_ADDED, Draft
from catalog.metadata.limits import SPEC_FIELDS_MAX
from catalog.metadata.schemas import SchemaIndex
from catalog.metadata.shapes import JsonObject, integer, mapping, objects, shown, text
from catalog.metadata.sources import bound_columns, check_field, source_ids

Fields = list[JsonObject]

_DIRECTIONS = ("asc", "desc")
_NULL_ORDERS = ("nulls-first", "nulls-last")


def read_fields(order: JsonObject, version: int, at: str) -> Fields:
    """The checked fields of a sort order, with direction and null order as the spec spells them."""
    fields = objects(order, "fields", at)
    if len(fields) > SPEC_FIELDS_MAX:
        raise Invalid(f"{at} has more than {SPEC_FIELDS_MAX} fields")
    read = []
    for position, field in enumerate(fields):
        field_at = f"{at}.fields[{position}]"
        check_field(field, version, field_at)
        direction = _one_of(field, "direction", _DIRECTIONS, field_at)
        null_order = _one_of(field, "null-order", _NULL_ORDERS, field_at)
        read.append(field | {"direction": direction, "null-order": null_order})
    return read


def _one_of(field: JsonObject, key: str, allowed: tuple[str, ...], at: str) -> str:
    value = text(field, key, at).lower()
    if value not in allowed:
        raise Invalid(f"{at}.{key} must be one of {', '.join(allowed)}, not {shown(field[key])}")
    return value


def bind(fields: Fields, index: SchemaIndex) -> None:
    """Every field can be computed from the schema."""
    for field in fields:
        bound_columns(field, index, "sort")


def add_sort_order(draft: Draft, update: JsonObject) -> None:
    """An equal order is used again. Unsorted is always 0, the first real order is 1."""
    given = mapping(update, "sort-order")
    document = draft.document
    fields = read_fields(given, draft.format_version, "sort-order")
    essence = _essence(fields)
    known = next((order for order in document["sort-orders"] if _essence(order["fields"]) == essence), None)
    if known is not None:
        draft.orders.note(given.get("order-id"), known["order-id"])
        return
    if fields:
        bind(fields, draft.current_schema_index())
        id_ = max((order["order-id"] for order in document["sort-orders"]), default=UNSORTED_ORDER_ID) + 1
    else:
        id_ = UNSORTED_ORDER_ID
    draft.list_of("sort-orders").append(given | {"order-id": id_, "fields": fields})
    draft.orders.note(given.get("order-id"), id_)
    draft.layout_changed = True


def _essence(fields: Fields) -> list[tuple[Any, ...]]:
    return [
        (source_ids(field), transforms.canonical(field["transform"]), field["direction"], field["null-order"])
        for field in fields
    ]


def set_default_sort_order(draft: Draft, update: JsonObject) -> None:
    id_ = draft.orders.resolve(integer(update, "sort-order-id", low=LAST_ADDED), "sort order")
    if draft.document["default-sort-order-id"] == id_:
        return
    if with_id(draft.document["sort-orders"], "order-id", id_) is None:
        raise Invalid(f"Cannot set default sort order to unknown sort order: {id_}")
    draft.document["default-sort-order-id"] = id_
    draft.layout_changed = True
