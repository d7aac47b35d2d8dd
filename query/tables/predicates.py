"""Parse the predicates of requests: `where` in PyIceberg's syntax, and ranges of dates."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from pyiceberg.expressions import (
    AlwaysTrue,
    BooleanExpression,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
    Reference,
)
from pyiceberg.expressions.literals import Literal, literal
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import bind
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, IcebergType, TimestampType, TimestamptzType
from pyparsing import ParseBaseException

from catalog.errors import Invalid
from query.tables.dependencies import PREDICATE_EXAMPLE
from query.tables.opening import errors_as_catalog_errors

WHERE_LENGTH_MAX = 10_000
TIME_TYPES = (DateType, TimestampType, TimestamptzType)


def parsed_where(text: str | None, schema: Schema, what: str = "where") -> BooleanExpression:
    """Return the predicate, checked against the columns."""
    if text is None or not text.strip():
        return AlwaysTrue()
    if len(text) > WHERE_LENGTH_MAX:
        raise Invalid(f"{what}: longer than {WHERE_LENGTH_MAX} characters")
    try:
        found = parse(text)
    except (ParseBaseException, RecursionError, ValueError) as error:
        where = f" at character {error.column}" if isinstance(error, ParseBaseException) else ""
        raise Invalid(f"{what}: cannot be read{where}. Write it as {PREDICATE_EXAMPLE}") from error
    with errors_as_catalog_errors(what):
        bind(schema, found, case_sensitive=True)
    return found


def date_range(
    schema: Schema, spec: PartitionSpec, column: str | None, first: str | None, last: str | None
) -> BooleanExpression:
    """Return the predicate from `first` to `last`, both included; a date means the whole day."""
    found: BooleanExpression = AlwaysTrue()
    if first is None and last is None:
        return found
    name = column or _only_column(schema, spec)
    field = next((field for field in schema.fields if field.name == name), None)
    if field is None or not isinstance(field.field_type, TIME_TYPES):
        raise Invalid(f"date_column: {name} is no column with dates or times")
    if first is not None:
        value, _ = _moment(first, "from_date")
        found &= GreaterThanOrEqual(term=Reference(name), value=_literal(field.field_type, value))
    if last is not None:
        value, is_day = _moment(last, "to_date")
        if is_day:
            day_after = _literal(field.field_type, value + timedelta(days=1))
            found &= LessThan(term=Reference(name), value=day_after)
        else:
            found &= LessThanOrEqual(term=Reference(name), value=_literal(field.field_type, value))
    return found


def _only_column(schema: Schema, spec: PartitionSpec) -> str:
    """Return the time column that the table is partitioned by, or its only time column."""
    columns = {
        field.field_id: field.name for field in schema.fields if isinstance(field.field_type, TIME_TYPES)
    }
    partitioned = {field.source_id for field in spec.fields if field.source_id in columns}
    candidates = [columns[id_] for id_ in partitioned] if len(partitioned) == 1 else list(columns.values())
    if len(candidates) != 1:
        known = ", ".join(columns.values()) or "none"
        raise Invalid(f"date_column: say which column has the dates; columns with dates or times: {known}")
    return candidates[0]


def _moment(text: str, what: str) -> tuple[datetime, bool]:
    """Return the time in UTC, and whether the text is a whole day."""
    try:
        if len(text) == len("2026-11-15"):
            day = date.fromisoformat(text)
            return datetime(day.year, day.month, day.day, tzinfo=UTC), True
        found = datetime.fromisoformat(text)
        found = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
        return found.astimezone(UTC), False
    except (ValueError, OverflowError) as error:
        raise Invalid(f"{what}: write a date (2026-11-15) or a time (2026-11-15T10:00:00Z)") from error


def _literal(type_: IcebergType, value: datetime) -> Literal[str]:
    if isinstance(type_, DateType):
        return literal(value.date().isoformat())
    text = value.replace(tzinfo=None).isoformat()
    return literal(f"{text}+00:00" if isinstance(type_, TimestamptzType) else text)
