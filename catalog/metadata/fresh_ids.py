"""New field ids for the schema of a new table: clients number as they like, the table starts at 1."""

from __future__ import annotations

from typing import Any

from catalog.metadata.shapes import JsonObject


class _FreshIds:
    """Gives new ids as Java does: the fields of a struct first, then what is inside each of them."""

    __slots__ = ("ids", "last")

    def __init__(self) -> None:
        self.last = 0
        self.ids: dict[int, int] = {}

    def next(self, old: int) -> int:
        self.last += 1
        self.ids[old] = self.last
        return self.last

    def type(self, type_: Any) -> Any:
        if isinstance(type_, str):
            return type_
        kind = type_["type"]
        if kind == "struct":
            renumbered = [field | {"id": self.next(field["id"])} for field in type_["fields"]]
            return type_ | {"fields": [field | {"type": self.type(field["type"])} for field in renumbered]}
        if kind == "list":
            element = {"element-id": self.next(type_["element-id"])}
            return type_ | element | {"element": self.type(type_["element"])}
        ids = {"key-id": self.next(type_["key-id"]), "value-id": self.next(type_["value-id"])}
        return type_ | ids | {"key": self.type(type_["key"]), "value": self.type(type_["value"])}


def fresh_ids(schema: JsonObject) -> tuple[JsonObject, dict[int, int], int]:
    """A checked schema with new ids from 1; the new id of each old one; the last id that was given."""
    fresh = _FreshIds()
    renumbered: JsonObject = fresh.type(schema)
    if schema.get("identifier-field-ids") is not None:
        renumbered["identifier-field-ids"] = [fresh.ids[id_] for id_ in schema["identifier-field-ids"]]
    return renumbered, fresh.ids, fresh.last
