"""Iceberg types, as a schema's JSON writes them: shape, Arrow type, promotion, and fields with their ids."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pyarrow as pa

from catalog.errors import Invalid
from catalog.metadata.types import primitive

IcebergType = str | dict[str, Any]

DECIMAL_DIGITS_MAX = 38
DEPTH_MAX = 60  # of nested types; the catalog itself stops a little later

_LONG_DIGITS = 19
_INT_DIGITS = 10
_ARROW = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "timestamp_ns": pa.timestamp("ns"),
    "timestamptz_ns": pa.timestamp("ns", tz="UTC"),
    "string": pa.string(),
    "uuid": pa.string(),
    "binary": pa.binary(),
}
# Format v2 lacks the later types, and Spark refuses every table that has a `time` in it.
_CREATED_AS = {
    "time": "string",
    "timestamp_ns": "timestamp",
    "timestamptz_ns": "timestamptz",
    "variant": "string",
    "geometry": "binary",
    "geography": "binary",
}


def shape(type_: Any, depth: int = 0) -> IcebergType:
    """The type for comparing. `Invalid` says what is wrong with it."""
    if isinstance(type_, str):
        return primitive(type_).canonical
    if depth > DEPTH_MAX:
        raise Invalid(f"a type is nested more than {DEPTH_MAX} levels deep")
    kind = type_.get("type") if isinstance(type_, dict) else None
    try:
        if kind == "struct":
            return {"type": "struct", "fields": _fields(type_["fields"], depth)}
        if kind == "list":
            return {"type": "list", "element": shape(type_["element"], depth + 1)}
        if kind == "map":
            key, value = shape(type_["key"], depth + 1), shape(type_["value"], depth + 1)
            return {"type": "map", "key": key, "value": value}
    except (KeyError, TypeError) as missing:
        raise Invalid(f"a {kind} type is incomplete: {missing}") from missing
    raise Invalid(f"not a type: {str(type_)[:80]}")


def _fields(fields: Any, depth: int) -> list[dict[str, Any]]:
    names = [field["name"] for field in fields]
    if not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
        raise Invalid("the fields of a struct need names of their own")
    return [{"name": field["name"], "type": shape(field["type"], depth + 1)} for field in fields]


def creatable(type_: Any) -> IcebergType | None:
    """The shape with which a new column is made for a declared type; None if it says nothing (`unknown`)."""
    return _created(shape(type_))


def _created(type_: IcebergType) -> IcebergType | None:
    if isinstance(type_, str):
        kind = primitive(type_).kind
        return None if kind == "unknown" else _CREATED_AS.get(kind, type_)
    # A part of which nothing is known holds JSON text. So does an empty struct: Parquet has none.
    if type_["type"] == "struct":
        fields = [{"name": f["name"], "type": _created(f["type"]) or "string"} for f in type_["fields"]]
        return {"type": "struct", "fields": fields} if fields else "string"
    parts = ("element",) if type_["type"] == "list" else ("key", "value")
    return {"type": type_["type"]} | {part: _created(type_[part]) or "string" for part in parts}


def arrow_type(type_: IcebergType) -> pa.DataType:
    """The Arrow type of a staged column."""
    if isinstance(type_, str):
        return _arrow_primitive(type_)
    if type_["type"] == "struct":
        return pa.struct([pa.field(field["name"], arrow_type(field["type"])) for field in type_["fields"]])
    if type_["type"] == "list":
        return pa.list_(pa.field("element", arrow_type(type_["element"])))
    return pa.map_(arrow_type(type_["key"]), arrow_type(type_["value"]))


@lru_cache(maxsize=1024)
def _arrow_primitive(text: str) -> pa.DataType:
    read = primitive(text)
    if read.kind == "decimal":
        return pa.decimal128(read.precision, read.scale)
    if read.kind == "fixed":
        return pa.binary(read.length)
    found = _ARROW.get(read.kind)
    if found is None:
        raise Invalid(f"values of type {text} cannot be staged")
    return found


def promotes(old: IcebergType, new: IcebergType) -> bool:
    """Whether a column of type `old` may become `new` under format v2. Every type promotes to itself."""
    old, new = shape(old), shape(new)
    if old == new:
        return True
    if isinstance(old, str) or isinstance(new, str):
        return isinstance(old, str) and isinstance(new, str) and _primitive_promotes(old, new)
    if old["type"] != new["type"]:
        return False
    if old["type"] == "struct":
        pairs = list(zip(old["fields"], new["fields"], strict=False))
        same_names = [f["name"] for f in old["fields"]] == [f["name"] for f in new["fields"]]
        return same_names and all(promotes(one["type"], other["type"]) for one, other in pairs)
    if old["type"] == "list":
        return promotes(old["element"], new["element"])
    # The key of a map never changes: spec, "Schema Evolution".
    return bool(old["key"] == new["key"]) and promotes(old["value"], new["value"])


def _primitive_promotes(old: str, new: str) -> bool:
    if (old, new) in (("int", "long"), ("float", "double")):
        return True
    one, other = primitive(old), primitive(new)
    decimals = one.kind == other.kind == "decimal"
    return decimals and one.scale == other.scale and other.precision >= one.precision


def merged(a: IcebergType, b: IcebergType) -> IcebergType | None:
    """The one type of a new column for which both are declared or inferred; None if there is none.

    Wider than `promotes`, because no data is there yet: whole numbers go into decimals and doubles, decimals
    of two scales into one that holds both. Text is never made of other things.
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
    """Digits before and after the point."""
    read = primitive(text)
    if read.kind == "decimal":
        return read.precision - read.scale, read.scale
    return {"int": (_INT_DIGITS, 0), "long": (_LONG_DIGITS, 0)}.get(text)


