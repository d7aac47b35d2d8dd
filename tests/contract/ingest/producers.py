"""Producers of changes in every format, as their tools write them.

A row is a dict of columns. The value `UNCHANGED` stands for a large value that an update did not change: each
format has its own way to leave it out.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from tests.contract.ingest.debezium_producer import DebeziumProducer, Event, Row

__all__ = ["Event", "FormatProducer", "Row"]
UNCHANGED = "(unchanged)"
_PLACEHOLDERS = dict.fromkeys(
    ("debezium", "debezium-mysql", "debezium-flattened", "cloudevents", "kafka-rest"),
    "__debezium_unavailable_value",
) | {"sequin": "unchanged_toast"}
_MYSQL_TYPES = {"long": "bigint", "double": "double", "text": "text"}
_POSTGRES_TYPES = {"long": "bigint", "double": "double precision", "text": "text"}
_COCKROACH_TYPES = {"long": "int64", "double": "float64", "text": "string"}

FORMATS = (
    *("native", "maxwell", "wal2json", "wal2json-1", "canal", "supabase", "sequin", "dms", "hasura"),
    *("cockroach", "debezium", "debezium-mysql", "debezium-flattened", "cloudevents", "kafka-rest"),
)
# Formats in which a source transaction can be recognised.
IN_TRANSACTIONS = (
    *("native", "maxwell", "wal2json", "wal2json-1", "sequin", "dms"),
    *("debezium", "debezium-flattened", "cloudevents", "kafka-rest"),
)
# Formats with positions, so that the order of requests does not matter.
POSITIONED = tuple(format_ for format_ in FORMATS if format_ not in ("wal2json", "canal", "supabase"))
# Formats in which an update may leave out large values.
PARTIAL = (
    *("native", "wal2json", "wal2json-1", "sequin"),
    *("debezium", "debezium-mysql", "debezium-flattened", "cloudevents", "kafka-rest"),
)
# Formats whose rows are whole: a column that a row lacks was dropped.
WHOLE = tuple(
    format_ for format_ in FORMATS if format_ not in ("native", "wal2json", "wal2json-1", "cockroach")
)
TRUNCATING = (
    *("native", "wal2json", "wal2json-1", "canal"),
    *("debezium", "debezium-mysql", "debezium-flattened", "cloudevents", "kafka-rest"),
)
# Formats with rows of a first load.
READING = (
    *("native", "maxwell", "canal", "sequin", "dms"),
    *("debezium", "debezium-mysql", "debezium-flattened", "cloudevents", "kafka-rest"),
)
# Formats that name the key columns; with the others, a setting or the request does.
NAMING_KEYS = ("native", "maxwell", "wal2json", "wal2json-1", "canal", "cockroach", "kafka-rest")
# Formats that declare the types of columns; in the others they follow from the values.
TYPED = ("wal2json", "wal2json-1", "canal", "cockroach", "debezium", "debezium-mysql", "debezium-flattened")
# Formats that send a key change as a delete and an insert.
_SPLITTING = ("cockroach", "debezium-flattened", "cloudevents", "kafka-rest")


class FormatProducer(DebeziumProducer):
    """Writes changes in one format, all in one source transaction until `end`."""

    def end(self) -> None:
        if self.format == "maxwell" and self._last.get("type") in ("insert", "update", "delete"):
            self._last["commit"] = True
        self._transaction += 1

    def change(self, old: Row | None, new: Row | None) -> list[Event]:
        """`old` None: an insert. `new` None: a delete."""
        moves = old is not None and new is not None and any(old[k] != new[k] for k in self.key)
        if moves and self.format in _SPLITTING:
            return [*self.change(old, None), *self.change(None, new)]
        if old is None:
            kind = "insert"
        else:
            kind = "delete" if new is None else "update"
        return [self._event(kind, old, new)]

    def statement(self, changes: Sequence[tuple[Row, Row]]) -> list[Event]:
        """Updates by one statement."""
        events = [event for old, new in changes for event in self.change(old, new)]
        if self.format != "canal":
            return events
        whole = events[0]
        for other in events[1:]:
            whole["data"] += other["data"]
            whole["old"] += other["old"]
        return [whole]

    def read(self, row: Row) -> Event:
        """A row of a first load."""
        return self._event("read", None, row)

    def truncate(self) -> Event:
        return self._event("truncate", None, None)

    def body(self, events: Sequence[Event]) -> Any:
        """The body of a request with these events."""
        if self.format == "wal2json-1":
            return [
                {"xid": xid, "nextlsn": f"0/{xid * 256:X}", "timestamp": first["time"], "change": changes}
                for xid, group in itertools.groupby(events, key=lambda event: event["xid"])
                for changes in [list(group)]
                for first in changes[:1]
            ]
        if self.format == "cockroach":
            return {"payload": list(events), "length": len(events)}
        if self.format == "kafka-rest":
            return {"records": list(events)}
        return list(events)

    # -- one event

    def _event(self, kind: str, old: Row | None, new: Row | None) -> Event:
        self._number = next(self._numbers)
        self.clock_s += 1
        old, new = self._sent(old), self._sent(new)
        write = getattr(self, "_" + self.format.replace("-", "_"))
        self._last = write(kind, old, new)
        return self._last

    def _sent(self, row: Row | None) -> Row | None:
        if row is None or UNCHANGED not in row.values():
            return row
        mark = _PLACEHOLDERS.get(self.format)
        kept = {name: mark if value == UNCHANGED else value for name, value in row.items()}
        return {name: value for name, value in kept.items() if value is not None or row[name] is None}

    def _native(self, kind: str, old: Row | None, new: Row | None) -> Event:
        row = new or old or {}
        event = {
            "sequence": self._number,
            "timestamp": self._time_ms,
            "operation": kind.upper(),
            "table": f"{self.space}.{self.table}",
            "rowId": "/".join(str(row.get(column, "")) for column in self.key),
            "before": old,
            "after": new,
        }
        if kind != "read":  # a first load is no transaction
            event["metadata"] = {"primaryKey": self.key, "transactionId": f"x{self._transaction}"}
        return event

    def _maxwell(self, kind: str, old: Row | None, new: Row | None) -> Event:
        event = {
            "database": self.space,
            "table": self.table,
            "type": "bootstrap-insert" if kind == "read" else kind,
            "ts": self._time_ms // 1000,
            "primary_key_columns": self.key,
            "data": new if new is not None else old,
        }
        if kind == "update":
            event["old"] = _changed(old, new)
        if kind != "read":
            event |= {"xid": self._transaction, "xoffset": self._number}
            event["position"] = f"bin.000001:{self._number * 100}"
        if self.server_id is not None:
            event["server_id"] = self.server_id
        return event

    def _wal2json(self, kind: str, old: Row | None, new: Row | None) -> Event:
        event: Event = {
            "action": kind[0].upper(),
            "xid": self._transaction,
            "lsn": f"0/{self._number:X}",
            "timestamp": self._moment.isoformat(),
            "schema": self.space,
            "table": self.table,
            "pk": [{"name": column, "type": "bigint"} for column in self.key],
        }
        if new is not None:
            event["columns"] = self._columns(new)
        if old is not None:
            event["identity"] = self._columns({column: old[column] for column in self.key})
        return event

    def _columns(self, row: Row) -> list[Event]:
        return [
            {"name": column, "type": _POSTGRES_TYPES[self._type(column, value)], "value": value}
            for column, value in row.items()
        ]

    def _wal2json_1(self, kind: str, old: Row | None, new: Row | None) -> Event:
        event: Event = {"kind": kind, "schema": self.space, "table": self.table, "xid": self._transaction}
        event |= {"time": self._moment.isoformat(), "pk": {"pknames": self.key}}
        if new is not None:
            event |= _lists("column", self._columns(new))
        if old is not None:
            identity = self._columns({column: old[column] for column in self.key})
            event["oldkeys"] = _lists("key", identity)
        return event

    def _canal(self, kind: str, old: Row | None, new: Row | None) -> Event:
        data = new if new is not None else old
        changed = {name: _text(value) for name, value in _changed(old, new).items()}
        return {
            "id": self._number,
            "database": self.space,
            "table": self.table,
            "pkNames": self.key,
            "isDdl": kind == "truncate",
            "type": "INIT" if kind == "read" else kind.upper(),
            "es": self._time_ms,
            "ts": self._time_ms,
            "mysqlType": {
                name: _MYSQL_TYPES[self._type(name, value)] for name, value in (data or {}).items()
            },
            "data": [{name: _text(value) for name, value in data.items()}] if data is not None else None,
            "old": [changed] if kind == "update" else None,
        }

    def _supabase(self, kind: str, old: Row | None, new: Row | None) -> Event:
        event: Event = {"type": kind.upper(), "table": self.table, "schema": self.space}
        return event | {"record": new, "old_record": old}

    def _sequin(self, kind: str, old: Row | None, new: Row | None) -> Event:
        lsn, ordinal = (None, None) if kind == "read" else (self._transaction, self._number)
        return {
            "record": new if new is not None else old,
            "changes": _changed(old, new) if kind == "update" else None,
            "action": kind,
            "metadata": {
                "table_schema": self.space,
                "table_name": self.table,
                "commit_lsn": lsn,
                "commit_idx": ordinal,
                "commit_timestamp": self._moment.isoformat(),
                # As Sequin makes it: of the position, which another history may use again.
                "idempotency_key": f"r{self.clock_s}" if lsn is None else f"{lsn}:{ordinal}",
            },
        }

    def _dms(self, kind: str, old: Row | None, new: Row | None) -> Event:
        metadata: Event = {
            "timestamp": self._moment.isoformat(),
            "record-type": "data",
            "operation": "load" if kind == "read" else kind,
            "schema-name": self.space,
            "table-name": self.table,
        }
        if kind != "read":
            metadata |= {"transaction-id": self._transaction, "transaction-record-id": self._number}
            metadata["commit-timestamp"] = self._moment.isoformat()
        image = old if kind == "update" else None
        return {"data": new if new is not None else old, "before-image": image, "metadata": metadata}

    def _hasura(self, kind: str, old: Row | None, new: Row | None) -> Event:
        return {
            "id": f"h{self.clock_s}",
            "created_at": self._moment.isoformat(),
            "event": {"op": kind.upper(), "data": {"old": old, "new": new}},
            "table": {"schema": self.space, "name": self.table},
        }

    def _cockroach(self, kind: str, old: Row | None, new: Row | None) -> Event:
        row = new or old or {}
        fields = [
            {"field": column, "type": _COCKROACH_TYPES[self._type(column, value)]}
            for column, value in row.items()
        ]
        payload = {
            "after": new,
            "before": old,
            "key": {column: row[column] for column in self.key},
            "op": {"insert": "c", "update": "u", "delete": "d"}[kind],
            "ts_ns": self._time_ms * 1_000_000,
            "source": {
                "origin": "cockroachdb",
                "schema_name": self.space,
                "table_name": self.table,
                "primary_keys": self.key,
                "ts_hlc": f"{self._time_ms * 1_000_000}.{self._number:010d}",
            },
        }
        return {"payload": payload, "schema": {"fields": [{"field": "after", "fields": fields}]}}


def _changed(old: Row | None, new: Row | None) -> Row:
    """The old values of the columns that an update changed."""
    if old is None or new is None:
        return {}
    kept = _PLACEHOLDERS.values()
    return {name: value for name, value in old.items() if new.get(name) not in (value, *kept)}


def _lists(prefix: str, columns: list[Event]) -> Event:
    """As version 1 of wal2json writes columns: names, types and values in parallel lists."""
    return {f"{prefix}{part}s": [column[part] for column in columns] for part in ("name", "type", "value")}


def _text(value: object) -> str | None:
    return None if value is None else str(value)
