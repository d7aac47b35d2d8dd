"""The requests that are measured, as bytes: the same for every server but for its prefix, locations and ids.

A commit is what engines send for an append: assert the branch, add a snapshot, move the branch. A catalog
does not open the manifest list at a commit, so its path leads nowhere.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import orjson

from bench.catalog.client import Connection

SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "required": True, "type": "long"},
        {"id": 2, "name": "ts", "required": False, "type": "timestamptz"},
        {"id": 3, "name": "customer", "required": False, "type": "string"},
        {"id": 4, "name": "amount", "required": False, "type": "decimal(18, 2)"},
        {"id": 5, "name": "note", "required": False, "type": "string"},
    ],
}
PARTITION_SPEC = {
    "spec-id": 0,
    "fields": [{"source-id": 2, "field-id": 1000, "name": "ts_day", "transform": "day"}],
}
UUID_FACTOR = 0x9E3779B97F4A7C15F39CC0605CEDC835


@dataclass(frozen=True, slots=True)
class Api:
    """Where the operations of one server are."""

    root: str  # /v1 or /v1/{prefix}

    @classmethod
    def of(cls, connection: Connection, warehouse: str) -> Api:
        config = connection.send("GET", f"/v1/config?warehouse={warehouse}").expect(200).json()
        prefix = {**config["defaults"], **config["overrides"]}.get("prefix")
        return cls(f"/v1/{quote(prefix, safe='')}" if prefix else "/v1")

    def tables(self, namespace: str) -> str:
        return f"{self.root}/namespaces/{namespace}/tables"

    def table(self, namespace: str, name: str) -> str:
        return f"{self.root}/namespaces/{namespace}/tables/{name}"

    def create_namespace(self, connection: Connection, namespace: str) -> None:
        body = orjson.dumps({"namespace": [namespace], "properties": {}})
        connection.send("POST", f"{self.root}/namespaces", body).expect(200)

    def create_table(self, connection: Connection, namespace: str, name: str) -> Table:
        answer = connection.send("POST", self.tables(namespace), create_body(name)).expect(
            200, b'"table-uuid":'
        )
        return Table(namespace, name, answer.json()["metadata"])


class Table:
    """A writer's view of one table: what it must know to make the next commit."""

    def __init__(self, namespace: str, name: str, metadata: dict[str, Any]) -> None:
        self.namespace = namespace
        self.name = name
        self.uuid: str = metadata["table-uuid"]
        self.location: str = metadata["location"]
        self.refreshed(metadata)

    def refreshed(self, metadata: dict[str, Any]) -> None:
        current = metadata.get("current-snapshot-id")
        self.parent: int | None = None if current in (None, -1) else current
        self.sequence: int = metadata["last-sequence-number"]

    def change(self, snapshot_id: int) -> dict[str, Any]:
        """One append: a CommitTableRequest without its identifier."""
        return {
            "requirements": [
                {"type": "assert-table-uuid", "uuid": self.uuid},
                {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": self.parent},
            ],
            "updates": [
                {
                    "action": "add-snapshot",
                    "snapshot": snapshot(self.location, snapshot_id, self.parent, self.sequence + 1),
                },
                {
                    "action": "set-snapshot-ref",
                    "ref-name": "main",
                    "type": "branch",
                    "snapshot-id": snapshot_id,
                },
            ],
        }

    def landed(self, snapshot_id: int) -> None:
        self.parent = snapshot_id
        self.sequence += 1

    @property
    def identifier(self) -> dict[str, Any]:
        return {"namespace": [self.namespace], "name": self.name}


def create_body(name: str) -> bytes:
    return orjson.dumps(
        {"name": name, "schema": SCHEMA, "partition-spec": PARTITION_SPEC, "properties": {"owner": "bench"}}
    )


def commit_body(table: Table, snapshot_id: int) -> bytes:
    return orjson.dumps({"identifier": table.identifier, **table.change(snapshot_id)})


def transaction_body(tables: list[Table], snapshot_ids: list[int]) -> bytes:
    pairs = zip(tables, snapshot_ids, strict=True)
    changes = [{"identifier": table.identifier, **table.change(snapshot_id)} for table, snapshot_id in pairs]
    return orjson.dumps({"table-changes": changes})


def snapshot(location: str, snapshot_id: int, parent: int | None, sequence: int) -> dict[str, Any]:
    """With a summary as Spark writes it: its strings are most of a real document."""
    return {
        "snapshot-id": snapshot_id,
        **({} if parent is None else {"parent-snapshot-id": parent}),
        "sequence-number": sequence,
        "timestamp-ms": int(time.time() * 1000),
        "manifest-list": f"{location}/metadata/snap-{snapshot_id}-1-{_uuid(snapshot_id)}.avro",
        "summary": {
            "operation": "append",
            "spark.app.id": "local-1763270400000",
            "added-data-files": "1",
            "added-records": "1000",
            "added-files-size": "52340",
            "changed-partition-count": "1",
            "total-records": str(1000 * sequence),
            "total-files-size": str(52340 * sequence),
            "total-data-files": str(sequence),
            "total-delete-files": "0",
            "total-position-deletes": "0",
            "total-equality-deletes": "0",
        },
        "schema-id": 0,
    }


def _uuid(snapshot_id: int) -> uuid.UUID:
    """As hard to compress as a real one, and the same for every server."""
    return uuid.UUID(int=snapshot_id * UUID_FACTOR % 2**128)


def document(location: str, table_uuid: str, snapshots: int, *, real_ids: bool = False) -> dict[str, Any]:
    """Metadata of a table with that many appends, as its last commit would have left it.

    `real_ids`: snapshot ids are long and hard to compress, as engines make them.
    """
    first_ms = 1_760_000_000_000
    made: list[dict[str, Any]] = []
    for number in range(1, snapshots + 1):
        parent = made[-1]["snapshot-id"] if made else None
        id_ = _uuid(number).int >> 66 if real_ids else number * 1_000_003
        one = snapshot(location, id_, parent, number)
        made.append({**one, "timestamp-ms": first_ms + number * 1000})
    log = [{"snapshot-id": one["snapshot-id"], "timestamp-ms": one["timestamp-ms"]} for one in made]
    last = made[-1]
    return {
        "format-version": 2,
        "table-uuid": table_uuid,
        "location": location,
        "last-sequence-number": snapshots,
        "last-updated-ms": last["timestamp-ms"],
        "last-column-id": 5,
        "current-schema-id": 0,
        "schemas": [SCHEMA],
        "default-spec-id": 0,
        "partition-specs": [PARTITION_SPEC],
        "last-partition-id": 1000,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {"owner": "bench", "write.parquet.compression-codec": "zstd"},
        "current-snapshot-id": last["snapshot-id"],
        "refs": {"main": {"snapshot-id": last["snapshot-id"], "type": "branch"}},
        "snapshots": made,
        "statistics": [],
        "partition-statistics": [],
        "snapshot-log": log,
        "metadata-log": [
            {
                "metadata-file": f"{location}/metadata/{number:05}-{number:032x}.metadata.json",
                "timestamp-ms": made[number - 1]["timestamp-ms"],
            }
            for number in range(max(1, snapshots - 100), snapshots)
        ],
    }