# -- fields with their ids


class FieldIds:
    """Ids above the last one of the table. Columns first, then what is nested in them, as for a new table."""

    __slots__ = ("last",)

    def __init__(self, last: int) -> None:
        self.last = last

    def next(self) -> int:
        self.last += 1
        return self.last

    def numbered(self, fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The fields with their own ids, and ids for all that is in them."""
        own = [{"id": self.next()} | each for each in fields]
        return [each | {"type": self.typed(each["type"])} for each in own]

    def typed(self, type_: IcebergType) -> IcebergType:
        """A shape with ids, everything in it optional."""
        if isinstance(type_, str):
            return type_
        if type_["type"] == "struct":
            fields = [
                {"name": each["name"], "required": False, "type": each["type"]} for each in type_["fields"]
            ]
            return {"type": "struct", "fields": self.numbered(fields)}
        if type_["type"] == "list":
            id_ = self.next()
            element = self.typed(type_["element"])
            return {"type": "list", "element-id": id_, "element": element, "element-required": False}
        key_id, value_id = self.next(), self.next()
        return {
            "type": "map",
            "key-id": key_id,
            "key": self.typed(type_["key"]),
            "value-id": value_id,
            "value": self.typed(type_["value"]),
            "value-required": False,
        }


def evolved(type_: IcebergType, declared: Any, ids: FieldIds) -> IcebergType:
    """A column's type (with ids), grown towards a declared one as far as the spec allows; else unchanged."""
    try:
        wanted = creatable(declared)
    except Invalid:  # no type at all: the column has one already, and its values are looked at one by one
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


def full_names(fields: list[dict[str, Any]], prefix: str = "") -> set[str]:
    """The names by which every field at any depth is known: "a", "a.b", "tags.element"."""
    names: set[str] = set()
    for each in fields:
        names |= {prefix + each["name"]} | _inner_names(each["type"], f"{prefix}{each['name']}.")
    return names


def _inner_names(type_: IcebergType, prefix: str) -> set[str]:
    if isinstance(type_, str):
        return set()
    if type_["type"] == "struct":
        return full_names(type_["fields"], prefix)
    parts = ("element",) if type_["type"] == "list" else ("key", "value")
    return full_names([{"name": part, "type": type_[part]} for part in parts], prefix)
