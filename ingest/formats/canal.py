"""Canal's FlatMessage: `{id, database, table, pkNames, isDdl, type, es, ts, mysqlType, sqlType, data, old}`.

One message holds many rows, and every value is text: the types come from `mysqlType`, or `sqlType` (JDBC).
`id` is the number of a batch: several messages share it, and it restarts with the server. `es` is when a
statement began, not when it was committed. So neither is a position: changes apply in the order of arrival,
and a message is identified by its content. TiCDC adds `_tidb.commitTs`, which is a true position.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Sequence
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
    position_of,
    table_of,
)
from ingest.formats import fields as given
from ingest.formats.sql_types import from_jdbc, from_mysql

NAME = "canal"
_OPERATIONS: dict[str, Operation] = {
    "INSERT": "insert",
    "UPDATE": "update",
    "DELETE": "delete",
    "INIT": "read",  # Huawei DRS: a row of the first load
    "TRUNCATE": "truncate",
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
    if not isinstance(event, dict):
        return False
    kind = event.get("type")
    if not isinstance(kind, str) or (kind not in _OPERATIONS and kind not in _IGNORED):
        return False
    return isinstance(event.get("data"), list) or isinstance(event.get("isDdl"), bool)


def read(events: Sequence[tuple[int, Any]], context: RequestContext, parsed: ParsedRequest) -> None:
    seen: Counter[str] = Counter()  # equal messages inside one request

    def read_one(index: int, event: Row, context: RequestContext, parsed: ParsedRequest) -> None:
        kind = str(event.get("type"))
        if kind in _IGNORED or (event.get("isDdl") is True and kind != "TRUNCATE"):
            parsed.ignored[index] = _IGNORED.get(kind, "DDL")
        else:
            _read(index, event, context, parsed, _name(event, seen))

    given.read_each(events, context, parsed, read_one)


def _read(index: int, event: Row, context: RequestContext, parsed: ParsedRequest, name: str) -> None:
    table = table_of(event.get("database"), event.get("table"), context)
    source = given.source_of(context, NAME)
    operation = _OPERATIONS.get(str(event.get("type")))
    if operation is None:
        given.refuse_operation(event.get("type"), "INSERT, UPDATE, DELETE, INIT and TRUNCATE", table, source)
    if operation == "truncate":
        change = _change(index, table, operation, event, source)
        change.identity = name
        parsed.changes.append(change)
        return
    rows, old = _list(event.get("data")), _list(event.get("old"))
    if not rows:
        parsed.ignored[index] = "a message without rows"
    declared = _declared(event)
    for ordinal, row in enumerate(rows):
        was = old[ordinal] if ordinal < len(old) else None
        try:
            columns = given.wanted_row(row, f"data[{ordinal}]", table, source)
        except Refused as refused:
            alone = {**event, "data": [row], "old": [was]}
            given.add_reject(index, alone, refused, context, parsed)
            continue
        change = _change(index, table, operation, event, source)
        change.identity = f"{name}:{ordinal}" if name else ""
        if len(rows) > 1:  # rows of one statement, whose keys may swap
            change.transaction = name or fingerprint(event)
            change.transaction_ends = ordinal == len(rows) - 1
        change.declared = declared
        if operation == "delete":
            change.before = _binary_as_base64(columns, declared)
        else:
            change.after = _binary_as_base64(columns, declared)
        if operation == "update" and isinstance(was, dict):
            change.before = _binary_as_base64({**columns, **was}, declared)
        parsed.changes.append(change)


def _change(index: int, table: TableName, operation: Operation, event: Row, source: str) -> Change:
    commit = given.number_of((given.row_of(event.get("_tidb")) or {}).get("commitTs"))
    time = given.number_of(event.get("es"))
    return Change(
        index,
        table,
        operation,
        unchanged=(),
        key=given.names_of(event.get("pkNames")),
        source=source,
        position="" if commit is None else position_of(commit),
        time_ms=time if time is None or time >= _SECONDS_MAX else time * 1000,
    )


def _name(event: Row, seen: Counter[str]) -> str:
    """Return the identity of a message; "" if a later, equal change would have the same one."""
    if not given.number_of(event.get("ts")) and not given.number_of(event.get("id")):
        return ""
    print_ = fingerprint(event)
    seen[print_] += 1
    return print_ if seen[print_] == 1 else f"{print_}#{seen[print_]}"


def _declared(event: Row) -> Declared | None:
    texts = given.row_of(event.get("mysqlType")) or {}
    codes = given.row_of(event.get("sqlType")) or {}
    columns = {}
    for column in {**codes, **texts}:
        iceberg = from_mysql(texts[column]) if column in texts else from_jdbc(codes[column])
        if iceberg is not None:
            columns[column] = iceberg
    if not columns:
        return None
    return Declared(columns, {column: "base64" for column, kind in columns.items() if kind == "binary"})


def _binary_as_base64(row: Row, declared: Declared | None) -> Row:
    """Convert binary values to base64. Canal writes each byte as the character with that number (ISO
    8859-1).
    """
    binary = [
        column for column in (declared.encodings if declared else ()) if isinstance(row.get(column), str)
    ]
    if not binary:
        return row
    return {**row, **{column: base64.b64encode(_bytes(row[column])).decode() for column in binary}}


def _bytes(text: str) -> bytes:
    try:
        return text.encode("iso-8859-1")
    except UnicodeEncodeError:
        return text.encode()


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
