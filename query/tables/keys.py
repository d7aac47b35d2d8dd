"""Keys of rows: the columns that identify a row, and their values in a request.

A request names a row as `17` (a key of one column), as `region=eu,id=17`, or as a JSON object if a value
contains a comma.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from pyiceberg.expressions import AlwaysTrue, BooleanExpression, EqualTo, Reference
from pyiceberg.expressions.literals import Literal, literal
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType

from catalog.errors import Invalid
from ingest.settings import TableSettings
from query.tables.access import TableAccess

NO_KEY = (
    "{table} has no key: set identifier fields of the table, or a key with "
    "PUT /lake/v1/{{warehouse}}/namespaces/{{namespace}}/tables/{{table}}/ingest"
)


def settings_of(access: TableAccess) -> TableSettings:
    """Return the ingest settings of the table."""
    if access.landing is None:
        return TableSettings()
    name = access.identifier.parts
    return access.landing.one(access.warehouse.name, name).settings


def key_columns(access: TableAccess, schema: Schema) -> tuple[str, ...]:
    """Return the key in the ingest settings, else the identifier fields. Empty if there is neither."""
    names = {field.name for field in schema.fields}
    chosen = settings_of(access).key or ()
    if chosen and names.issuperset(chosen):
        return tuple(chosen)
    identifiers = set(schema.identifier_field_ids)
    return tuple(field.name for field in schema.fields if field.field_id in identifiers)


def require_key(access: TableAccess, schema: Schema) -> tuple[str, ...]:
    columns = key_columns(access, schema)
    if not columns:
        raise Invalid(NO_KEY.format(table=access.identifier))
    return columns


def key_values(columns: Sequence[str], texts: Sequence[str]) -> dict[str, Any]:
    """Return the values of the key columns that a request names."""
    pairs = _pairs(columns, texts)
    missing = [column for column in columns if column not in pairs]
    unknown = [column for column in pairs if column not in columns]
    if missing or unknown:
        example = ",".join(f"{column}=VALUE" for column in columns)
        raise Invalid(f"key: the key of the table is {', '.join(columns)}; write it as {example}")
    return {column: pairs[column] for column in columns}


def _pairs(columns: Sequence[str], texts: Sequence[str]) -> Mapping[str, Any]:
    if len(texts) == 1:
        text = texts[0]
        if text.startswith("{") and isinstance(found := _json(text), dict):
            return found
        if len(columns) == 1:
            name, equals, value = text.partition("=")
            return {columns[0]: value if equals and name == columns[0] else text}
        texts = text.split(",")
    parts = (text.partition("=") for text in texts)
    return {name.strip(): value for name, _, value in parts}


def _json(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def key_filter(schema: Schema, values: Mapping[str, Any]) -> BooleanExpression:
    """Return the predicate that selects the rows of one key."""
    found: BooleanExpression = AlwaysTrue()
    for column, value in values.items():
        found &= EqualTo(term=Reference(column), value=typed(schema.find_type(column), value, column))
    return found


def typed(type_: IcebergType, value: Any, column: str) -> Literal[Any]:
    """Return a value of a request as a literal of the column's type."""
    if isinstance(value, bool | int | float):
        value = str(value).lower() if isinstance(value, bool) else str(value)
    if not isinstance(value, str):
        raise Invalid(f"key: {column} needs a {type_}, not {value!r}")
    try:
        return literal(value).to(type_)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise Invalid(f"key: {column} needs a {type_}, not {value!r}: {error}") from error
