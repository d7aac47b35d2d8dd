"""Debezium's envelope: `{before, after, source, op, ts_ms, transaction}`, bare or as `{schema, payload}`,
where the schema may be missing.

Debezium Server's HTTP sink sends only the value of a record: no key, no topic, no tombstone. Records of other
kinds come between the rows (transaction boundaries, heartbeats, schema changes, messages) and are recognised
by their fields.
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import md5
from typing import Any
from uuid import UUID

import orjson

from ingest.change import (
    Change,
    Operation,
    ParsedRequest,
    Refused,
    RequestContext,
    Row,
    TableName,
    TransactionBegin,
    TransactionEnd,
    fingerprint,
    table_of,
    whole_number,
)
from ingest.formats.ddl import debezium_renames
from ingest.formats.debezium_position import (
    LogPosition,
    gtid_of,
    log_position,
    origin_of,
    transaction_id,
    transaction_of,
)
from ingest.formats.debezium_schema import Block, block_of_envelope
from ingest.formats.fields import reject
from ingest.formats.json_body import NotJson, decode, is_sound
from ingest.identity import numbered_identity

_PLACEHOLDER = "__debezium_unavailable_value"
_BYTES = _PLACEHOLDER.encode()
_TEXTS = frozenset(
    {
        _PLACEHOLDER,
        b64encode(_BYTES).decode(),
        _BYTES.hex(),
        orjson.dumps({_PLACEHOLDER: _PLACEHOLDER}).decode(),  # hstore as JSON
    }
)
_LENGTHS = frozenset(map(len, _TEXTS))
_FORMS = (str, list, dict)
_ELEMENT_TEXTS = _TEXTS | {str(UUID(bytes=md5(_BYTES, usedforsecurity=False).digest(), version=3))}
# In arrays of numbers each byte is an element.
_NUMBERS = list(_BYTES)
_DECIMALS = [b64encode(bytes([byte])).decode() for byte in _BYTES]
_MAP = {_PLACEHOLDER: _PLACEHOLDER}

# MongoDB's extended JSON, simple forms: only the value is used.
_NUMBER_MARKS = frozenset({"$numberLong", "$numberInt", "$numberDouble"})
_MARKS = _NUMBER_MARKS | {"$oid", "$numberDecimal", "$date", "$symbol", "$uuid"}


def row_of_image(value: object, what: str) -> Row | None:
    """Return `before` or `after` as a row. Refused if it is not one."""
    if value is None:
        return None
    if isinstance(value, str):
        return _document(value, what)
    if not isinstance(value, dict):
        raise Refused("bad-row", f"`{what}` is not an object: send the row as an object of columns")
    for held in value.values():
        if held.__class__ in _FORMS and is_placeholder(held):
            return {name: held for name, held in value.items() if not is_placeholder(held)}
    return value


def is_placeholder(value: object) -> bool:
    """Return whether the value is a placeholder for a value that was not sent."""
    if isinstance(value, str):
        # compare lengths first: hashing a long text is slow
        return len(value) in _LENGTHS and value in _TEXTS
    return _is_array(value) if isinstance(value, list) else value == _MAP


def _is_array(value: list[Any]) -> bool:
    if len(value) == 1:
        return value[0].__class__ is str and value[0] in _ELEMENT_TEXTS
    return len(value) == len(_BYTES) and (value in (_NUMBERS, _DECIMALS))


def _document(text: str, what: str) -> Row:
    """Parse a document of MongoDB, which is sent as text of extended JSON."""
    try:
        value = decode(text.encode())
    except NotJson:
        value = None
    if not isinstance(value, dict) or not is_sound(value):
        raise Refused("bad-row", f"`{what}` is text, but not of a JSON object: send the row as an object")
    return {name: plain_value(held) for name, held in value.items()}


def plain_value(value: Any) -> Any:
    """Convert extended JSON to plain values."""
    if isinstance(value, list):
        return [plain_value(element) for element in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        mark, held = next(iter(value.items()))
        if mark in _MARKS:
            return _plain_number(held) if mark in _NUMBER_MARKS else plain_value(held)
    return {name: plain_value(held) for name, held in value.items()}


def _plain_number(held: Any) -> Any:
    if not isinstance(held, str):
        return held
    try:
        number = decode(held.encode())
    except NotJson:
        return held  # NaN and infinity stay text
    return number if isinstance(number, int | float | str) else held


# -- the envelope

NAME = "debezium"
SIGNALS = "debezium_signal"  # the table through which users control a connector

OPERATIONS: dict[object, Operation] = {
    "c": "insert",
    "u": "update",
    "d": "delete",
    "r": "read",
    "t": "truncate",
}
_LAST_OF_TABLE = ("last", "last_in_data_collection")  # values of `snapshot` for the last row
_NOTHING: Row = {}
_PLAIN = (str, int, float, bool, type(None))
_INVENTED = (None, 0, "", "AA==", "1970-01-01T00:00:00Z", "00:00:00Z")


@dataclass(slots=True)
class Envelope:
    """The parts of one record, also of a CloudEvent."""

    op: object
    before: object
    after: object
    source: Row
    transaction: object = None
    ts: Row = field(default_factory=dict)  # where the record's own time is
    block: Block | None = None


def recognises(event: object) -> bool:
    payload = _payload(event)
    if payload is None:
        return False
    source = payload.get("source")
    if "op" in payload and isinstance(source, dict):
        return "table_name" not in source  # that is CockroachDB's
    # A plain row may have one column `payload` that looks like a heartbeat; it must not be ignored.
    kinds = (_BEGIN, _END) if _is_payload_alone(event) else (_BEGIN, _END, _SCHEMA_CHANGE, _HEARTBEAT)
    return _kind(payload) in kinds


def read(events: Sequence[tuple[int, Any]], context: RequestContext, parsed: ParsedRequest) -> None:
    borders: list[tuple[int, Row]] = []
    repeats: Counter[str] = Counter()
    name = ""
    for index, event in events:
        payload = _payload(event)
        kind = _kind(payload) if payload is not None else _no_payload(event)
        if kind in (_BEGIN, _END) and payload is not None:
            borders.append((index, payload))
        elif kind == _SCHEMA_CHANGE and payload is not None:
            found = debezium_renames(index, payload, context)
            parsed.changes.extend(found)
            if not found:
                parsed.ignored[index] = _SCHEMA_CHANGE
        elif kind is not None:
            parsed.ignored[index] = kind
        else:
            envelope = _opened(event, payload or {})
            name = add_change(index, event, envelope, context, parsed, repeats) or name
    _add_borders(borders, context.source or name, parsed)


def add_change(
    index: int,
    event: object,
    envelope: Envelope,
    context: RequestContext,
    parsed: ParsedRequest,
    repeats: Counter[str],
) -> str:
    """Add the record's change or its reject. Returns the name of the source."""
    name = envelope.source.get("name")
    source = context.source or (name if isinstance(name, str) else "")
    table: TableName | None = None
    where = LogPosition("", None)
    try:
        if envelope.op == "m" or envelope.source.get("table") == SIGNALS:
            parsed.ignored[index] = "message" if envelope.op == "m" else "signal"
            return source
        transaction, total_order = transaction_of(envelope.transaction)
        where = log_position(envelope.source, total_order, envelope.ts, deletes=envelope.op == "d")
        table = _table(envelope.source, context)
        change = _change(index, envelope, table, context)
        change.source, change.position, change.transaction = source, where.position, transaction
        change.origin, change.gtid = origin_of(envelope.source), gtid_of(envelope.source)
        # In MySQL and MariaDB a truncate commits by itself. Debezium announces no end of it.
        change.transaction_ends = envelope.op == "t" and envelope.source.get("pos") is not None
        change.identity = identity_of(envelope, source, table, where, repeats, has_key=bool(change.key))
        parsed.changes.append(change)
        if envelope.op == "r" and envelope.source.get("snapshot") in _LAST_OF_TABLE:
            parsed.load_ends.add(index)
    except Refused as refused:
        parsed.rejects.append(
            reject(index, event, refused, context, table=table, source=source, position=where.position)
        )
    return source


