"""A table of the lake for a comparison: its columns and key, and its rows at one number."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from calve.client import Lake
from calve.errors import CalveError
from calve.verification.columns import Column, Dialect, text_of, why_not_compared
from calve.verification.statements import Statements


class NotComparable(CalveError):
    """The table cannot be compared; the message says what to do."""


@dataclass(frozen=True, slots=True)
class LakeTable:
    lake: Lake
    name: str  # namespace.table
    key: tuple[str, ...]
    columns: tuple[Column, ...]

    @classmethod
    def load(cls, lake: Lake, name: str) -> LakeTable:
        found = lake.table(name).verification()
        if not found["key"]:
            raise NotComparable(f"{name} has no key, so its rows cannot be told apart: set one first")
        columns = tuple(
            Column(one["name"], one["type"] if isinstance(one["type"], str) else "nested")
            for one in found["columns"]
        )
        return cls(lake, name, tuple(found["key"]), columns)

    @property
    def parts(self) -> list[str]:
        return self.name.split(".")

    def now(self) -> tuple[LakeRows, int]:
        """The table as it is when everything that was acknowledged has landed."""
        statement = Statements(self.parts, (), (), "duckdb").any_row()
        number = int(self.lake.query(statement, consistency="fresh").as_of["number"])
        return LakeRows(self.lake, number), number

    def watermarks(self) -> Collection[str]:
        """The newest positions that have landed, of all tables of the sources of this one."""
        tables = self.lake.status()["landing"]["tables"]
        own = tables.get(self.name, {}).get("watermarks", {})
        return [
            mark["position"]
            for table in tables.values()
            for source, mark in table.get("watermarks", {}).items()
            if source in own
        ]

    def statements(self, dialect: Dialect, table: Sequence[str], columns: Sequence[Column]) -> Statements:
        """For these columns of the table."""
        named = {column.name: column for column in columns}
        missing = [name for name in self.key if name not in named]
        if missing:
            raise NotComparable(f"{self.name}: the key column {missing[0]} cannot be compared")
        return Statements(table, [named[name] for name in self.key], columns, dialect)

    def comparable(self, dialect: Dialect) -> tuple[list[Column], dict[str, str]]:
        """The columns that the dialect can write, sorted by name, and why others are left out."""
        kept, left_out = [], {}
        for column in sorted(self.columns, key=lambda column: column.name):
            if text_of(column, dialect) is None:
                left_out[column.name] = f"{column.type} has no exact text in {dialect}"
            else:
                kept.append(column)
        return kept, left_out

    def matched(self, types: dict[str, str], dialect: Dialect) -> tuple[list[Column], dict[str, str]]:
        """The same for a source with columns of these types."""
        kept, left_out = [], {}
        for column in sorted(self.columns, key=lambda column: column.name):
            found = Column(column.name, column.type, types.get(column.name, ""))
            reason = why_not_compared(found, dialect)
            if reason is None:
                kept.append(found)
            else:
                left_out[column.name] = reason
        unknown = {name: "the lake does not have it" for name in types if name not in self.names}
        return kept, left_out | unknown

    @property
    def names(self) -> set[str]:
        return {column.name for column in self.columns}


@dataclass(frozen=True, slots=True)
class LakeRows:
    lake: Lake
    number: int

    def rows(self, statement: str) -> list[list[Any]]:
        found = self.lake.query(statement, as_of=self.number)
        return [[row[column] for column in found.columns] for row in found.rows]
