"""When two schemas say the same: then the second is not added, and the id of the first is used."""

from __future__ import annotations

from typing import Any

from catalog.metadata.shapes import JsonObject
from catalog.metadata.types import primitive


def same_schema(one: JsonObject, other: JsonObject) -> bool:
    """Whether two checked schemas say the same, whatever their ids and however their types are spelled."""
    fields, others = one["fields"], other["fields"]
    # Most schemas of a table differ here already, which spares the walk.
    if [field.get("name") for field in fields] != [field.get("name") for field in others]:
        return False
    return bool(_essence(one) == _essence(other))


def _essence(schema: JsonObject) -> Any:
    identifiers = frozenset(schema.get("identifier-field-ids") or ())
    rest = {key: value for key, value in schema.items() if key not in ("schema-id", "identifier-field-ids")}
    return identifiers, _type_essence(rest)


def _type_essence(type_: Any) -> Any:
    if isinstance(type_, str):
        return primitive(type_).canonical
    kind = type_["type"]
    if kind == "struct":
        fields = [
            {key: value for key, value in field.items() if value is not None}
            | {"type": _type_essence(field["type"])}
            for field in type_["fields"]
        ]
        return type_ | {"fields": fields}
    parts = ("element",) if kind == "list" else ("key", "value")
    return type_ | {part: _type_essence(type_[part]) for part in parts}
