"""One row change of wal2json, version 1 or 2, with its columns, types and key. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ingest.change import Declared, Operation, Row
from ingest.formats import events as given
from ingest.formats.contract import Refused
from ingest.formats.sql_types import from_postgres

_OPERATIONS: dict[str, Operation] = {
    "insert": "insert",
    "update": "update",
    "delete": "delete",
    "truncate": "truncate",
    "I": "insert",
    "U": "update",
    "D": "delete",
    "T": "truncate",
}
_AS_IT_IS = "send wal2json's output as it is"


@dataclass(frozen=True, slots=True)
class Image:
    """A row before or after: the columns that it says something of."""

    values: Row
    types: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RowChange:
    operation: Operation
    schema: object
    table: object
    new: Image | None
    old: Image | None  # the replica identity: the key, or all columns
    primary_key: tuple[str, ...] | None

    @property
    def name(self) -> tuple[str, str]:
        return str(self.schema), str(self.table)


def row_change(body: object) -> RowChange | Refused:
    """An element of version 1's `change`, or an object of version 2."""
    if not isinstance(body, dict):
        return Refused("not-object", f"a change is not a JSON object: {_AS_IT_IS}")
    first = "kind" in body
    said = body.get("kind") if first else body.get("action")
    operation = _OPERATIONS.get(said) if isinstance(said, str) else None
    if operation is None:
        return Refused(
            "unknown-operation", f"{given.short(said)} is not an operation of wal2json: {_AS_IT_IS}"
        )
    new = _columns(body, "column") if first else _listed(body.get("columns"))
    keys = given.row_of(body.get("oldkeys")) or {}
    old = _columns(keys, "key") if first else _listed(body.get("identity"))
    if operation in ("insert", "update") and new is None:
        return Refused("no-row", f"the columns of the row are missing or do not match: {_AS_IT_IS}")
    if operation == "delete" and old is None:
        reason = "the deleted row is not named: give the table a primary key, or set its REPLICA IDENTITY"
        return Refused("no-key", reason)
    primary_key = _primary_key(body.get("pk"))
    return RowChange(operation, body.get("schema"), body.get("table"), new, old, primary_key)


def columns_of_tables(rows: Iterable[object]) -> dict[tuple[str, str], set[str]]:
    """Which columns each table surely has."""
    columns: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        if isinstance(row, RowChange) and row.new is not None:
            columns.setdefault(row.name, set()).update(row.new.values)
    return columns


def key_of(row: RowChange, columns: set[str]) -> tuple[str, ...] | None:
    """The primary key, or the replica identity where that is surely not the whole row."""
    if row.primary_key or row.old is None:
        return row.primary_key
    names = tuple(row.old.values)
    known = set(row.new.values) if row.new is not None else columns
    return names if len(names) == 1 or set(names) < known else None


def declared_of(row: RowChange) -> Declared | None:
    columns = {}
    for image in (row.old, row.new):
        for column, text in (image.types if image else {}).items():
            iceberg = from_postgres(text)
            if iceberg is not None:
                columns[column] = iceberg
    if not columns:
        return None
    return Declared(columns, {column: "hex" for column, kind in columns.items() if kind == "binary"})


def _columns(body: Row, prefix: str) -> Image | None:
    """Version 1: names, types and values in lists side by side."""
    names, values = given.names_of(body.get(f"{prefix}names")), body.get(f"{prefix}values")
    if names is None or not isinstance(values, list) or len(values) != len(names):
        return None
    types = body.get(f"{prefix}types")
    known = types if isinstance(types, list) and len(types) == len(names) else []
    return Image(dict(zip(names, values, strict=True)), dict(zip(names, known, strict=False)))


def _listed(value: object) -> Image | None:
    """Version 2: `[{name, type, value}]`."""
    if not isinstance(value, list) or not value:
        return None
    image = Image({}, {})
    for column in value:
        if not isinstance(column, dict) or not isinstance(column.get("name"), str) or "value" not in column:
            return None
        image.values[column["name"]] = column["value"]
        if "type" in column:
            image.types[column["name"]] = column["type"]
    return image


def _primary_key(value: object) -> tuple[str, ...] | None:
    """`{pknames: [...]}` in version 1, `[{name, type}]` in version 2; of a table without one it is empty."""
    if isinstance(value, dict):
        return given.names_of(value.get("pknames"))
    if isinstance(value, list):
        return given.names_of([column.get("name") for column in value if isinstance(column, dict)])
    return None
