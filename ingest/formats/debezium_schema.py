"""Column types from the schema block of Kafka Connect's JSON.

The name of a schema (`io.debezium.time.Date`) says what a value means, and its type (`int32`) how it is
written. A few types are written as objects that no column type has; `Block.reshaped` converts them. The
encoding of a list or a map is that of its elements or values. A struct has no encoding for its fields, so a
struct that needs one is declared as text with its JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import orjson

from ingest.change import Declared, Row

Type = str | dict[str, Any]
Kind = tuple[Type, str | None]  # with its encoding

DECIMAL_DIGITS_MAX = 38
_LEVELS_MAX = 32

_PRIMITIVES: dict[str, Kind] = {
    "int8": ("int", None),
    "int16": ("int", None),
    "int32": ("int", None),
    "int64": ("long", None),
    "float": ("float", None),
    "float32": ("float", None),
    "double": ("double", None),
    "float64": ("double", None),
    "boolean": ("boolean", None),
    "string": ("string", None),
    "bytes": ("binary", "base64"),
}
_NAMED: dict[str, Kind] = {
    "io.debezium.time.Date": ("date", "days"),
    "io.debezium.time.Time": ("time", "ms"),
    "io.debezium.time.MicroTime": ("time", "us"),
    "io.debezium.time.NanoTime": ("time", "ns"),
    "io.debezium.time.Timestamp": ("timestamp", "ms"),
    "io.debezium.time.MicroTimestamp": ("timestamp", "us"),
    "io.debezium.time.NanoTimestamp": ("timestamp", "ns"),
    "io.debezium.time.ZonedTimestamp": ("timestamptz", None),
    "io.debezium.time.ZonedTime": ("string", None),
    "io.debezium.time.IsoDate": ("date", None),
    "io.debezium.time.IsoTime": ("time", None),
    "io.debezium.time.IsoTimestamp": ("timestamp", None),
    "io.debezium.time.MicroDuration": ("long", None),
    "io.debezium.time.NanoDuration": ("long", None),
    "io.debezium.time.Interval": ("string", None),
    "io.debezium.time.Year": ("int", None),
    "org.apache.kafka.connect.data.Date": ("date", "days"),
    "org.apache.kafka.connect.data.Time": ("time", "ms"),
    "org.apache.kafka.connect.data.Timestamp": ("timestamp", "ms"),
    "io.debezium.data.Json": ("string", None),
    "io.debezium.data.Xml": ("string", None),
    "io.debezium.data.Uuid": ("uuid", None),
    "io.debezium.data.Ltree": ("string", None),
    "io.debezium.data.Enum": ("string", None),
    "io.debezium.data.EnumSet": ("string", None),
    "io.debezium.data.Bits": ("binary", "bits-base64"),
    "io.debezium.data.VariableScaleDecimal": ("string", "decimal-struct"),
}
_AS_JSON: Kind = ("string", "json")
# How a default value of a type stands in JSON, where it stands there as it is.
_PLAIN: dict[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "float": (int, float),
    "double": (int, float),
    "string": (str,),
}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"


@dataclass(frozen=True, slots=True)
class Block:
    """The types of a row's columns, and the conversions of unusual values."""

    declared: Declared
    reshape: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)

    def reshaped(self, row: Row | None) -> Row | None:
        if not self.reshape or row is None:
            return row
        return {
            name: self.reshape[name](value) if name in self.reshape else value for name, value in row.items()
        }


def block_of_envelope(schema: object) -> Block | None:
    """Return the types of `after` (or `before`) in the schema of an envelope; None if it has none."""
    fields = schema.get("fields") if isinstance(schema, dict) else None
    if not isinstance(fields, list):
        return None
    for wanted in ("after", "before"):
        for held in fields:
            if isinstance(held, dict) and held.get("field") == wanted:
                found = block_of_row(held)
                if found is not None:
                    return found
    return None


def block_of_row(schema: object) -> Block | None:
    """Return the types of a row with this schema."""
    if not isinstance(schema, dict) or schema.get("type") != "struct":
        return None
    fields = schema.get("fields")
    return _block(orjson.dumps(fields)) if isinstance(fields, list) else None


@lru_cache(maxsize=128)
def _block(raw: bytes) -> Block:
    """Parse a schema. Cached, because each event repeats its schema."""
    columns: dict[str, Type] = {}
    encodings: dict[str, str] = {}
    required: set[str] = set()
    reshape: dict[str, Callable[[Any], Any]] = {}
    defaults: dict[str, Any] = {}
    for column in orjson.loads(raw):
        name = column.get("field") if isinstance(column, dict) else None
        kind = _type(column)
        if kind is None or not isinstance(name, str):
            continue
        columns[name] = kind[0]
        if kind[1] is not None:
            encodings[name] = kind[1]
        if column.get("optional") is False:
            required.add(name)
        former = _RESHAPED.get(_text(column.get("name")))
        if former is not None:
            reshape[name] = former[1]
        elif _is_plain_default(column.get("default"), kind):
            defaults[name] = column["default"]
    return Block(Declared(columns, encodings, frozenset(required), defaults), reshape)