def identity_of(
    envelope: Envelope,
    source: str,
    table: TableName,
    where: LogPosition,
    repeats: Counter[str],
    *,
    has_key: bool,
) -> str:
    """Return an identity that stays the same if Debezium sends the record again, after a restart and in other
    batches.

    Rows of a first load share their log position, and so do those of one COPY: their content distinguishes
    them. Equal rows, which only a table without a key can have, differ in their number or in the time of
    their record.
    """
    parts = [source, str(envelope.source.get("db") or ""), ".".join(table), str(envelope.op)]
    if envelope.op == "r":
        found = "/".join([*parts, where.position, fingerprint(envelope.after)])
        moment = _moment(envelope)
        own = found if moment is None or has_key else numbered_identity(found, moment)
        repeats[own] += 1
        return own if repeats[own] == 1 else f"{own}#{repeats[own]}"
    if where.mark is not None and where.order is None:
        return "/".join([*parts, where.mark])
    if where.mark is not None and where.order is not None:
        found = "/".join([*parts, where.mark, fingerprint(envelope.before, envelope.after)])
        return found if has_key else numbered_identity(found, where.order)
    return "/".join([*parts, where.position, fingerprint(envelope.before, envelope.after)])


def _moment(envelope: Envelope) -> int | None:
    """Return when the record was created, which stays the same when it is sent again."""
    for fields in (envelope.ts, envelope.source):
        for name in ("ts_ns", "ts_us", "ts_ms"):
            moment = whole_number(fields.get(name))
            if moment is not None:
                return moment
    return None


