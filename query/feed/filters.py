"""The filter of a subscriber: by table, operation, predicate and columns.

The predicate is that of `rows?where=`: PyIceberg parses it and evaluates it on values, so it has no
functions, no subqueries and no access to anything but the columns of one row. SQL in a query process would
cost a process for each subscriber. A change is sent if the predicate holds for the row before it or after it:
a subscriber gets the change by which a row enters or leaves its selection.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from catalog.errors import Invalid
from ingest.store.tables import CHANGES_SUFFIX, REJECTS_SUFFIX

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

OPERATIONS = ("insert", "update", "delete", "truncate", "read")
NAMES_MAX = 100
NAME_CHARS_MAX = 1000
LEVEL_SEPARATOR = "\x1f"

Row = Mapping[str, Any]
Levels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """The filter of a request, checked by `filter_of`."""

    tables: tuple[str, ...] = ()  # names and patterns; none: every table
    operations: frozenset[str] = frozenset()  # none: every operation
    where: str | None = None
    columns: tuple[str, ...] = ()  # none: all

    def matches_table(self, levels: Levels) -> bool:
        if not self.tables:
            return True
        name = ".".join(levels)
        return any(_pattern(text).fullmatch(name) for text in self.tables)

    def matches_operation(self, operation: str) -> bool:
        return not self.operations or operation in self.operations

    @property
    def names(self) -> tuple[Levels, ...]:
        """Return the tables that are named in full, without a pattern."""
        return tuple(_levels(text) for text in self.tables if "*" not in text)

    @property
    def has_patterns(self) -> bool:
        return not self.tables or any("*" in text for text in self.tables)

    def shown(self, row: Row | None) -> Row | None:
        """Return the row with the requested columns only."""
        if row is None or not self.columns:
            return row
        return {name: row[name] for name in self.columns if name in row}


def filter_of(
    tables: Sequence[str] | None,
    operations: Sequence[str] | None,
    where: str | None = None,
    columns: Sequence[str] | None = None,
) -> Filter:
    """Return the filter, from lists or comma-separated texts. Invalid says which part is wrong."""
    names = _parts(tables, "tables")
    for name in names:
        if not all(_levels(name)) or len(_levels(name)) < 2:
            raise Invalid(f"tables: {name} must be namespace.table or a pattern such as shop.*")
        if name.endswith((CHANGES_SUFFIX, REJECTS_SUFFIX)):
            raise Invalid(f"tables: name the table itself, not {name}")
    wanted = {text.lower() for text in _parts(operations, "operations")}
    for operation in wanted:
        if operation not in OPERATIONS:
            raise Invalid(f"operations: {operation} is not one of {', '.join(OPERATIONS)}")
    return Filter(names, frozenset(wanted), (where or "").strip() or None, _parts(columns, "columns"))


def _parts(given: Sequence[str] | None, what: str) -> tuple[str, ...]:
    parts = [part.strip() for text in given or () for part in text.split(",")]
    found = tuple(dict.fromkeys(part for part in parts if part))
    if len(found) > NAMES_MAX or any(len(part) > NAME_CHARS_MAX for part in found):
        raise Invalid(f"{what}: at most {NAMES_MAX} names of at most {NAME_CHARS_MAX} characters")
    return found


def _levels(text: str) -> Levels:
    """Names that contain dots are written with 0x1F between the levels."""
    return tuple(text.split(LEVEL_SEPARATOR if LEVEL_SEPARATOR in text else "."))


def _pattern(text: str) -> re.Pattern[str]:
    """Return the expression of a pattern, in which `*` stands for any characters within one level. `re`
    caches it.
    """
    dotted = ".".join(_levels(text))
    return re.compile("[^.]*".join(re.escape(part) for part in dotted.split("*")))


# -- predicates

Predicate = Callable[[Row | None], bool]


def always(_row: Row | None) -> bool:
    return True


def never(_row: Row | None) -> bool:
    return False


def predicate(where: str | None, schema: Schema) -> Predicate:
    """Return the predicate for rows of a table with JSON values. Invalid if it does not fit."""
    if where is None:
        return always
    from pyiceberg.expressions.literals import literal
    from pyiceberg.expressions.visitors import expression_evaluator
    from pyiceberg.typedef import Record
    from pyiceberg.types import TimestamptzType

    from query.tables.predicates import parsed_where

    evaluate = expression_evaluator(schema, parsed_where(where, schema), case_sensitive=True)

    def typed(value: Any, type_: Any) -> Any:
        """Convert a value to the type of PyIceberg's literals: a timestamp is microseconds, a decimal a
        Decimal.
        """
        if value is None or isinstance(value, list | dict):
            return None
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if isinstance(type_, TimestamptzType) and text.endswith("Z"):
            text = f"{text[:-1]}+00:00"  # PyIceberg accepts only numeric offsets
        try:
            return literal(text).to(type_).value
        except (ValueError, TypeError, ArithmeticError):
            return None  # the source sent a value of another type, which cannot be compared

    fields = [(field.name, field.field_type) for field in schema.fields]

    def holds(row: Row | None) -> bool:
        if row is None:
            return False
        values = [typed(row.get(name), type_) if type_.is_primitive else None for name, type_ in fields]
        return bool(evaluate(Record(*values)))

    return holds
