"""The rules of a source: which tables are stored, under which names, without which columns. Pure.

Patterns match the name of a table as the producer sends it, with dots between its levels. The rules for
columns also match the name that a route gives to the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from catalog.errors import Invalid
from catalog.names import check_name
from ingest.change import TableName, reserved
from ingest.settings import TypeChanges
from ingest.sources.patterns import filled, matched

RULES_MAX = 1000  # of each kind
PATTERN_CHARS_MAX = 1000
ROW_ID = "rowId"  # the producer's id of a row, in a list of columns

Columns = tuple[tuple[str, tuple[str, ...]], ...]  # pattern of tables, names of columns


@dataclass(frozen=True, slots=True)
class SourceRules:
    include: tuple[str, ...] = ()  # empty: all tables
    exclude: tuple[str, ...] = ()
    route: tuple[tuple[str, str], ...] = ()  # pattern, new name; the first that matches is used
    drop_columns: Columns = ()
    hash_columns: Columns = ()
    type_changes: TypeChanges | None = None  # of tables that have no setting of their own

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> SourceRules:
        """Parse JSON. Invalid names the rule that cannot be used."""
        return cls(
            _patterns("include", given.get("include", ())),
            _patterns("exclude", given.get("exclude", ())),
            _routes(given.get("route", ())),
            _columns("drop-columns", given.get("drop-columns", {})),
            _columns("hash-columns", given.get("hash-columns", {})),
            given.get("type-changes"),
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "include": list(self.include),
            "exclude": list(self.exclude),
            "route": [{"from": pattern, "to": to} for pattern, to in self.route],
            "drop-columns": {pattern: list(columns) for pattern, columns in self.drop_columns},
            "hash-columns": {pattern: list(columns) for pattern, columns in self.hash_columns},
            "type-changes": self.type_changes,
        }

    @property
    def hides_columns(self) -> bool:
        return bool(self.drop_columns or self.hash_columns)


@dataclass(frozen=True, slots=True)
class TableRules:
    """The rules of a source for one table."""

    table: TableName  # its name in the warehouse
    is_excluded: bool
    dropped: frozenset[str]
    hashed: frozenset[str]

    @property
    def hidden(self) -> frozenset[str]:
        return self.dropped | self.hashed


@lru_cache(maxsize=4096)
def rules_of_table(rules: SourceRules, table: TableName) -> TableRules:
    name = ".".join(table)
    included = not rules.include or _is_any(rules.include, name)
    routed = _routed(rules, table, name)
    names = (name, ".".join(routed))
    dropped = _named(rules.drop_columns, names)
    return TableRules(
        routed,
        is_excluded=not included or _is_any(rules.exclude, name),
        dropped=dropped,
        hashed=_named(rules.hash_columns, names) - dropped,
    )


def _is_any(patterns: tuple[str, ...], name: str) -> bool:
    return any(matched(pattern, name) is not None for pattern in patterns)


def _routed(rules: SourceRules, table: TableName, name: str) -> TableName:
    for pattern, to in rules.route:
        parts = matched(pattern, name)
        if parts is not None:
            return tuple(filled(to, parts).split("."))
    return table


def _named(rules: Columns, names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(
        column
        for pattern, columns in rules
        if any(matched(pattern, name) is not None for name in names)
        for column in columns
    )


def _patterns(rule: str, given: Any) -> tuple[str, ...]:
    _require_few(rule, given)
    return tuple(_pattern(rule, text) for text in given)


def _pattern(rule: str, text: str) -> str:
    if not text or len(text) > PATTERN_CHARS_MAX or not text.isprintable():
        raise Invalid(f"{rule}: a pattern must be a text of 1 to {PATTERN_CHARS_MAX} characters: {text!r}")
    if "*" not in text and "." not in text:
        raise Invalid(f"{rule}: {text!r} names no table: write namespace.table, or use * as in *.{text}")
    return text


def _routes(given: Any) -> tuple[tuple[str, str], ...]:
    _require_few("route", given)
    found = []
    for route in given:
        pattern, to = _pattern("route", route["from"]), route["to"]
        if to.count("*") > pattern.count("*"):
            raise Invalid(f"route: {to!r} has more * than {pattern!r}: each * of it stands for one of them")
        levels = to.replace("*", "x").split(".")
        if len(levels) < 2:
            raise Invalid(f"route: {to!r} names no table: write namespace.table")
        for level in levels:
            check_name(level, "name in a route")
        if reserved(levels[-1]) is not None:
            raise Invalid(f"route: {to!r} is reserved for tables that Calve adds: choose another name")
        found.append((pattern, to))
    return tuple(found)


def _columns(rule: str, given: Mapping[str, Any]) -> Columns:
    _require_few(rule, given)
    found = []
    for pattern, columns in given.items():
        if not columns or len(columns) > RULES_MAX or not all(columns):
            raise Invalid(f"{rule}: {pattern!r} must list 1 to {RULES_MAX} names of columns")
        found.append((_pattern(rule, pattern), tuple(columns)))
    return tuple(found)


def _require_few(rule: str, given: Any) -> None:
    if len(given) > RULES_MAX:
        raise Invalid(f"{rule} may have {RULES_MAX} entries, and has {len(given)}")
