"""The schema block of CockroachDB's enriched envelope, and the two kinds of values that it changes. Pure.

Timestamps with and without a zone have the same name there, so their values decide. JSON stands inline and
becomes text; bytes stand as `\\x` and hexadecimal digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ingest.change import Declared, Row
from ingest.formats import events as given
from ingest.formats.contract import original_of

_TYPES = {"int64": "long", "boolean": "boolean", "float64": "double", "bytes": "binary", "json": "string"}
_NAMED = {"date": "date", "time": None, "timestamp": None, "geometry": "string", "geography": "string"}
_INLINE = ("json", "struct")
_DECIMAL_DIGITS_MAX = 38


@dataclass(frozen=True, slots=True)
class Columns:
    declared: Declared | None
    inline: frozenset[str] = frozenset()  # JSON in JSON

    def row(self, row: Row) -> Row:
        """The row as its declared types want it."""
        if self.declared is None:
            return row
        changed = {
            column: original_of(row[column]).decode() for column in self.inline if row.get(column) is not None
        }
        for column in self.declared.encodings:
            value = row.get(column)
            if isinstance(value, str):
                changed[column] = value.removeprefix("\\x")
        return {**row, **changed} if changed else row


def columns_of(schema: object) -> Columns:
    """Of the envelope's schema, the columns of `after`, or of `before` where that is all there is."""
    fields = _fields(given.row_of(schema))
    images = {field.get("field"): field for field in fields}
    image = images.get("after") or images.get("before")
    types: dict[str, Any] = {}
    encodings: dict[str, str] = {}
    inline = set()
    for field in _fields(image):
        column, iceberg = field.get("field"), _iceberg(field)
        if not isinstance(column, str) or iceberg is None:
            continue
        types[column] = iceberg
        if iceberg == "binary":
            encodings[column] = "hex"
        if field.get("type") in _INLINE:
            inline.add(column)
    return Columns(Declared(types, encodings) if types else None, frozenset(inline))


def _fields(schema: Row | None) -> list[Row]:
    fields = schema.get("fields") if schema else None
    return [field for field in fields if isinstance(field, dict)] if isinstance(fields, list) else []


def _iceberg(field: Row) -> str | None:
    name, kind = field.get("name"), field.get("type")
    if name == "decimal":
        parameters = given.row_of(field.get("parameters")) or {}
        precision, scale = (
            given.number_of(parameters.get("precision")),
            given.number_of(parameters.get("scale")),
        )
        if not precision or scale is None:
            return None
        return f"decimal({precision},{scale})" if scale <= precision <= _DECIMAL_DIGITS_MAX else "string"
    if isinstance(name, str) and name in _NAMED:
        return _NAMED[name]
    if kind == "string":
        return "string"
    return _TYPES.get(kind) if isinstance(kind, str) else None
