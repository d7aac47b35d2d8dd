"""Iceberg types in the form of a schema's JSON, and the columns of a batch of changes.

Of a type: its shape, Arrow type, promotion, and fields with their ids. Of a batch: the names of its columns,
declared types, and the values of undeclared ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, repeat
from operator import contains, is_
from typing import Any

import orjson
import pyarrow as pa

from catalog.errors import Invalid
from catalog.metadata.types import Primitive, primitive
from ingest.change import Change, Declared, Row
from ingest.types.dates import NS_PER

IcebergType = str | dict[str, Any]

DECIMAL_DIGITS_MAX = 38
DEPTH_MAX = 60  # of nested types; the catalog's own limit is a little higher

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


def shape(type_: Any, depth: int = 0) -> IcebergType:
    """Return the type for comparisons. `Invalid` says what is wrong with it."""
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


def arrow_type(type_: IcebergType) -> pa.DataType:
    """Return the Arrow type of a staged column."""
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
    """Return whether a column of type `old` may become `new` under format v2. Every type promotes to
    itself.
    """
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


# -- fields with their ids


class FieldIds:
    """Assigns ids above the last one of the table: columns first, then nested fields, as for a new table."""

    __slots__ = ("last",)

    def __init__(self, last: int) -> None:
        self.last = last

    def next(self) -> int:
        self.last += 1
        return self.last

    def numbered(self, fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the fields with their own ids, and ids for all nested fields."""
        own = [{"id": self.next()} | each for each in fields]
        return [each | {"type": self.typed(each["type"])} for each in own]

    def typed(self, type_: IcebergType) -> IcebergType:
        """Return a type with ids, in which all fields are optional."""
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


def full_names(fields: list[dict[str, Any]], prefix: str = "") -> set[str]:
    """Return the full names of all fields at any depth: "a", "a.b", "tags.element"."""
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


# -- the columns of a batch


def distinct(changes: Sequence[Change]) -> tuple[list[Declared | None], list[int]]:
    """Return the distinct declarations, in the order of appearance, and for each change the index of its own.

    Changes of one table mostly share one declaration, as an object or at least in content, so everything that
    depends on it is computed once.
    """
    all_ = [change.declared for change in changes]
    if all_ and all(map(is_, all_, repeat(all_[0]))):
        return all_[:1], [0] * len(all_)
    different: list[Declared | None] = []
    by_object: dict[int, int] = {}
    by_content: dict[bytes, int] = {}
    for object_id, declared in dict(zip(map(id, all_), all_, strict=True)).items():
        index = by_content.setdefault(_content(declared), len(different))
        if index == len(different):
            different.append(declared)
        by_object[object_id] = index
    return different, [by_object[id(declared)] for declared in all_]


def _content(declared: Declared | None) -> bytes:
    if declared is None:
        return b""
    return orjson.dumps([dict(declared.columns), dict(declared.encodings)], default=str)


def encoding_of(declared: Declared | None, column: str) -> str | None:
    """Return how the column's values are written in JSON, with the parts that only the declared type has.

    The scale of a base64 decimal is the producer's, not the table's. The unit of a time of day is kept apart
    from that of a timestamp, because a time is stored as text.
    """
    if declared is None:
        return None
    encoding = declared.encodings.get(column)
    read = _innermost(declared.columns.get(column))
    if read is None:
        return encoding
    if encoding == "decimal-base64" and read.kind == "decimal":
        return f"{encoding}:{read.scale}"
    if read.kind == "time" and (encoding is None or encoding in NS_PER):
        return "time" if encoding is None else f"time-{encoding}"
    return encoding


def _innermost(type_: Any) -> Primitive | None:
    """Return the type of a column's single values: of the elements of a list, of the values of a map."""
    while isinstance(type_, dict):
        type_ = type_.get("element", type_.get("value"))
    try:
        return primitive(type_) if isinstance(type_, str) else None
    except Invalid:  # the schema plan refuses the column with the same reason
        return None


