"""How the type of a column may change: types of new columns, common types, additional fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from catalog.errors import Invalid
from catalog.metadata.types import check_default, primitive
from ingest.change import Change
from ingest.types.iceberg import DECIMAL_DIGITS_MAX, FieldIds, IcebergType, promotes, shape

if TYPE_CHECKING:
    from ingest.types.schema_plan import SchemaPlan

_LONG_DIGITS = 19
_INT_DIGITS = 10

# Format v2 lacks the later types, and Spark refuses every table that has a `time` column.
_CREATED_AS = {
    "time": "string",
    "timestamp_ns": "timestamp",
    "timestamptz_ns": "timestamptz",
    "variant": "string",
    "geometry": "binary",
    "geography": "binary",
}


def with_defaults(
    plan: SchemaPlan, existing: Mapping[str, Any] | None, changes: Sequence[Change], format_version: int
) -> None:
    """Give new columns of an existing table the defaults that the source declares, so that old rows have
    them. Format v2 has no defaults. A column that was split is not new at the source.
    """
    if plan.schema is None or existing is None or format_version < 3:
        return
    declared = [change.declared.defaults for change in changes if change.declared is not None]
    defaults = {name: value for one in declared for name, value in one.items() if name not in plan.split}
    known = {one["id"] for one in existing["fields"]}
    plan.schema["fields"] = [
        one
        if one["id"] in known or one["name"] not in defaults
        else _with_default(one, defaults[one["name"]])
        for one in plan.schema["fields"]
    ]


def _with_default(field: dict[str, Any], value: Any) -> dict[str, Any]:
    """Unchanged if the value does not fit the type that the column got."""
    value = float(value) if field["type"] in ("float", "double") and type(value) is int else value
    try:
        check_default(field["type"], value, field["name"])
    except Invalid:
        return field
    return field | {"initial-default": value, "write-default": value}


def creatable(type_: Any) -> IcebergType | None:
    """Return the type of a new column for a declared type; None if the declared type is `unknown`."""
    return _created(shape(type_))


def _created(type_: IcebergType) -> IcebergType | None:
    if isinstance(type_, str):
        kind = primitive(type_).kind
        return None if kind == "unknown" else _CREATED_AS.get(kind, type_)
    # A part with an unknown type holds JSON text, and so does an empty struct: Parquet has none.
    if type_["type"] == "struct":
        fields = [{"name": f["name"], "type": _created(f["type"]) or "string"} for f in type_["fields"]]
        return {"type": "struct", "fields": fields} if fields else "string"
    parts = ("element",) if type_["type"] == "list" else ("key", "value")
    return {"type": type_["type"]} | {part: _created(type_[part]) or "string" for part in parts}


def merged(a: IcebergType, b: IcebergType) -> IcebergType | None:
    """Return the common type of a new column for two declared or inferred types; None if there is none.

    This is wider than `promotes`, because there is no data yet: integers become decimals or doubles, and
    decimals of two scales become one that holds both. Other types never become text.
    """
    a, b = shape(a), shape(b)
    if a == "unknown" or b == "unknown":
        return b if a == "unknown" else a
    if promotes(a, b):
        return b
    if promotes(b, a):
        return a
    if isinstance(a, str) and isinstance(b, str):
        return _merged_numbers(a, b)
    return None


def _merged_numbers(a: str, b: str) -> str | None:
    if {a, b} <= {"int", "long", "float", "double"}:
        return "double"
    one, other = _digits(a), _digits(b)
    if one is None or other is None:
        return None
    whole, scale = max(one[0], other[0]), max(one[1], other[1])
    return f"decimal({whole + scale},{scale})" if whole + scale <= DECIMAL_DIGITS_MAX else None


def _digits(text: str) -> tuple[int, int] | None:
    """Return the digits before and after the point."""
    read = primitive(text)
    if read.kind == "decimal":
        return read.precision - read.scale, read.scale
    return {"int": (_INT_DIGITS, 0), "long": (_LONG_DIGITS, 0)}.get(text)


def evolved(type_: IcebergType, declared: Any, ids: FieldIds) -> IcebergType:
    """Return a column's type (with ids), widened towards a declared one as far as the spec allows; else
    unchanged.
    """
    try:
        wanted = creatable(declared)
    except Invalid:  # not a type: the column has one already, and its values are converted one by one
        return type_
    return type_ if wanted is None else _grown(type_, wanted, ids)


def _grown(type_: IcebergType, wanted: IcebergType, ids: FieldIds) -> IcebergType:
    if isinstance(type_, str) or isinstance(wanted, str):
        both = isinstance(type_, str) and isinstance(wanted, str)
        return wanted if both and shape(type_) != wanted and promotes(type_, wanted) else type_
    if type_["type"] != wanted["type"]:
        return type_
    if type_["type"] == "struct":
        return type_ | {"fields": _grown_fields(type_["fields"], wanted["fields"], ids)}
    # The key of a map never changes.
    part = "element" if type_["type"] == "list" else "value"
    return type_ | {part: _grown(type_[part], wanted[part], ids)}


def _grown_fields(
    fields: list[dict[str, Any]], wanted: list[dict[str, Any]], ids: FieldIds
) -> list[dict[str, Any]]:
    types = {each["name"]: each["type"] for each in wanted}
    known = {each["name"] for each in fields}
    grown = [
        each | {"type": _grown(each["type"], types[each["name"]], ids)} if each["name"] in types else each
        for each in fields
    ]
    missing = [
        {"name": name, "required": False, "type": type_} for name, type_ in types.items() if name not in known
    ]
    return grown + ids.numbered(missing)
