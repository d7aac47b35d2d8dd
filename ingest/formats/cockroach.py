"""CockroachDB changefeeds: the elements of a webhook's `payload`, in the wrapped or the enriched envelope.

Wrapped: `{after, before?, key[], topic, updated?}`. Enriched: `{after, before?, key{}, op, source{...}, ts_ns}`,
bare or as `{payload, schema}`. A delete is `after: null`, so the names of the key columns are needed: from the
enriched envelope, from `diff`, or from the request. `updated` orders the versions of a row; without `diff` the
wrapped envelope does not tell an insert from an update.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingest.change import Change, Context, Operation, Parsed, Row, TableName, position_of
from ingest.formats import events as given
from ingest.formats.cockroach_schema import Columns, columns_of

NAME = "cockroach"
_OPERATIONS: dict[str, Operation] = {"c": "insert", "u": "update", "d": "delete"}
_WRAPPED = frozenset(("after", "before", "key", "topic", "updated", "mvcc_timestamp"))
_SIGNS = frozenset(("key", "topic", "updated", "mvcc_timestamp"))
_NO_KEY = (
    "a deleted row is named by the values of its key alone: add ?key=<the key columns> to the address, or "
    "create the changefeed with diff, or with envelope=enriched, enriched_properties='source'"
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


def read(events: Sequence[tuple[int, Any]], context: Context, parsed: Parsed) -> None:
    for index, event in events:
        outer = given.row_of(event) or {}
        crdb = given.row_of(outer.get("__crdb__")) or {}
        if "resolved" in outer or "resolved" in crdb:
            parsed.ignored[index] = "resolved timestamp"
        elif "__crdb__" in outer:
            reason = "the bare envelope does not tell a deleted row from one full of nulls: create the "
            reason += "changefeed with envelope=wrapped or envelope=enriched"
            given.refuse(parsed, index, event, reason, "bare-envelope", table=context.table)
        else:
            _read(index, event, _body(outer), columns_of(outer.get("schema")), context, parsed)


def _body(event: Row) -> Row:
    return given.row_of(event.get("payload")) or event


def _read(
    index: int, event: object, body: Row, columns: Columns, context: Context, parsed: Parsed
) -> None:
    origin = given.row_of(body.get("source")) or {}
    source = given.source_of(context, NAME, origin.get("cluster_id"))
    table = _table(body, origin, context)
    if table is None:
        given.refuse(parsed, index, event, given.NO_TABLE, "no-table", source=source)
        return
    after, before = given.row_of(body.get("after")), given.row_of(body.get("before"))
    if "after" not in body or (after is None and body["after"] is not None):
        reason = "`after` is neither a row nor null: send the changefeed's own messages, in format=json"
        given.refuse(parsed, index, event, reason, "no-row", table=table, source=source)
        return
    key = _key(body, origin, context)
    names = tuple(key) if key else given.names_of(origin.get("primary_keys"))
    if after is None:
        before = {**(key or {}), **(before or {})}
        if not before:
            given.refuse(parsed, index, event, _NO_KEY, "no-key", table=table, source=source)
            return
    moment = _moment(body, origin)
    identity = given.fingerprint(table, body.get("topic"), body.get("key"), moment)
    operation = _operation(body, after)
    parsed.changes.append(
        Change(
            index,
            table,
            operation,
            before=None if operation == "insert" or before is None else columns.row(before),
            after=None if after is None else columns.row(after),
            key=names,
            source=source,
            position="" if moment is None else position_of(*moment),
            identity=given.identity_of(
                "" if moment is None or body.get("key") is None else identity, context, index
            ),
            time_ms=None if moment is None else moment[0] // 1_000_000,
            declared=columns.declared,
        )
    )


def _table(body: Row, origin: Row, context: Context) -> TableName | None:
    if isinstance(origin.get("table_name"), str):
        return given.table_of(context, origin["table_name"], origin.get("schema_name"))
    topic = body.get("topic")
    if context.table is None and isinstance(topic, str) and topic:
        return given.table_of_topic(topic, context)
    return given.table_of(context, None)


def _key(body: Row, origin: Row, context: Context) -> Row | None:
    """`key` is an object in the enriched envelope, else a list of values in the order of the primary key."""
    key = body.get("key")
    if isinstance(key, dict):
        return key or None
    if not isinstance(key, list) or not key:
        return None
    for names in (given.names_of(origin.get("primary_keys")), context.key):
        if names is not None and len(names) == len(key):
            return dict(zip(names, key, strict=True))
    return None


def _operation(body: Row, after: Row | None) -> Operation:
    if after is None:
        return "delete"
    said = body.get("op")
    if isinstance(said, str) and said in _OPERATIONS and said != "d":
        return _OPERATIONS[said]
    return "insert" if "before" in body and body["before"] is None else "update"


def _moment(body: Row, origin: Row) -> tuple[int, int] | None:
    """`1536242855577149065.0000000000`: nanoseconds, and a counter inside them."""
    for value in (body.get("updated"), origin.get("ts_hlc"), body.get("mvcc_timestamp"), origin.get("mvcc_timestamp")):
        if isinstance(value, str):
            wall, _, logical = value.partition(".")
            nanoseconds, counter = given.number_of(wall), given.number_of(logical or "0")
            if nanoseconds is not None and counter is not None:
                return nanoseconds, counter
    return None
