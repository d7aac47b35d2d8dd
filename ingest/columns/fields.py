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
            fields = [{"name": each["name"], "required": False, "type": each["type"]} for each in type_["fields"]]
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
