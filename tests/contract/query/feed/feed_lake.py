"""A table with its changes table, published as ingest does: both in one commit of the warehouse."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

from tests.harness.stacks import Stack

TIMEOUT_S = 60.0
MIRROR = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "status", StringType()),
    identifier_field_ids=[1],
)
CHANGES = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "status", StringType()),
    NestedField(3, "_operation", StringType()),
    NestedField(4, "_commit_timestamp", TimestamptzType()),
    NestedField(5, "_source_timestamp", TimestamptzType()),
    NestedField(6, "_source", StringType()),
    NestedField(7, "_position", StringType()),
    NestedField(8, "_transaction", StringType()),
    NestedField(9, "_event_id", StringType()),
    NestedField(10, "_before", StringType()),
)

Row = tuple[int, str | None]


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event."""

    kind: str
    token: str
    data: dict[str, Any]


class EventReader:
    """Reads server-sent events from a response."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.iter_lines()

    def next(self) -> Event:
        """The next event; comments and `retry` are skipped. StopIteration at the end of the stream."""
        fields: dict[str, str] = {}
        for line in self._lines:
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif "event" in fields:
                return Event(fields["event"], fields["id"], json.loads(fields["data"]))
            else:
                fields = {}
        raise StopIteration

    def until(self, kind: str) -> list[Event]:
        """All events up to the first of this kind, which is the last."""
        found = [self.next()]
        while found[-1].kind != kind:
            found.append(self.next())
        return found

    def progress(self, number: int) -> list[Event]:
        """All events up to the progress to this number."""
        found = self.until("progress")
        while found[-1].data["number"] < number:
            found += self.until("progress")
        return found


@dataclass
class FeedLake:
    """A namespace of its own, with tables whose rows are known."""

    stack: Stack
    namespace: str
    warehouse: str = "main"
    rows: dict[str, dict[int, str | None]] = field(default_factory=dict)
    position: int = 0
    commit_us: int = 0  # of the newest publish

    @staticmethod
    def on(stack: Stack, warehouse: str = "main") -> FeedLake:
        lake = FeedLake(stack, f"f{uuid.uuid4().hex[:8]}", warehouse)
        lake._catalog(warehouse).create_namespace(lake.namespace)
        return lake

    def _catalog(self, warehouse: str) -> Catalog:
        return load_catalog("feed", **self.stack.client_properties, warehouse=warehouse)

    def name(self, table: str) -> str:
        return f"{self.namespace}.{table}"

    def create(self, *tables: str) -> None:
        catalog = self._catalog(self.warehouse)
        for table in tables:
            catalog.create_table((self.namespace, table), MIRROR)
            catalog.create_table((self.namespace, f"{table}__changes"), CHANGES)
            self.rows[table] = {}

    def create_plain(self, table: str) -> None:
        """A table that nothing lands in."""
        self._catalog(self.warehouse).create_table((self.namespace, table), MIRROR)

    def publish(self, changes: dict[str, list[tuple[str, int, str | None]]], *, source: str = "pg") -> int:
        """Apply changes (operation, id, status) to their tables, all under one number. Answers the number."""
        name = f"feed-{uuid.uuid4().hex[:8]}"
        where = f"{self.stack.url}/lake/v1/{self.warehouse}/transactions"
        httpx.post(where, json={"name": name}, timeout=TIMEOUT_S).raise_for_status()
        catalog = self._catalog(f"{self.warehouse}~{name}")
        self.commit_us = time.time_ns() // 1000
        for table, some in changes.items():
            rows = [self._applied(table, *change, source) for change in some]
            log = catalog.load_table((self.namespace, f"{table}__changes"))
            log.append(pa.Table.from_pylist(rows, schema=log.schema().as_arrow()))
            mirror = catalog.load_table((self.namespace, table))
            shown = [{"id": id_, "status": status} for id_, status in self.rows[table].items()]
            write = mirror.append if mirror.current_snapshot() is None else mirror.overwrite
            write(pa.Table.from_pylist(shown, schema=mirror.schema().as_arrow()))
        answer = httpx.post(f"{where}/{name}/commit", timeout=TIMEOUT_S)
        answer.raise_for_status()
        number: int = answer.json()["number"]
        return number

    def _applied(
        self, table: str, operation: str, id_: int, status: str | None, source: str
    ) -> dict[str, Any]:
        self.position += 1
        rows = self.rows[table]
        before = {"id": id_, "status": rows[id_]} if id_ in rows else None
        if operation == "delete":
            del rows[id_]
        elif operation == "truncate":
            rows.clear()
        else:
            rows[id_] = status
        return {
            "id": None if operation == "truncate" else id_,
            "status": None if operation in ("delete", "truncate") else status,
            "_operation": operation,
            "_commit_timestamp": datetime.fromtimestamp(0, UTC) + timedelta(microseconds=self.commit_us),
            "_source": source,
            "_position": f"{self.position:08d}",
            "_event_id": f"e{self.position}",
            "_before": None if before is None else json.dumps(before),
        }

    def head(self) -> int:
        answer = httpx.get(f"{self.stack.url}/lake/v1/{self.warehouse}/events", params={"after": 2**61})
        number: int = answer.json()["head"]
        return number

    @contextlib.contextmanager
    def subscribe(self, *, last: str | None = None, **params: Any) -> Iterator[EventReader]:
        """An open stream, of all tables of the namespace unless `tables` are given."""
        params.setdefault("tables", f"{self.namespace}.*")
        if "from_" in params:
            params["from"] = params.pop("from_")
        headers = {"Last-Event-ID": last} if last is not None else {}
        with httpx.stream(
            "GET",
            f"{self.stack.url}/subscribe",
            params={"warehouse": self.warehouse, **params},
            headers=headers,
            timeout=TIMEOUT_S,
        ) as response:
            if response.is_error:
                response.read()
                raise AssertionError(f"{response.status_code}: {response.text}")
            yield EventReader(response)

    def refused(self, **params: Any) -> dict[str, Any]:
        answer = httpx.get(
            f"{self.stack.url}/subscribe", params={"warehouse": self.warehouse, **params}, timeout=TIMEOUT_S
        )
        error: dict[str, Any] = answer.json()["error"]
        assert error["code"] == answer.status_code
        return error

    def poll(self, **params: Any) -> dict[str, Any]:
        """One page of the long poll."""
        params.setdefault("tables", f"{self.namespace}.*")
        answer = httpx.get(
            f"{self.stack.url}/lake/v1/{self.warehouse}/changes", params=params, timeout=TIMEOUT_S
        )
        assert answer.is_success, answer.text
        found: dict[str, Any] = answer.json()
        return found


def told(events: list[Event]) -> list[tuple[str, Any, Any]]:
    """The changes among events: operation, id and status of the row, of a delete as it was before."""
    found = []
    for event in events:
        if event.kind == "change":
            row = event.data["after"] or event.data["before"] or {}
            found.append((event.data["operation"], row.get("id"), row.get("status")))
    return found
