"""Calve's own events, as DoLake's clients send them:

    {"sequence", "timestamp", "operation", "table", "rowId", "before"?, "after"?, "metadata"?}

`oldRow` and `newRow` are aliases of `before` and `after`. A source that has a name numbers its events by
`sequence`, and its duplicates are recognised without a time limit; without a name, the content of an event is
its identity. This is the fastest format: similar events are parsed as columns, others with a few look-ups
each.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from operator import contains, itemgetter
from typing import Any

from ingest.change import (
    Change,
    ChangeColumns,
    Operation,
    ParsedRequest,
    Refused,
    Reject,
    RequestContext,
    Row,
    TableName,
    fingerprint,
    original_of,
    table_of_dotted,
)
from ingest.formats.fields import TIME_MS_MAX, reject

NAME = "native"
SEQUENCE_MAX = 2**63 - 1

_WORDS: tuple[Operation, ...] = ("insert", "update", "delete", "truncate", "read")
_OPERATIONS: dict[str, Operation] = {word: word for word in _WORDS} | {word.upper(): word for word in _WORDS}
MARK = "__bigint__:"  # prefix of a large integer that is written as text
_DIGITS_MAX = 1_000
_WITH_ROW = ("insert", "update", "read")
_OF_ROWS = {
    word: operation for word, operation in _OPERATIONS.items() if operation in ("insert", "update", "delete")
}
_ROW_OR_NONE = {dict, type(None)}
_FACTS = itemgetter("sequence", "timestamp", "operation", "rowId")
_FACT_COUNT = 4
_EXTRAS = frozenset({"metadata", "primaryKey", "transactionId", "txId"})


def recognises(event: object) -> bool:
    if not isinstance(event, dict) or not ("rowId" in event or "table" in event):
        return False
    return ("operation" in event) + ("rowId" in event) + ("sequence" in event) >= 2


def read(events: Sequence[tuple[int, Any]], context: RequestContext, parsed: ParsedRequest) -> None:
    before = len(parsed.changes)
    read_unmarked(events, context, parsed)
    if MARK.encode() in original_of([event for _, event in events]):
        for change in parsed.changes[before:]:
            change.before, change.after = _unmarked(change.before), _unmarked(change.after)


def read_unmarked(events: Sequence[tuple[int, Any]], context: RequestContext, parsed: ParsedRequest) -> None:
    """Like `read`, for events that are known to have no marked integers."""
    if not parsed.change_count and (found := columns(events, context)) is not None:
        parsed.columns = found
        return
    tables: dict[str, TableName] = {}
    add = parsed.changes.append
    for index, event in events:
        try:
            add(_change(index, event, context, tables))
        except Refused as refused:
            parsed.rejects.append(_reject(index, event, refused, context))


def columns(events: Sequence[tuple[int, Any]], context: RequestContext) -> ChangeColumns | None:
    """Parse all events at once, if none is invalid or unusual: rows of one table, from a source with sequence
    numbers.
    """
    found = [event for _, event in events]
    first, last = events[0][0], events[-1][0]
    if not context.source or last - first + 1 != len(found) or set(map(type, found)) != {dict}:
        return None
    known = sum(sum(map(contains, found, repeat(name))) for name in ("table", "before", "after"))
    if sum(map(len, found)) != known + _FACT_COUNT * len(found):
        return None  # a field is missing, or there are more
    try:
        sequences, times, word, row_ids = map(list, zip(*map(_FACTS, found), strict=True))
        operations = list(map(_OF_ROWS.__getitem__, word))
    except (KeyError, TypeError):
        return None
    before = [event.get("before") or None for event in found]
    after = [event.get("after") or None for event in found]
    if (
        not _are_numbers(sequences, 0, SEQUENCE_MAX)
        or not _are_numbers(times, -TIME_MS_MAX, TIME_MS_MAX)
        or set(map(type, row_ids)) != {str}
        or not _are_rows(operations, before, after, context.key)
    ):
        return None
    table = context.table or _one_table([event.get("table") for event in found], context)
    if table is None:
        return None
    different: dict[str, list[Any]] = {
        "operation": operations,
        "before": before,
        "after": after,
        "row_id": row_ids,
        "position": [f"{number:016x}" for number in sequences],
        "number": sequences,
        "time_ms": times,
    }
    same = {"key": context.key, "source": context.source}
    return ChangeColumns(table, len(found), first, different, same)


def _are_numbers(values: list[Any], least: int, most: int) -> bool:
    return set(map(type, values)) == {int} and least <= min(values) and max(values) <= most


def _are_rows(
    operations: Sequence[Operation], before: list[Any], after: list[Any], key: tuple[str, ...] | None
) -> bool:
    """Return whether every insert and update has its row, and no delete has one."""
    deletes = operations.count("delete")
    if deletes and key:
        return False  # each must have its key, too
    gone = [row for row, operation in zip(after, operations, strict=True) if operation == "delete"]
    return (
        set(map(type, before)) <= _ROW_OR_NONE
        and set(map(type, after)) <= _ROW_OR_NONE
        and gone.count(None) == after.count(None) == deletes
    )


def _one_table(names: list[Any], context: RequestContext) -> TableName | None:
    if names.count(names[0]) != len(names):
        return None
    try:
        return table_of_dotted(names[0], context)
    except Refused:
        return None


def _change(index: int, event: Any, context: RequestContext, tables: dict[str, TableName]) -> Change:
    if event.__class__ is not dict:
        raise Refused("not-object", "the event is not a JSON object: send an object for each event")
    get = event.get
    sequence, timestamp, row_id, word = get("sequence"), get("timestamp"), get("rowId"), get("operation")
    operation = _OPERATIONS.get(word) if word.__class__ is str else None
    if (
        operation is None
        or sequence.__class__ is not int
        or not 0 <= sequence <= SEQUENCE_MAX
        or timestamp.__class__ is not int
        or not -TIME_MS_MAX <= timestamp <= TIME_MS_MAX
        or (row_id.__class__ is not str and operation != "truncate")
    ):
        raise _why_refused(event, operation)
    name = get("table")
    table = tables.get(name) if name.__class__ is str else None
    if table is None:
        table = table_of_dotted(name, context)
        if name.__class__ is str:
            tables[name] = table
    before, after = get("before") or get("oldRow"), get("after") or get("newRow")
    key, transaction, ends = context.key, None, False
    if not _EXTRAS.isdisjoint(event):
        key, transaction, ends = _extras(event, key)
    if operation in _WITH_ROW:
        if after.__class__ is not dict or (before is not None and before.__class__ is not dict):
            raise _why_no_row(operation, before, after)
    else:
        before, after = _gone(operation, before, key), None
    source = context.source
    return Change(
        index,
        table,
        operation,
        before,
        after,
        key,
        row_id,
        source or "",
        # A row that was read is not newer than changes with lower numbers.
        f"{sequence:016x}" if source and operation != "read" else "",
        "" if source else fingerprint(table, row_id, sequence, timestamp, operation, before, after),
        sequence if source else None,
        transaction,
        ends,
        timestamp,
    )


def _extras(event: Row, key: tuple[str, ...] | None) -> tuple[tuple[str, ...] | None, str | None, bool]:
    """Return the key, the transaction, and whether it ends here; from `metadata`, or from the event
    itself.
    """
    metadata = event.get("metadata")
    if metadata is None:
        metadata = {}
    elif not isinstance(metadata, dict):
        raise Refused("bad-metadata", "`metadata` is not an object: send an object, or leave it out")
    columns = metadata.get("primaryKey") or event.get("primaryKey")
    if columns and key is None:
        if not isinstance(columns, list) or not all(isinstance(name, str) and name for name in columns):
            raise Refused("bad-key", "`primaryKey` is not a list of column names: send one, or leave it out")
        key = tuple(columns)
    for name in ("transactionId", "txId"):
        transaction = metadata.get(name, event.get(name))
        if transaction is not None and transaction != "":
            return key, str(transaction), metadata.get("transactionEnd") is True
    return key, None, False


def _gone(operation: Operation, before: object, key: tuple[str, ...] | None) -> Row | None:
    """Return the row before a delete; a truncate has none."""
    if operation == "truncate":
        return None
    if before is not None and not isinstance(before, dict):
        raise Refused("bad-row", "`before` is not an object: send the row as an object of columns")
    if key and not before:
        raise Refused(
            "no-before", "the delete has a primary key but no row: send `before` with the key's columns"
        )
    return before


def _why_refused(event: Row, operation: Operation | None) -> Refused:
    if operation is None:
        return Refused(
            "no-operation", "`operation` is none of INSERT, UPDATE, DELETE, TRUNCATE, READ: send one of them"
        )
    sequence = event.get("sequence")
    if sequence.__class__ is not int or not 0 <= sequence <= SEQUENCE_MAX:
        return Refused(
            "bad-sequence", "`sequence` is not a whole number of 0 or more: count the source's events"
        )
    timestamp = event.get("timestamp")
    if timestamp.__class__ is not int or not -TIME_MS_MAX <= timestamp <= TIME_MS_MAX:
        return Refused("bad-timestamp", "`timestamp` is not a whole number: send milliseconds since 1970")
    return Refused("bad-row-id", "`rowId` is not text: send the row's key as text")


def _why_no_row(operation: Operation, before: object, after: object) -> Refused:
    if after is None:
        return Refused("no-after", f"the {operation} has no `after`: send the row as it is now")
    name = "before" if isinstance(after, dict) else "after"
    return Refused("bad-row", f"`{name}` is not an object: send the row as an object of columns")


def _reject(index: int, event: Any, refused: Refused, context: RequestContext) -> Reject:
    """Return a reject with the fields that could be parsed, so that a repeat is recognised and finds its
    table.
    """
    known = event if isinstance(event, dict) else {}
    try:
        table = table_of_dotted(known.get("table"), context)
    except Refused:
        table = None
    sequence = known.get("sequence")
    if not context.source or sequence.__class__ is not int or not 0 <= sequence <= SEQUENCE_MAX:
        return reject(index, event, refused, context, table=table)
    return reject(index, event, refused, context, table=table, position=f"{sequence:016x}", number=sequence)


def _unmarked(value: Any) -> Any:
    """Return the value with marked integers as integers, at any depth."""
    if isinstance(value, dict):
        return {name: _unmarked(held) for name, held in value.items()}
    if isinstance(value, list):
        return [_unmarked(held) for held in value]
    if isinstance(value, str) and value.startswith(MARK):
        digits = value[len(MARK) :]
        if len(digits) <= _DIGITS_MAX and digits.removeprefix("-").isdecimal() and digits.isascii():
            return int(digits)
    return value
