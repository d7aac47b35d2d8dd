"""CockroachDB changefeeds: the elements of a webhook's `payload`, in the wrapped or the enriched envelope.

Wrapped: `{after, before?, key[], topic, updated?}`. Enriched: `{after, before?, key{}, op, source{}, ts_ns}`,
bare or as `{payload, schema}`. A delete is `after: null`, so the names of the key columns are needed: from
the enriched envelope, from `diff`, or from the request. `updated` orders the versions of a row. Without
`diff`, the wrapped envelope does not distinguish an insert from an update.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ingest.change import (
    Change,
    Declared,
    Operation,
    ParsedRequest,
    Refused,
    RequestContext,
    Row,
    TableName,
    fingerprint,
    original_of,
    position_of,
    table_of,
)
from ingest.formats import fields as given

_TYPES = {"int64": "long", "boolean": "boolean", "float64": "double", "bytes": "binary", "json": "string"}
_NAMED = {"date": "date", "time": None, "timestamp": None, "geometry": "string", "geography": "string"}
_INLINE = ("json", "struct")
_DECIMAL_DIGITS_MAX = 38


@dataclass(frozen=True, slots=True)
class Columns:
    declared: Declared | None
    inline: frozenset[str] = frozenset()  # JSON in JSON

    def row(self, row: Row) -> Row:
        """Return the row with the values that its declared types expect."""
        if self.declared is None:
            return row
        changed = {
            column: original_of(row[column]).decode() for column in self.inline if row.get(column) is not None
        }
        for column in self.declared.encodings:
            value = row.get(column)
            if isinstance(value, str):
                changed[column] = value.removeprefix("\\x")
        return {**row, **changed} if changed else row


def columns_of(schema: object) -> Columns:
    """Return the columns of `after` in the envelope's schema, or of `before` if there is no `after`."""
    fields = _schema_fields(given.row_of(schema))
    images = {field.get("field"): field for field in fields}
    image = images.get("after") or images.get("before")
    types: dict[str, Any] = {}
    encodings: dict[str, str] = {}
    inline = set()
    for field in _schema_fields(image):
        column, iceberg = field.get("field"), _iceberg(field)
        if not isinstance(column, str) or iceberg is None:
            continue
        types[column] = iceberg
        if iceberg == "binary":
            encodings[column] = "hex"
        if field.get("type") in _INLINE:
            inline.add(column)
    return Columns(Declared(types, encodings) if types else None, frozenset(inline))


def _schema_fields(schema: Row | None) -> list[Row]:
    fields = schema.get("fields") if schema else None
    return [field for field in fields if isinstance(field, dict)] if isinstance(fields, list) else []


def _iceberg(field: Row) -> str | None:
    name, kind = field.get("name"), field.get("type")
    if name == "decimal":
        parameters = given.row_of(field.get("parameters")) or {}
        precision, scale = (
            given.number_of(parameters.get("precision")),
            given.number_of(parameters.get("scale")),
        )
        if not precision or scale is None:
            return None
        return f"decimal({precision},{scale})" if scale <= precision <= _DECIMAL_DIGITS_MAX else "string"
    if isinstance(name, str) and name in _NAMED:
        return _NAMED[name]
    if kind == "string":
        return "string"
    return _TYPES.get(kind) if isinstance(kind, str) else None


# -- changefeeds

NAME = "cockroach"
_OPERATIONS: dict[str, Operation] = {"c": "insert", "u": "update", "d": "delete"}
_WRAPPED = frozenset(("after", "before", "key", "topic", "updated", "mvcc_timestamp"))
_SIGNS = frozenset(("key", "topic", "updated", "mvcc_timestamp"))
_NO_KEY = (
    "a deleted row is named by the values of its key alone: add ?key=<the key columns> to the address, or "
    "create the changefeed with diff, or with envelope=enriched, enriched_properties='source'"
)
_BARE = (
    "the bare envelope does not tell a deleted row from one full of nulls: create the changefeed with "
    "envelope=wrapped or envelope=enriched"
)


