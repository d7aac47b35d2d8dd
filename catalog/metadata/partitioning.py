"""Partition specs and sort orders, and the source columns of their fields.

A field has one source column (`source-id`) or, since v3, several (`source-ids`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catalog.errors import Invalid
from catalog.metadata import types
from catalog.metadata.document import (
    LAST_ADDED,
    PARTITION_FIELD_ID_START,
    UNSORTED_ORDER_ID,
    Draft,
    highest_field_id,
    with_id,
)
from catalog.metadata.schemas import Column, SchemaIndex
from catalog.metadata.validation import (
    FIELD_ID_MAX,
    SPEC_FIELDS_MAX,
    JsonObject,
    integer,
    integers,
    mapping,
    objects,
    preview,
    text,
)

Fields = list[JsonObject]
# The meaning of a partition field. A field id never has two of these.
FieldMeaning = tuple[tuple[int, ...], str]
_DIRECTIONS = ("asc", "desc")
_NULL_ORDERS = ("nulls-first", "nulls-last")


def check_field(field: JsonObject, version: int, at: str) -> None:
    """The parts that partition and sort fields share: a transform and its source columns."""
    types.canonical_transform(text(field, "transform", at))
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
    """The source columns of a checked field."""
    several: list[int] | None = field.get("source-ids")
    return [field["source-id"]] if several is None else several


def renumbered(field: JsonObject, ids: Mapping[int, int], at: str) -> JsonObject:
    """The field with new column ids."""
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
    """The source columns. Each must be primitive and accepted by the transform. `what` is "partition" or
    "sort".
    """
    columns = []
    for id_ in source_ids(field):
        column = index.by_id.get(id_)
        if column is None:
            raise Invalid(f"Cannot find source column for {what} field: {_described(field)}")
        if not column.is_primitive:
            raise Invalid(f"Cannot {what} by non-primitive source field: {column.name} ({column.type})")
        if not types.transform_accepts(field["transform"], column.kind):
            raise Invalid(f"Invalid source type {column.type} for transform: {field['transform']}")
        columns.append(column)
    return columns


def _described(field: JsonObject) -> str:
    sources = ", ".join(str(id_) for id_ in source_ids(field))
    return f"{field.get('name', '')} {field['transform']}({sources})".strip()


def read_partition_fields(spec: JsonObject, version: int, at: str) -> Fields:
    """The checked fields of a spec. Either all of them have a field id or none has."""
    fields = objects(spec, "fields", at)
    if len(fields) > SPEC_FIELDS_MAX:
        raise Invalid(f"{at} has more than {SPEC_FIELDS_MAX} fields")
    names: set[str] = set()
    numbered = 0
    for position, field in enumerate(fields):
        field_at = f"{at}.fields[{position}]"
        name = text(field, "name", field_at)
        if name in names:
            raise Invalid(f"Cannot use partition name more than once: {name}")
        names.add(name)
        check_field(field, version, field_at)
        if field.get("field-id") is not None:
            integer(field, "field-id", field_at, high=FIELD_ID_MAX)
            numbered += 1
    if numbered not in (0, len(fields)):
        missing = len(fields) - numbered
        raise Invalid(f"Cannot parse spec with missing field IDs: {missing} missing of {len(fields)} fields.")
    return fields


def sequential(fields: Fields) -> Fields:
    """The fields, numbered from 1000 as v1 and every new table require."""
    return [field | {"field-id": PARTITION_FIELD_ID_START + index} for index, field in enumerate(fields)]


def bind_partition_spec(fields: Fields, index: SchemaIndex) -> None:
    """Check that every field can be computed from the schema. A void field needs no source column."""
    for field in fields:
        if types.canonical_transform(field["transform"]) == types.VOID:
            continue
        for column in bound_columns(field, index, "partition"):
            for parent in index.ancestors(column):
                if parent.type != "struct":
                    raise Invalid(f"Invalid partition field parent: {parent.name} ({parent.type})")


def check_names(fields: Fields, index: SchemaIndex) -> None:
    """A partition field may have the name of a column only if that is its source: readers look up by name."""
    for field in fields:
        sources = source_ids(field)
        column_id = index.ids_by_name.get(field["name"])
        if column_id is not None and column_id not in sources and any(id_ in index.by_id for id_ in sources):
            raise Invalid(
                f"Cannot create identity partition sourced from different field in schema: {field['name']}"
            )


def add_spec(draft: Draft, update: JsonObject) -> None:
    """Reuse a compatible spec. A new one gets the next id, and its fields get ids if they have none."""
    given = mapping(update, "spec")
    document = draft.document
    fields = read_partition_fields(given, draft.format_version, "spec")
    meaning = _canonical_partition_fields(fields)
    known = next(
        (
            spec
            for spec in document["partition-specs"]
            if _canonical_partition_fields(spec["fields"]) == meaning
        ),
        None,
    )
    if known is not None:
        draft.specs.add(given.get("spec-id"), known["spec-id"])
        return
    index = draft.current_schema_index()
    bind_partition_spec(fields, index)
    check_names(fields, index)
    fields = _numbered(draft, fields)
    id_ = max((spec["spec-id"] for spec in document["partition-specs"]), default=-1) + 1
    document["last-partition-id"] = max(document["last-partition-id"], highest_field_id(fields))
    draft.list_of("partition-specs").append(given | {"spec-id": id_, "fields": fields})
    draft.specs.add(given.get("spec-id"), id_)
    draft.layout_changed = True


def _canonical_partition_fields(fields: Fields) -> list[tuple[Any, ...]]:
    return [
        (source_ids(field), types.canonical_transform(field["transform"]), field["name"]) for field in fields
    ]


def _meaning(field: JsonObject) -> FieldMeaning:
    return tuple(source_ids(field)), types.canonical_transform(field["transform"])


def _numbered(draft: Draft, fields: Fields) -> Fields:
    unnumbered = bool(fields) and fields[0].get("field-id") is None
    if draft.format_version == 1:
        numbered = sequential(fields)
        if not unnumbered and numbered != fields:
            raise Invalid("Spec does not use sequential IDs that are required in v1")
        return numbered
    known = [field for spec in draft.document["partition-specs"] for field in spec["fields"]]
    if unnumbered:
        return _with_new_ids(fields, known, draft.document["last-partition-id"])
    _check_ids(fields, known)
    return fields


def _with_new_ids(fields: Fields, known: Fields, last_id: int) -> Fields:
    """The id of an earlier field with the same meaning, otherwise the next free one."""
    ids = {_meaning(field): field["field-id"] for field in known}
    numbered: Fields = []
    for field in fields:
        id_ = ids.get(_meaning(field))
        if id_ is None or any(id_ == other["field-id"] for other in numbered):
            last_id += 1
            id_ = last_id
        numbered.append(field | {"field-id": id_})
    return numbered


def _check_ids(fields: Fields, known: Fields) -> None:
    """A field id keeps its meaning: otherwise readers could not distinguish the partitions."""
    if len({field["field-id"] for field in fields}) < len(fields):
        raise Invalid("Cannot use a partition field id more than once in a spec")
    meanings: dict[int, set[FieldMeaning]] = {}
    for field in known:
        meanings.setdefault(field["field-id"], set()).add(_meaning(field))
    for field in fields:
        before = meanings.get(field["field-id"])
        meaning = _meaning(field)
        if before is None or meaning in before or meaning[1] == types.VOID:
            continue
        if not any(transform == types.VOID for _, transform in before):
            raise Invalid(
                f"Cannot use partition field id {field['field-id']} for {field['name']}: it is taken"
            )


def set_default_spec(draft: Draft, update: JsonObject) -> None:
    id_ = draft.specs.resolve(integer(update, "spec-id", low=LAST_ADDED), "spec")
    if draft.document["default-spec-id"] == id_:
        return
    if with_id(draft.document["partition-specs"], "spec-id", id_) is None:
        raise Invalid(f"Cannot set default partition spec to unknown spec: {id_}")
    draft.document["default-spec-id"] = id_
    draft.layout_changed = True


def remove_partition_specs(draft: Draft, update: JsonObject) -> None:
    ids = set(integers(update, "spec-ids"))
    if draft.document["default-spec-id"] in ids:
        raise Invalid("Cannot remove the default partition spec")
    draft.put_list(
        "partition-specs", [spec for spec in draft.document["partition-specs"] if spec["spec-id"] not in ids]
    )
    draft.specs.forget(ids)


def read_sort_fields(order: JsonObject, version: int, at: str) -> Fields:
    """The checked fields of a sort order, with direction and null order in the spelling of the spec."""
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
        raise Invalid(f"{at}.{key} must be one of {', '.join(allowed)}, not {preview(field[key])}")
    return value


def bind_sort_order(fields: Fields, index: SchemaIndex) -> None:
    """Check that every field can be computed from the schema."""
    for field in fields:
        bound_columns(field, index, "sort")


def add_sort_order(draft: Draft, update: JsonObject) -> None:
    """Reuse an equal order. Unsorted is always 0; the first other order is 1."""
    given = mapping(update, "sort-order")
    document = draft.document
    fields = read_sort_fields(given, draft.format_version, "sort-order")
    canonical = _canonical_sort_fields(fields)
    known = next(
        (order for order in document["sort-orders"] if _canonical_sort_fields(order["fields"]) == canonical),
        None,
    )
    if known is not None:
        draft.orders.add(given.get("order-id"), known["order-id"])
        return
    if fields:
        bind_sort_order(fields, draft.current_schema_index())
        id_ = max((order["order-id"] for order in document["sort-orders"]), default=UNSORTED_ORDER_ID) + 1
    else:
        id_ = UNSORTED_ORDER_ID
    draft.list_of("sort-orders").append(given | {"order-id": id_, "fields": fields})
    draft.orders.add(given.get("order-id"), id_)
    draft.layout_changed = True


def _canonical_sort_fields(fields: Fields) -> list[tuple[Any, ...]]:
    return [
        (
            source_ids(field),
            types.canonical_transform(field["transform"]),
            field["direction"],
            field["null-order"],
        )
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
