"""CloudEvents in structured mode: Debezium's, and any whose `data` is an event of a known format or a row.

Debezium writes all attributes as text, and two that differ only in case: `iodebeziumtxId` is the database's
number of the transaction, `iodebeziumtxid` is Debezium's id of it. Its `id` is a log position, which several
rows share; other producers' `source` and `id` identify one event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ingest.change import NO_TABLE, Change, ParsedRequest, Refused, RequestContext, Row, original_of
from ingest.formats import debezium, native
from ingest.formats.debezium import Envelope, add_change
from ingest.formats.debezium_schema import Block, block_of_envelope, block_of_row
from ingest.formats.fields import reject

NAME = "cloudevents"
_PREFIX = "iodebezium"
# Attribute names have no underscores.
_TIMES = ("ts_ms", "ts_us", "ts_ns")
_NAMES = (*_TIMES, "commit_lsn", "change_lsn", "event_serial_no", "commit_scn", "rs_id", "server_id")
_UNDERSCORED = {name.replace("_", ""): name for name in _NAMES}


def recognises(event: object) -> bool:
    return isinstance(event, dict) and isinstance(event.get("specversion"), str) and "type" in event


def read(events: Sequence[tuple[int, Any]], context: RequestContext, parsed: ParsedRequest) -> None:
    repeats: Counter[str] = Counter()
    for index, event in events:
        if not isinstance(event, dict):
            refused = Refused("not-object", "the event is not a JSON object: send an object for each event")
            parsed.rejects.append(reject(index, event, refused, context))
        elif f"{_PREFIX}op" in event:
            add_change(index, event, _envelope(event), context, parsed, repeats)
        else:
            _read_other(index, event, context, parsed)


def _envelope(event: Row) -> Envelope:
    """Rebuild the envelope from the attributes of Debezium's converter."""
    named = {
        name.removeprefix(_PREFIX): value
        for name, value in event.items()
        if value is not None and name.startswith(_PREFIX)
    }
    source = {_UNDERSCORED.get(name, name): value for name, value in named.items()}
    data, block = _data(event)
    transaction = {"id": event.get(f"{_PREFIX}txid"), "total_order": event.get(f"{_PREFIX}txtotalorder")}
    if isinstance(data, dict) and ("after" in data or "before" in data):
        before, after = data.get("before"), data.get("after")
    elif event.get(f"{_PREFIX}op") == "d":
        before, after = data, None
    else:
        before, after = None, data  # flattened
    return Envelope(event.get(f"{_PREFIX}op"), before, after, source, transaction, source, block)


def _data(event: Row) -> tuple[Any, Block | None]:
    data = event.get("data")
    if isinstance(data, dict) and data.keys() == {"schema", "payload"}:
        schema = data["schema"]
        return data["payload"], block_of_envelope(schema) or block_of_row(schema)
    return data, None


def _read_other(index: int, event: Row, context: RequestContext, parsed: ParsedRequest) -> None:
    """Parse a CloudEvent that contains an event of a known format, or else a row."""
    data = event.get("data")
    changes, rejects = len(parsed.changes), len(parsed.rejects)
    for known in (native, debezium):
        if known.recognises(data):
            known.read([(index, data)], context, parsed)
            break
    else:
        _read_row(index, event, context, parsed)
    name, number = event.get("source"), event.get("id")
    for change in parsed.changes[changes:]:
        if change.number is None and isinstance(name, str) and isinstance(number, str):
            change.identity = f"{name}/{number}"
    for refused in parsed.rejects[rejects:]:
        refused.original = original_of(event)


def _read_row(index: int, event: Row, context: RequestContext, parsed: ParsedRequest) -> None:
    data, name = event.get("data"), event.get("source")
    source = context.source or (name if isinstance(name, str) else "")
    try:
        if "data_base64" in event:
            raise Refused("binary", "the event's data is binary: send it as JSON in `data`")
        if not isinstance(data, dict):
            raise Refused("not-object", "the event's `data` is not a JSON object: send the row as an object")
        if context.table is None:
            raise Refused("no-table", NO_TABLE)
        parsed.changes.append(Change(index, context.table, "insert", None, data, context.key, source=source))
    except Refused as refused:
        parsed.rejects.append(reject(index, event, refused, context, source=source))
