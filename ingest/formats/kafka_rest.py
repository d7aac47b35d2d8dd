"""Records for the Kafka REST proxy: `{key, value, partition}`, in version 3 with `{type, data}` for both.

The value is an event of another format and is parsed by its module. The key names the key columns. A record
without a value is a tombstone: after a delete of the same key it is ignored; alone it is the delete.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

from ingest.change import (
    NO_TABLE,
    Change,
    ParsedRequest,
    Refused,
    RequestContext,
    Row,
    checked_table,
    original_of,
)
from ingest.formats import fields as given
from ingest.formats.fields import Format, reject
from ingest.formats.json_body import decode, is_sound

NAME = "kafka-rest"
_PARTS = frozenset(("key", "value", "partition", "partition_id", "headers", "timestamp"))
_DATA_PARTS = frozenset(
    ("type", "data", "subject", "subject_name_strategy", "schema_id", "schema_version", "schema")
)
_DATA_TYPES = frozenset(("JSON", "BINARY", "STRING", "AVRO", "JSONSCHEMA", "PROTOBUF"))
_NO_KEY = (
    "the record has no value, and its key does not name columns: add ?key=<the key columns> to the address, "
    "or send the key as an object"
)


def recognises(event: object) -> bool:
    if not isinstance(event, dict) or not event.keys() <= _PARTS:
        return False
    value = event.get("value")
    if value is None:
        return isinstance(event.get("key"), dict)
    return isinstance(value, dict) or "partition" in event or "partition_id" in event


def read(events: Sequence[tuple[int, Any]], context: RequestContext, parsed: ParsedRequest) -> None:
    reading = _Reading(context, parsed)
    for index, event in events:
        try:
            reading.record(index, event)
        except Refused as refused:
            reading.finish()
            parsed.rejects.append(reject(index, event, refused, context))
    reading.finish()


@dataclass(slots=True)
class _Reading:
    """One request: records that wait to be parsed together by their module, and the keys that are deleted."""

    context: RequestContext
    parsed: ParsedRequest
    module: Format | None = None
    waiting: list[tuple[int, Any]] = field(default_factory=list)
    keys: dict[int, object] = field(default_factory=dict)
    deleted: set[bytes] = field(default_factory=set)

    def record(self, index: int, event: object) -> None:
        if not isinstance(event, dict):
            raise Refused("not-object", "the record is not a JSON object: send {key, value} for each record")
        key = _decoded(event.get("key"), self.context, is_key=True)
        value = _decoded(event.get("value"), self.context)
        self.keys[index] = key
        if value is None:
            self.finish()
            self._tombstone(index, key)
            return
        if not isinstance(value, dict):
            raise Refused("not-object", "the record's value is not a JSON object: send the event as JSON")
        module = _module_for(value)
        if module is not self.module:
            self.finish()
            self.module = module
        self.waiting.append((index, value))

    def finish(self) -> None:
        """Parse the waiting records, and add what their keys say."""
        if self.module is None or not self.waiting:
            return
        inner = _read(self.module, self.waiting, self.context)
        for change in inner.changes:
            _add_key(change, _columns(self.keys[change.index], self.context))
            mark = original_of(self.keys[change.index])
            (self.deleted.add if change.operation == "delete" else self.deleted.discard)(mark)
        for refused in inner.rejects:
            key = original_of(self.keys[refused.index])
            refused.original = b'{"key":' + key + b',"value":' + refused.original + b"}"
        self.parsed.changes += inner.changes
        self.parsed.rejects += inner.rejects
        self.parsed.ends += inner.ends
        self.parsed.begins += inner.begins
        self.parsed.ignored |= inner.ignored
        self.waiting = []

    def _tombstone(self, index: int, key: object) -> None:
        mark = original_of(key)
        if key is None or mark in self.deleted:
            self.parsed.ignored[index] = "tombstone"
            return
        columns = _columns(key, self.context)
        if columns is None:
            raise Refused("no-key", _NO_KEY)
        context, topic = self.context, self.context.topic or ""
        table = context.table or given.table_of_topic(topic, context)
        if table is None:
            raise Refused("no-table", NO_TABLE)
        change = Change(index, checked_table(table), "delete", before=columns, key=tuple(columns))
        change.source = given.source_of(context, "kafka", topic)
        self.parsed.changes.append(change)
        self.deleted.add(mark)


def _module_for(value: Row) -> Format:
    from ingest.formats import detect  # it imports all format modules, including this one

    module = detect.module_for(value)
    if module.NAME == NAME:
        raise Refused("nested", "the record's value is a record again: send the event itself as the value")
    return module


def _read(module: Format, events: list[tuple[int, Any]], context: RequestContext) -> ParsedRequest:
    """Parse the events with the module; those that name no table belong to the table of the topic."""
    inner = ParsedRequest(NAME)
    module.read(events, context, inner)
    topic_table = given.table_of_topic(context.topic or "", context)
    nameless = {refused.index for refused in inner.rejects if refused.code == "no-table"}
    nameless -= {change.index for change in inner.changes}
    if not nameless or context.table is not None or topic_table is None:
        return inner
    inner.rejects = [refused for refused in inner.rejects if refused.index not in nameless]
    again = [(index, event) for index, event in events if index in nameless]
    module.read(again, replace(context, table=topic_table), inner)
    inner.changes.sort(key=lambda change: change.index)
    return inner


def _add_key(change: Change, columns: Row | None) -> None:
    if not columns or change.operation == "truncate":
        return
    if not change.key:
        change.key = tuple(columns)
    if change.operation == "delete":
        change.before = {**columns, **(change.before or {})}


def _columns(key: object, context: RequestContext) -> Row | None:
    """Return the key columns with their values: from Debezium's {schema, payload}, an object, or bare
    values.
    """
    if isinstance(key, dict):
        payload = key.get("payload") if "schema" in key else None
        return (payload if isinstance(payload, dict) else key) or None
    values = key if isinstance(key, list) else [key]
    if key is None or context.key is None or len(context.key) != len(values):
        return None
    return dict(zip(context.key, values, strict=True))


def _decoded(value: object, context: RequestContext, *, is_key: bool = False) -> object:
    """Return the JSON value of a key or value, in any wrapping of the proxy's clients."""
    binary = "kafka.binary" in context.content_type
    if _is_wrapped(value):
        binary, value = value.get("type") == "BINARY", value["data"]
    if not isinstance(value, str):
        return value
    try:
        inner = decode(base64.b64decode(value, validate=True) if binary else value.encode())
    except ValueError as error:  # invalid base64 or UTF-8, or NotJson
        if is_key:
            return value  # a name may be any text
        raise Refused("not-json", f"the record's value is not JSON ({error}): send JSON") from None
    if is_key and not isinstance(inner, dict | list):
        return value
    if not is_sound(inner):
        raise Refused("bad-value", "the record's value cannot be kept as it is: send sound JSON")
    return inner


def _is_wrapped(value: object) -> TypeGuard[Row]:
    """Return whether the value has the form of version 3: `{type, data}`, or `data` with its schema."""
    if not isinstance(value, dict) or "data" not in value or not value.keys() <= _DATA_PARTS:
        return False
    kind = value.get("type")
    return len(value) > 1 if kind is None else isinstance(kind, str) and kind in _DATA_TYPES
