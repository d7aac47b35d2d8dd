"""Fields of a schema with their ids: making new ones, and letting a nested type grow."""

from __future__ import annotations

from typing import Any

from catalog.errors import Invalid
from ingest.columns.types import IcebergType, creatable, promotes, shape


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