def _change(index: int, envelope: Envelope, table: TableName, context: RequestContext) -> Change:
    operation = OPERATIONS.get(envelope.op) if isinstance(envelope.op, str) else None
    if operation is None:
        raise Refused("no-operation", "`op` is none of c, u, d, r, t, m: send Debezium's records unchanged")
    before, after = row_of_image(envelope.before, "before"), row_of_image(envelope.after, "after")
    block = envelope.block
    if block is not None and block.reshape:
        before, after = block.reshaped(before), block.reshaped(after)
    if operation == "delete":
        after = None
        if not before:
            raise Refused(
                "no-before",
                "the delete has no `before`, so it is not known which row it means: give the table a primary "
                "key or REPLICA IDENTITY FULL",
            )
    elif operation == "truncate":
        before = after = None
    elif after is None:
        raise Refused("no-after", f"the {operation} has no `after`: send Debezium's records unchanged")
    elif operation == "update" and before:
        before = _certain(before, after)
    key = context.key or (("_id",) if isinstance(envelope.after or envelope.before, str) else None)
    time_ms = whole_number(envelope.source.get("ts_ms"))
    if time_ms is None:
        time_ms = whole_number(envelope.ts.get("ts_ms"))
    declared = block.declared if block is not None else None
    change = Change(index, table, operation, before, after, key, time_ms=time_ms, declared=declared)
    if operation in ("insert", "update") and isinstance(envelope.after, dict) and after is not None:
        # The row is whole except for placeholders, which an insert has if it is half of a key change. A
        # missing column was dropped at the source.
        change.unchanged = tuple(name for name in envelope.after if name not in after)
    return change


def _certain(before: Row, after: Row) -> Row:
    """Remove values that Debezium fills in for columns that PostgreSQL did not log: null, 0, "", 1970.

    The row is whole (REPLICA IDENTITY FULL) if a column has the same value as after, and not such a default.
    """
    is_whole = any(
        value not in _INVENTED and name in after and after[name] == value
        for name, value in before.items()
        if value.__class__ in _PLAIN
    )
    if is_whole:
        return before
    return {
        name: value for name, value in before.items() if value.__class__ in _PLAIN and value not in _INVENTED
    }


def _table(source: Row, context: RequestContext) -> TableName:
    name = source.get("table") or source.get("collection")
    return table_of(source.get("schema") or source.get("db"), name, context)


def _opened(event: Any, payload: Row) -> Envelope:
    source = payload.get("source")
    return Envelope(
        payload.get("op"),
        payload.get("before"),
        payload.get("after"),
        source if isinstance(source, dict) else _NOTHING,
        payload.get("transaction"),
        payload,
        block_of_envelope(event.get("schema")) if payload is not event and event.__class__ is dict else None,
    )


def _payload(event: object) -> Row | None:
    """Return the record's value, unwrapped from `{schema, payload}` or `{payload}`."""
    if not isinstance(event, dict):
        return None
    if "payload" in event and "op" not in event and ("schema" in event or _is_payload_alone(event)):
        inner = event["payload"]
        return inner if isinstance(inner, dict) else None
    return event


def _is_payload_alone(event: object) -> bool:
    """`{"payload": …}`: a wrapped record whose schema was left out."""
    return isinstance(event, dict) and event.keys() == {"payload"} and isinstance(event["payload"], dict)


def _no_payload(event: object) -> str | None:
    is_null = isinstance(event, dict) and "schema" in event and event.get("payload", "") is None
    return "tombstone" if is_null else None


def _kind(payload: Row) -> str | None:
    """Return the kind of a record that changes no row; None if it should change one."""
    if "op" in payload:
        return None
    status = payload.get("status")
    if status in ("BEGIN", "END") and "id" in payload and payload.keys() <= _BORDER:
        return _BEGIN if status == "BEGIN" else _END
    if "databaseName" in payload and ("ddl" in payload or "tableChanges" in payload):
        return _SCHEMA_CHANGE
    return _HEARTBEAT if payload.keys() <= _TIMES and "ts_ms" in payload else None


def _add_borders(borders: list[tuple[int, Row]], source: str, parsed: ParsedRequest) -> None:
    """Add transaction boundaries. Their records do not name the source; the rows beside them do."""
    for index, payload in borders:
        kind = _kind(payload) or ""
        transaction = transaction_id(payload.get("id"))
        if transaction is None:
            parsed.ignored[index] = f"{kind} without id"
        elif kind == _BEGIN:
            parsed.ignored[index] = kind
            parsed.begins.append(TransactionBegin(index, source, transaction))
        else:
            size = whole_number(payload.get("event_count"))
            parsed.ends.append(TransactionEnd(index, source, transaction, size))


_BEGIN, _END = "transaction begin", "transaction end"
_SCHEMA_CHANGE, _HEARTBEAT = "schema change", "heartbeat"
_TIMES = frozenset({"ts_ms", "ts_us", "ts_ns"})
_BORDER = _TIMES | {"status", "id", "event_count", "data_collections"}