# -- observed columns

_EMPTY: Row = {}
_FIRST_ROWS = 100


@dataclass(slots=True)
class ObservedColumns:
    changes: Sequence[Change]
    names: dict[str, None] = field(default_factory=dict)  # in the producer's order of first appearance
    declared: dict[str, list[Any]] = field(default_factory=dict)  # the different types, oldest first
    newest: Declared | None = None
    keyed_by_row_id: bool = False  # the only key column is in no row, but the rows have ids
    bare: list[Row] = field(default_factory=list)  # rows without a declaration

    def undeclared(self, name: str) -> list[Any]:
        """Return the column's values in changes that declare no type for it.

        They are collected on demand, because most columns have a type already.
        """
        if name not in self.names:
            return []
        values = [row[name] for row in self.bare if name in row]
        if self.newest is not None and name not in self.declared:
            # A declaration may omit a column that its row has.
            values += [
                change.after[name]
                for change in self.changes
                if change.declared is not None and change.after and name in change.after
            ]
        return values


def observe_columns(changes: Sequence[Change], key: Sequence[str], row_id_key: str) -> ObservedColumns:
    """Collect the columns of a batch. Of deletes only the key is used, because only that is staged.

    `row_id_key` is the key column that always has the producer's id of the row.
    """
    seen = ObservedColumns(changes)
    staged = [change for change in changes if change.operation != "truncate"]
    rows = _rows(staged, key)
    declarations = distinct(changes)[0]
    _note_declared(seen, [declared for declared in declarations if declared is not None])
    if declarations == [None]:
        seen.bare = rows
    elif None in declarations:
        seen.bare = [row for change, row in zip(staged, rows, strict=True) if change.declared is None]
    names = dict.fromkeys(seen.declared) | _names(rows)
    if list(key) == [row_id_key] or _is_keyed_by_row_id(changes, key, names):
        seen.keyed_by_row_id = True
        names[key[0]] = None
    seen.names = names
    return seen


def _rows(changes: Sequence[Change], key: Sequence[str]) -> list[Row]:
    """Return the staged part of each change."""
    rows = [
        _key_alone(change, key) if change.operation == "delete" else change.after or _EMPTY
        for change in changes
    ]
    if all(all(map(contains, rows, repeat(name))) for name in key):
        return rows
    return [
        row if change.operation == "delete" else _with_key(change, row, key)
        for change, row in zip(changes, rows, strict=True)
    ]


def _names(rows: Sequence[Row]) -> dict[str, None]:
    """Return the columns in the order of first appearance. Usually the first rows have all of them; a set
    finds this faster.
    """
    first = dict.fromkeys(chain.from_iterable(rows[:_FIRST_ROWS]))
    if first.keys() >= set().union(*rows):
        return first
    return dict.fromkeys(chain.from_iterable(rows))


def _key_alone(change: Change, key: Sequence[str]) -> Row:
    row = change.before if change.before is not None else change.after
    return {name: row[name] for name in key if name in row} if row else {}


def _with_key(change: Change, row: Row, key: Sequence[str]) -> Row:
    """Return a partial row with its key, which is certain in `before`."""
    before = change.before
    if before and any(name not in row for name in key):
        return row | {name: before[name] for name in key if name not in row and name in before}
    return row


def _note_declared(seen: ObservedColumns, declarations: list[Declared]) -> None:
    for declared in declarations:
        seen.newest = declared
        for name, type_ in declared.columns.items():
            if type_ == "unknown":
                continue  # the same as not declared
            types = seen.declared.setdefault(name, [])
            if type_ not in types:
                types.append(type_)


def _is_keyed_by_row_id(changes: Sequence[Change], key: Sequence[str], names: dict[str, None]) -> bool:
    return len(key) == 1 and key[0] not in names and any(change.row_id is not None for change in changes)
