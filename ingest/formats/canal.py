"""Canal's FlatMessage: `{id, database, table, pkNames, isDdl, type, es, ts, sqlType, mysqlType, data[], old[]}`.

One message holds many rows, and every value is text: the types come from `mysqlType`, or `sqlType` (JDBC).
`id` is the number of a batch: several messages share it, and it begins again with the server; `es` is when a
statement began, not when it was committed. So neither is a position, changes count as they arrive, and a
message is known by all that it says. TiCDC adds `_tidb.commitTs`, which is a true position.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ingest.change import Change, Context, Declared, Operation, Parsed, Row, TableName, position_of
from ingest.formats import events as given
from ingest.formats.sql_types import from_jdbc, from_mysql

NAME = "canal"
_OPERATIONS: dict[str, Operation] = {
    "INSERT": "insert",
    "UPDATE": "update",
    "DELETE": "delete",
    "INIT": "read",  # Huawei DRS: a row of the first load
}
_IGNORED = {
    **dict.fromkeys(("CREATE", "ALTER", "ERASE", "RENAME", "CINDEX", "DINDEX", "QUERY"), "DDL"),
    **dict.fromkeys(("DDL", "INIT_DDL"), "DDL"),
    **dict.fromkeys(("GTID", "XACOMMIT", "XAROLLBACK"), "border of a transaction"),
    "MHEARTBEAT": "heartbeat",
    "TIDB_WATERMARK": "watermark",
}
_SECONDS_MAX = 100_000_000_000  # a smaller `es` is in seconds, as some producers write it


def recognises(event: object) -> bool:
    if not isinstance(event, dict) or not isinstance(event.get("type"), str):
        return False
    kind = event["type"]
    known = kind in _OPERATIONS or kind in _IGNORED or kind == "TRUNCATE"
    return known and (isinstance(event.get("data"), list) or isinstance(event.get("isDdl"), bool))


def read(events: Sequence[tuple[int, Any]], context: Context, parsed: Parsed) -> None:
    seen: Counter[str] = Counter()  # messages that say the same, inside one request
    for index, event in events:
        message = given.row_of(event) or {}
        kind = str(message.get("type"))
        if kind in _IGNORED or (message.get("isDdl") is True and kind != "TRUNCATE"):
            parsed.ignored[index] = _IGNORED.get(kind, "DDL")
            continue
        table = given.table_of(context, message.get("table"), message.get("database"))
        if table is None:
            given.refuse(parsed, index, event, given.NO_TABLE, "no-table")
        else:
            _read(index, message, event, table, context, parsed, seen)


def _read(
    index: int,
    message: Row,
    event: object,
    table: TableName,
    context: Context,
    parsed: Parsed,
    seen: Counter[str],
) -> None:
    source = given.source_of(context, NAME)
    kind = str(message.get("type"))
    name = _name(message, seen)
    if kind == "TRUNCATE":
        truncate = Change(index, table, "truncate", source=source, position=_position(message))
        truncate.identity = given.identity_of(name, context, index)
        truncate.time_ms = _time_ms(message)
        parsed.changes.append(truncate)
        return
    operation = _OPERATIONS.get(kind)
    if operation is None:
        reason = f"the type {given.short(message.get('type'))} is not one of Canal's: send the FlatMessage as it is"
        given.refuse(parsed, index, event, reason, "unknown-operation", table=table, source=source)
        return
    data, old = message.get("data"), message.get("old")
    rows: list[Any] = data if isinstance(data, list) else []
    if not rows:
        parsed.ignored[index] = "a message without rows"
        return
    old_rows: list[Any] = old if isinstance(old, list) else []
    declared = _declared(message)
    for ordinal, row in enumerate(rows):
        if not isinstance(row, dict):
            reason = "an element of `data` is not an object of columns: send the FlatMessage as it is"
            lone = {**message, "data": [row], "old": old_rows[ordinal : ordinal + 1] or None}
            given.refuse(parsed, index, lone, reason, "no-row", table=table, source=source)
            continue
        was = given.row_of(old_rows[ordinal]) if ordinal < len(old_rows) else None
        identity = f"{name}:{ordinal}" if name else ""
        parsed.changes.append(
            Change(
                index,
                table,
                operation,
                before=_before(operation, row, was, declared),
                after=None if operation == "delete" else _binary_as_base64(row, declared),
                key=given.names_of(message.get("pkNames")),
                source=source,
                position=_position(message),
                identity=given.identity_of(identity, context, index, ordinal),
                time_ms=_time_ms(message),
                declared=declared,
            )
        )


def _before(operation: Operation, row: Row, was: Row | None, declared: Declared | None) -> Row | None:
    if operation == "delete":
        return _binary_as_base64(row, declared)
    if operation == "update" and was is not None:
        return _binary_as_base64({**row, **was}, declared)
    return None


def _declared(message: Row) -> Declared | None:
    texts = given.row_of(message.get("mysqlType")) or {}
    codes = given.row_of(message.get("sqlType")) or {}
    columns = {}
    for column in {**codes, **texts}:
        iceberg = from_mysql(texts.get(column)) or (None if column in texts else from_jdbc(codes.get(column)))
        if iceberg is not None:
            columns[column] = iceberg
    if not columns:
        return None
    return Declared(columns, {column: "base64" for column, kind in columns.items() if kind == "binary"})


def _binary_as_base64(row: Row, declared: Declared | None) -> Row:
    """Canal writes each byte as the character of the same number (ISO 8859-1)."""
    binary = [column for column in (declared.encodings if declared else ()) if isinstance(row.get(column), str)]
    if not binary:
        return row
    return {**row, **{column: base64.b64encode(_bytes(row[column])).decode() for column in binary}}


def _bytes(text: str) -> bytes:
    try:
        return text.encode("iso-8859-1")
    except UnicodeEncodeError:
        return text.encode()


def _position(message: Row) -> str:
    commit = given.number_of((given.row_of(message.get("_tidb")) or {}).get("commitTs"))
    return "" if commit is None else position_of(commit)


def _name(message: Row, seen: Counter[str]) -> str:
    """What makes a repeated message known; "" if it has nothing that a later, equal change would not have."""
    if given.number_of(message.get("ts")) is None and not given.number_of(message.get("id")):
        return ""
    print_ = given.fingerprint(message)
    seen[print_] += 1
    return print_ if seen[print_] == 1 else f"{print_}#{seen[print_]}"


def _time_ms(message: Row) -> int | None:
    time = given.number_of(message.get("es"))
    if time is None:
        return None
    return time * 1000 if time < _SECONDS_MAX else time