def _is_plain_default(value: object, kind: Kind) -> bool:
    type_, encoding = kind
    return encoding is None and isinstance(type_, str) and type(value) in _PLAIN.get(type_, ())


def _type(schema: object, level: int = 0) -> Kind | None:
    """Return the type of one schema and its encoding. None if it is not understood."""
    if not isinstance(schema, dict) or level > _LEVELS_MAX:
        return None
    name, kind = _text(schema.get("name")), _text(schema.get("type"))
    if name in _RESHAPED:
        return _RESHAPED[name][0] if level == 0 else _AS_JSON
    simple = _decimal(schema, name) or _NAMED.get(name) or _PRIMITIVES.get(kind)
    if simple is not None:
        return simple
    if kind == "array":
        element = _type(schema.get("items"), level + 1)
        return element and ({"type": "list", "element": element[0], "element-required": False}, element[1])
    if kind == "map":
        return _map(schema, level)
    return _struct(schema, level) if kind == "struct" else None


def _map(schema: dict[str, Any], level: int) -> Kind | None:
    keys, value = schema.get("keys"), _type(schema.get("values"), level + 1)
    if value is None or not isinstance(keys, dict):
        return None
    if keys.get("type") != "string" or keys.get("name") is not None:
        return _AS_JSON  # a list of pairs
    return {"type": "map", "key": "string", "value": value[0], "value-required": False}, value[1]


def _struct(schema: dict[str, Any], level: int) -> Kind | None:
    fields = schema.get("fields")
    parts = []
    for held in fields if isinstance(fields, list) else ():
        name, kind = (held.get("field"), _type(held, level + 1)) if isinstance(held, dict) else (None, None)
        if kind is None or not isinstance(name, str):
            return None
        if kind[1] is not None:
            return _AS_JSON
        parts.append({"name": name, "required": False, "type": kind[0]})
    return ({"type": "struct", "fields": parts}, None) if parts else None


def _decimal(schema: dict[str, Any], name: str) -> Kind | None:
    if name != _DECIMAL:
        return None
    parameters = schema.get("parameters")
    given = parameters if isinstance(parameters, dict) else {}
    scale, precision = _whole(given.get("scale")), _whole(given.get("connect.decimal.precision"))
    digits = DECIMAL_DIGITS_MAX if precision is None else precision
    if scale is None:
        return None
    if not 0 <= scale <= digits <= DECIMAL_DIGITS_MAX or not digits:
        # no Iceberg decimal is large enough; text keeps its digits
        return "string", f"decimal-base64:{scale}"
    return f"decimal({digits},{scale})", "decimal-base64"


def _whole(value: object) -> int | None:
    try:
        return int(value) if isinstance(value, str | int) else None
    except ValueError:
        return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _shape(value: Any) -> Any:
    """Return a geometry as its well-known binary in base64, which has all of its content."""
    return value.get("wkb") if isinstance(value, dict) else value


def _calendar(value: Any) -> Any:
    """Return a date, time or timestamp given in parts as ISO text; infinity is null, because no type
    has it.
    """
    if not isinstance(value, dict):
        return value
    if value.get("specialValue") is not None:
        return None
    date = _joined("-", (value.get("year"), 4), (value.get("month"), 2), (value.get("day"), 2))
    time = _joined(":", (value.get("hour"), 2), (value.get("minute"), 2), (value.get("second"), 2))
    if date is None and time is None:
        return value  # not what its schema says; the column's type will refuse it
    if time is not None:
        time += _fraction(value) + _offset(value.get("offsetSeconds"))
    return "T".join(part for part in (date, time) if part is not None)


def _joined(separator: str, *parts: tuple[object, int]) -> str | None:
    if not all(isinstance(part, int) for part, _ in parts):
        return None
    return separator.join(f"{part:0{width}d}" for part, width in parts)


def _fraction(value: dict[str, Any]) -> str:
    for name, digits in (("picoseconds", 12), ("nanos", 9)):
        part = value.get(name)
        if isinstance(part, int) and part:
            return "." + f"{part:0{digits}d}"[:6]  # a column keeps microseconds
    return ""


def _offset(seconds: object) -> str:
    if not isinstance(seconds, int):
        return ""
    sign, seconds = ("-", -seconds) if seconds < 0 else ("+", seconds)
    return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}"


_RESHAPED: dict[str, tuple[Kind, Callable[[Any], Any]]] = {
    "io.debezium.data.geometry.Point": (("binary", "base64"), _shape),
    "io.debezium.data.geometry.Geometry": (("binary", "base64"), _shape),
    "io.debezium.data.geometry.Geography": (("binary", "base64"), _shape),
    "io.debezium.time.StructuredDate": (("date", None), _calendar),
    "io.debezium.time.StructuredTime": (("time", None), _calendar),
    "io.debezium.time.StructuredTimestamp": (("timestamp", None), _calendar),
    "io.debezium.time.StructuredZonedTimestamp": (("timestamptz", None), _calendar),
    "io.debezium.time.StructuredZonedTime": (("string", None), _calendar),
    "io.debezium.time.StructuredDuration": (_AS_JSON, lambda value: value),
}