def recognises(event: object) -> bool:
    if not isinstance(event, dict):
        return False
    if "resolved" in event:
        return len(event) == 1
    if "__crdb__" in event:
        return True
    body = _body(event)
    if "after" not in body:
        return False
    source = body.get("source")
    if isinstance(source, dict):
        return source.get("origin") == "cockroachdb" or "changefeed_sink" in source
    if "op" in body:
        return "ts_ns" in body and "key" in body and "source" not in body
    return body.keys() <= _WRAPPED and not _SIGNS.isdisjoint(body)


def read(events: Sequence[tuple[int, Any]], context: RequestContext, parsed: ParsedRequest) -> None:
    given.read_each(events, context, parsed, _read)


def _body(event: Row) -> Row:
    return given.row_of(event.get("payload")) or event


def _read(index: int, event: Row, context: RequestContext, parsed: ParsedRequest) -> None:
    if "resolved" in event or "resolved" in (given.row_of(event.get("__crdb__")) or {}):
        parsed.ignored[index] = "resolved timestamp"
        return
    if "__crdb__" in event:
        raise Refused("bare-envelope", _BARE)
    body = _body(event)
    origin = given.row_of(body.get("source")) or {}
    table = _table(body, origin, context)
    source = given.source_of(context, NAME, origin.get("cluster_id"))
    if "after" not in body or not (body["after"] is None or isinstance(body["after"], dict)):
        reason = "`after` is neither a row nor null: send the changefeed's own messages, in format=json"
        raise given.RowRefused("no-row", reason, table, source)
    after, before = body["after"], given.row_of(body.get("before"))
    key = _key(body, origin, context)
    if after is None:
        before = {**(key or {}), **(before or {})}
        if not before:
            raise given.RowRefused("no-key", _NO_KEY, table, source)
    columns = columns_of(event.get("schema"))
    operation = _operation(body)
    change = Change(index, table, operation, source=source, declared=columns.declared)
    change.before = None if operation == "insert" or before is None else columns.row(before)
    change.after = None if after is None else columns.row(after)
    change.key = tuple(key) if key else given.names_of(origin.get("primary_keys"))
    moment = _moment(body, origin)
    if moment is not None:
        change.position = position_of(*moment)
        change.time_ms = moment[0] // 1_000_000
        if body.get("key") is not None:
            change.identity = fingerprint(table, body.get("topic"), body["key"], moment)
    parsed.changes.append(change)


def _table(body: Row, origin: Row, context: RequestContext) -> TableName:
    topic = body.get("topic")
    if "table_name" in origin or not isinstance(topic, str):
        return table_of(origin.get("schema_name"), origin.get("table_name"), context)
    parts = topic.split(".")
    return table_of(parts[-2] if len(parts) > 1 else None, parts[-1], context)


def _key(body: Row, origin: Row, context: RequestContext) -> Row | None:
    """Return the key. It is an object in the enriched envelope, else a list of values in the order of the
    primary key.
    """
    key = body.get("key")
    if isinstance(key, dict):
        return key or None
    if not isinstance(key, list) or not key:
        return None
    for names in (given.names_of(origin.get("primary_keys")), context.key):
        if names is not None and len(names) == len(key):
            return dict(zip(names, key, strict=True))
    return None


def _operation(body: Row) -> Operation:
    if body["after"] is None:
        return "delete"
    word = body.get("op")
    if isinstance(word, str) and word in _OPERATIONS and word != "d":
        return _OPERATIONS[word]
    return "insert" if "before" in body and body["before"] is None else "update"


def _moment(body: Row, origin: Row) -> tuple[int, int] | None:
    """Parse a time such as `1536242855577149065.0000000000`: nanoseconds, and a counter inside them."""
    mvcc = (body.get("mvcc_timestamp"), origin.get("mvcc_timestamp"))
    for value in (body.get("updated"), origin.get("ts_hlc"), *mvcc):
        if isinstance(value, str):
            wall, _, logical = value.partition(".")
            nanoseconds, counter = given.number_of(wall), given.number_of(logical or "0")
            if nanoseconds is not None and counter is not None:
                return nanoseconds, counter
    return None
