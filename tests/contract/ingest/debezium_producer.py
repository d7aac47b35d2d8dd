"""The state of a producer of changes, and the events of Debezium in its four forms."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

Row = dict[str, Any]
Event = dict[str, Any]

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
_CONNECT_TYPES = {"long": "int64", "double": "double", "text": "string"}


class DebeziumProducer:
    """Counts positions and transactions, and writes Debezium's events."""

    def __init__(
        self, format_: str, table: tuple[str, str] = ("shop", "t"), key: Sequence[str] = ("id",)
    ) -> None:
        self.format = format_
        self.space, self.table = table
        self.key = list(key)
        self.types: dict[str, str] = {}  # of columns whose type does not follow from their values
        self.defaults: dict[str, Any] = {}
        self.server_id: int | None = 1 if format_ == "debezium-mysql" else None
        self.gtid: str | None = None
        self.clock_s = 0
        self._last: Event = {}
        self.count_anew()

    def count_anew(self) -> None:
        """The log of another server has other positions."""
        self._numbers = itertools.count(1)
        self._transaction = 1

    @property
    def _moment(self) -> datetime:
        """When it happened: this clock never goes back."""
        return FIRST + timedelta(seconds=self.clock_s)

    @property
    def _time_ms(self) -> int:
        return int(self._moment.timestamp()) * 1000

    def _type(self, column: str, value: object) -> str:
        if column in self.types:
            return self.types[column]
        return "long" if isinstance(value, int) else "double" if isinstance(value, float) else "text"

    def renamed(self, old: str, new: str, columns: Sequence[str]) -> Event:
        """A record of Debezium's schema change topic. `columns` are those of the table afterwards."""
        self._number = next(self._numbers)
        about = {"columns": [{"name": name} for name in columns]}
        return {
            "source": self._envelope("insert", None, None)["source"],
            "databaseName": "d",
            "schemaName": self.space,
            "ddl": f"ALTER TABLE {self.space}.{self.table} RENAME COLUMN {old} TO {new}",
            "tableChanges": [{"type": "ALTER", "id": f'"d"."{self.space}"."{self.table}"', "table": about}],
        }

    def _debezium(self, kind: str, old: Row | None, new: Row | None) -> Event:
        payload = self._envelope(kind, old, new)
        fields = self._connect_fields(new or old or {})
        if not self.types:
            return payload
        images = [{"type": "struct", "field": name, "fields": fields} for name in ("before", "after")]
        return {"schema": {"type": "struct", "fields": images}, "payload": payload}

    _debezium_mysql = _debezium

    def _connect_fields(self, row: Row) -> list[Event]:
        return [
            {
                "field": column,
                "optional": True,
                "type": _CONNECT_TYPES[self._type(column, value)],
                **({"default": self.defaults[column]} if column in self.defaults else {}),
            }
            for column, value in row.items()
        ]

    def _envelope(self, kind: str, old: Row | None, new: Row | None) -> Event:
        letter = {"insert": "c", "update": "u", "delete": "d", "read": "r", "truncate": "t"}[kind]
        source: Event = {"name": "db", "db": "d", "table": self.table, "ts_ms": self._time_ms}
        envelope: Event = {"before": old, "after": new, "op": letter, "ts_ms": self._time_ms}
        if kind == "read":
            source["snapshot"] = "true"
        if self.format == "debezium-mysql":
            source |= {"connector": "mysql", "db": self.space, "file": "bin.000001", "row": 0}
            source |= {"pos": self._number * 100, "server_id": self.server_id, "gtid": self.gtid}
            return envelope | {"source": source}
        last_commit = self._transaction * 1000
        lsn = last_commit + self._number
        source |= {"connector": "postgresql", "schema": self.space, "lsn": lsn, "txId": self._transaction}
        source["sequence"] = f'[null,"{lsn}"]' if kind == "read" else f'["{last_commit}","{lsn}"]'
        if kind != "read":
            identity = {"id": f"{self._transaction}:{lsn}", "total_order": self._number}
            envelope["transaction"] = identity
        return envelope | {"source": source}

    def _debezium_flattened(self, kind: str, old: Row | None, new: Row | None) -> Event:
        envelope = self._envelope(kind, old, new)
        row = new if new is not None else old or {}
        added = {f"__{name}": value for name, value in envelope["source"].items()}
        added |= {f"__transaction_{name}": value for name, value in envelope.get("transaction", {}).items()}
        added |= {"__op": envelope["op"], "__deleted": "true" if kind == "delete" else "false"}
        if not self.types:
            return {**row, **added}
        schema = {"type": "struct", "fields": self._connect_fields(row)}
        return {"schema": schema, "payload": {**row, **added}}

    def _cloudevents(self, kind: str, old: Row | None, new: Row | None) -> Event:
        """As Debezium's converter writes it: every attribute is text, and names have no underscores."""
        envelope = self._envelope(kind, old, new)
        attributes = {
            f"iodebezium{name.replace('_', '') if name.startswith('ts') else name}": str(value)
            for name, value in envelope["source"].items()
        }
        transaction = envelope.get("transaction", {})
        attributes |= {
            f"iodebeziumtx{name.replace('_', '')}": str(value) for name, value in transaction.items()
        }
        return {
            "id": f"name:db;lsn:{envelope['source']['lsn']}",
            "source": "/debezium/postgresql/db",
            "specversion": "1.0",
            "type": "io.debezium.connector.postgresql.DataChangeEvent",
            "time": self._moment.isoformat(),
            "datacontenttype": "application/json",
            **attributes,
            "iodebeziumop": envelope["op"],
            "data": {"before": old, "after": new},
        }

    def _kafka_rest(self, kind: str, old: Row | None, new: Row | None) -> Event:
        row = new or old or {}
        key = {column: row[column] for column in self.key} if row else None
        return {"key": key, "value": self._envelope(kind, old, new)}
