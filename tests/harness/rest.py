"""A plain client of the REST API for tests: what engines send, without an engine.

A commit names manifest lists that are not there: a catalog never opens them.
"""

from __future__ import annotations

import itertools
import random
import time
import uuid
from typing import Any
from urllib.parse import quote

import httpx

SCHEMA: dict[str, Any] = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "id", "type": "long", "required": True},
        {"id": 2, "name": "name", "type": "string", "required": False},
    ],
}
_names = itertools.count()


class Rest:
    """One warehouse reference (a prefix) of one server."""

    def __init__(self, url: str, prefix: str = "main", **options: Any) -> None:
        self.http = httpx.Client(base_url=url, timeout=60, **options)
        self.url = url
        self.prefix = prefix

    def __del__(self) -> None:
        self.http.close()

    def at(self, prefix: str) -> Rest:
        return Rest(self.url, prefix)

    def path(self, *segments: str) -> str:
        return "/".join(["/v1", quote(self.prefix, safe="@~:"), *segments])

    def namespace_path(self, namespace: str | list[str], *more: str) -> str:
        levels = [namespace] if isinstance(namespace, str) else namespace
        return self.path("namespaces", "%1F".join(quote(level, safe="") for level in levels), *more)

    def table_path(self, namespace: str | list[str], table: str, *more: str) -> str:
        return self.namespace_path(namespace, "tables", quote(table, safe=""), *more)

    def call(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self.http.request(method, path, **options)

    def ok(self, method: str, path: str, **options: Any) -> Any:
        answer = self.call(method, path, **options)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    # -- what tests need again and again

    def fresh_namespace(self, properties: dict[str, str] | None = None) -> str:
        name = f"ns{next(_names)}_{uuid.uuid4().hex[:8]}"
        self.ok("POST", self.path("namespaces"), json={"namespace": [name], "properties": properties or {}})
        return name

    def create(self, namespace: str | list[str], table: str, **more: Any) -> dict[str, Any]:
        body = {"name": table, "schema": SCHEMA, **more}
        made: dict[str, Any] = self.ok("POST", self.namespace_path(namespace, "tables"), json=body)
        return made

    def load(self, namespace: str | list[str], table: str, **params: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ok("GET", self.table_path(namespace, table), params=params)
        return found

    def tables(self, namespace: str | list[str]) -> list[str]:
        listed = self.ok("GET", self.namespace_path(namespace, "tables"))
        return [identifier["name"] for identifier in listed["identifiers"]]

    def commit(
        self, namespace: str | list[str], table: str, body: dict[str, Any], **options: Any
    ) -> httpx.Response:
        return self.call("POST", self.table_path(namespace, table), json=body, **options)

    def append(self, namespace: str | list[str], table: str) -> dict[str, Any]:
        """One snapshot on top of what the table is now."""
        metadata = self.load(namespace, table)["metadata"]
        answer = self.commit(namespace, table, append_body(metadata))
        assert answer.status_code == 200, answer.text
        done: dict[str, Any] = answer.json()
        return done

    # -- Calve's own

    def lake(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self.http.request(method, f"/lake/v1/{path}", **options)

    def open_transaction(self, name: str, **body: Any) -> Rest:
        answer = self.lake("POST", "main/transactions", json={"name": name, **body})
        assert answer.status_code == 200, answer.text
        return self.at(f"main~{name}")

    def publish(self, name: str) -> httpx.Response:
        return self.lake("POST", f"main/transactions/{name}/commit")

    def head(self) -> int:
        answer = self.lake("GET", "main/events", params={"after": 2**61})
        head: int = answer.json()["head"]
        return head


def snapshot(metadata: dict[str, Any], snapshot_id: int | None = None) -> dict[str, Any]:
    """A snapshot that follows the table's current one."""
    snapshot_id = snapshot_id or random.randrange(1, 2**62)
    parent = metadata.get("current-snapshot-id")
    made: dict[str, Any] = {
        "snapshot-id": snapshot_id,
        "sequence-number": metadata.get("last-sequence-number", 0) + 1,
        "timestamp-ms": max(int(time.time() * 1000), metadata["last-updated-ms"]),
        "manifest-list": f"{metadata['location']}/metadata/snap-{snapshot_id}.avro",
        "summary": {"operation": "append", "added-records": "1"},
        "schema-id": metadata["current-schema-id"],
    }
    if parent not in (None, -1):
        made["parent-snapshot-id"] = parent
    if metadata["format-version"] > 2:
        made |= {"first-row-id": metadata.get("next-row-id", 0), "added-rows": 1}
    return made


def append_body(metadata: dict[str, Any], snapshot_id: int | None = None) -> dict[str, Any]:
    """The commit that engines send for an append."""
    added = snapshot(metadata, snapshot_id)
    parent = added.get("parent-snapshot-id")
    return {
        "requirements": [
            {"type": "assert-table-uuid", "uuid": metadata["table-uuid"]},
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": parent},
        ],
        "updates": [
            {"action": "add-snapshot", "snapshot": added},
            {
                "action": "set-snapshot-ref",
                "ref-name": "main",
                "type": "branch",
                "snapshot-id": added["snapshot-id"],
            },
        ],
    }


def identified(namespace: str, table: str, body: dict[str, Any]) -> dict[str, Any]:
    """A commit as one of the changes of `transactions/commit`."""
    return {"identifier": {"namespace": [namespace], "name": table}, **body}


def uuid7() -> str:
    value = (int(time.time() * 1000) << 80) | (7 << 76) | (2 << 62) | random.getrandbits(62)
    return str(uuid.UUID(int=value))
