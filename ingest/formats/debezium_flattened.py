"""Debezium's rows without their envelope (`ExtractNewRecordState`), bare or as `{schema, payload}`.

Fields of the envelope are in the row under names that begin with `__`, if the connector is configured to add
them (`add.fields=op,table,lsn,source.ts_ms,db`). `__deleted` is text. Without an operation a row may be new
or changed, so it is an update, which inserts the row if it is missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ingest.change import (
    Change,
    Operation,
    ParsedRequest,
    Refused,
    RequestContext,
    Row,
    table_of,
    whole_number,
)
from ingest.formats.debezium import OPERATIONS, Envelope, identity_of, row_of_image
from ingest.formats.debezium_position import gtid_of, log_position, origin_of, transaction_of
from ingest.formats.debezium_schema import Block, block_of_row
from ingest.formats.fields import reject

NAME = "debezium-flattened"

_SOURCE = (
    *(
        "name",
        "db",
        "schema",
        "table",
        "collection",
        "connector",
        "version",
        "snapshot",
        "ts_ms",
        "ts_us",
        "ts_ns",
    ),
    *("sequence", "lsn", "txId", "xmin"),
    *("file", "pos", "row", "gtid", "server_id", "thread", "query"),
    *("commit_lsn", "change_lsn", "event_serial_no"),
    *("scn", "commit_scn", "rs_id", "ssn", "lcr_position", "redo_thread", "user_name"),
    *("ord", "rs", "lsid", "txnNumber"),
)
_ORIGIN = {f"__{prefix}{name}": name for prefix in ("", "source_") for name in _SOURCE}
_TRANSACTION = {f"__transaction_{name}": name for name in ("id", "total_order", "data_collection_order")}
_OWN = frozenset({"__op", "__deleted", *_ORIGIN, *_TRANSACTION})
_OF_ROWS = ("insert", "update")
_SURE = ("__op", "__deleted", "__table", "__lsn", "__source_ts_ms", "__db")
_NO_TABLE = (
    "the row does not say to which table it belongs: set add.fields=op,table,db,schema,lsn,source.ts_ms for "
    "ExtractNewRecordState, or post to /cdc/{namespace}/{table}"
)


def recognises(event: object) -> bool:
    row, schema = _opened(event)
    if row is None or ("op" in row and "after" in row):
        return False
    return any(name in row for name in _SURE) or (isinstance(schema, dict) and schema.get("type") == "struct")


def read(events: Sequence[tuple[int, Any]], context: RequestContext, parsed: ParsedRequest) -> None:
    repeats: Counter[str] = Counter()
    blocks: dict[int, tuple[Block, Block]] = {}
    for index, event in events:
        row, schema = _opened(event)
        if row is None:
            if isinstance(event, dict) and event.get("payload", "") is None:
                parsed.ignored[index] = "tombstone"
            else:
                refused = Refused("not-object", "the row is not a JSON object: send an object of columns")
                parsed.rejects.append(reject(index, event, refused, context))
            continue
        try:
            parsed.changes.append(_change(index, row, _block(schema, blocks), context, repeats))
        except Refused as refused:
            parsed.rejects.append(reject(index, event, refused, context))


def _change(
    index: int, row: Row, block: Block | None, context: RequestContext, repeats: Counter[str]
) -> Change:
    source = {name: row[held] for held, name in _ORIGIN.items() if row.get(held) is not None}
    transaction = {name: row[held] for held, name in _TRANSACTION.items() if held in row}
    name = source.get("table") or source.get("collection")
    if context.table is None and not name:
        raise Refused("no-table", _NO_TABLE)
    table = table_of(source.get("schema") or source.get("db"), name, context)
    operation = _operation(row)
    own = {name: value for name, value in row.items() if name not in _OWN}
    columns = row_of_image(own, "row")
    # The row is whole except for placeholders. A document of MongoDB may be partial.
    unchanged = None if columns is None else tuple(name for name in own if name not in columns)
    if block is not None:
        columns = block.reshaped(columns)
    after, before = (None, columns) if operation == "delete" else (columns, None)
    if operation == "truncate":
        before = after = None
    elif not columns:
        raise Refused("no-row", "the row has no columns of its own: send rows with their columns")
    number, total_order = transaction_of(transaction)
    where = log_position(source, total_order, source, deletes=operation == "delete")
    word = source.get("name")
    owner = context.source or (word if isinstance(word, str) else "")
    envelope = Envelope(row.get("__op") or operation, before, after, source)
    identity = ""
    if where.position:
        identity = identity_of(envelope, owner, table, where, repeats, has_key=bool(context.key))
    return Change(
        index,
        table,
        operation,
        before,
        after,
        context.key,
        source=owner,
        position=where.position,
        identity=identity,
        transaction=number,
        time_ms=whole_number(source.get("ts_ms")),
        declared=block.declared if block is not None else None,
        origin=origin_of(source),
        unchanged=unchanged if operation in _OF_ROWS and "collection" not in source else None,
        gtid=gtid_of(source),
    )


def _operation(row: Row) -> Operation:
    word, deleted = row.get("__op"), row.get("__deleted")
    if deleted in ("true", True):
        return "delete"
    if word is None:
        return "update" if not _OWN.isdisjoint(row) else "insert"
    operation = OPERATIONS.get(word) if isinstance(word, str) else None
    if operation is None:
        raise Refused("no-operation", "`__op` is none of c, u, d, r, t: send Debezium's rows unchanged")
    return operation


def _opened(event: object) -> tuple[Row | None, object]:
    """Return the row, and its schema if it has one."""
    if not isinstance(event, dict):
        return None, None
    if event.keys() == {"schema", "payload"}:
        payload = event["payload"]
        return (payload if isinstance(payload, dict) else None), event["schema"]
    return event, None


def _block(schema: object, blocks: dict[int, tuple[Block, Block]]) -> Block | None:
    """Return the types of the columns without those of the envelope. Each schema is a text of its own, but
    few differ.
    """
    found = block_of_row(schema)
    if found is None:
        return None
    if id(found) not in blocks:
        blocks[id(found)] = found, _own_columns(found)  # kept, so that no other object gets its id
    return blocks[id(found)][1]


def _own_columns(block: Block) -> Block:
    declared = block.declared
    columns = {name: type_ for name, type_ in declared.columns.items() if name not in _OWN}
    own = replace(declared, columns=columns, required=declared.required - _OWN)
    return Block(own, block.reshape)
