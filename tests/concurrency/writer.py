"""One writer as a process of its own: appends to a table over HTTP, as engines do, and keeps a ledger.

    python -m tests.concurrency.writer '{"port": …, "ledger": …, …}'

It loads the table, adds a snapshot and commits, by a plain commit and by `transactions/commit` in turn.
A refusal (409) means: load again and try with a new snapshot. Some answers are cut: the connection is closed
after the request was sent, and the same request is sent again until it is answered. The ledger has a line
before each request ("sent") and one for what became of it ("acked", "refused", "unknown", "failed"), so that
`tests/concurrency/ledger.py` can compare it with what the catalog says.

Only the standard library is imported: eight of these start at once.
"""

from __future__ import annotations

import http.client
import json
import random
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO


@dataclass
class Orders:
    """What a writer is told."""

    port: int
    ledger: str
    namespace: str
    table: str
    number: int
    seed: int
    acked_max: int = 1_000_000
    stop_file: str = ""
    cut_share: float = 0.0
    """Of the answers that are thrown away."""
    side_share: float = 0.5
    """Of the transactions that also append to the writer's own table `side<number>`."""
    key_share: float = 0.25
    """Of the requests with an Idempotency-Key."""
    abandon_share: float = 0.0
    """Of the requests with an unknown end that are not sent again."""
    outages: bool = False
    """Whether 500, 503 and 504 are expected: they count as unknown and are sent again."""
    timeout_s: float = 60.0
    pause_s: float = 0.0
    """Between two commits."""


class Cut(Exception):
    """No answer came, or it was thrown away."""


class Writer:
    def __init__(self, orders: Orders, ledger: TextIO) -> None:
        self._orders = orders
        self._ledger = ledger
        self._chance = random.Random(f"{orders.seed}-{orders.number}")
        self._connection: http.client.HTTPConnection | None = None

    def run(self) -> None:
        acked = 0
        while acked < self._orders.acked_max and not self._told_to_stop():
            time.sleep(self._orders.pause_s)
            try:
                acked += self._one(acked)
            except Cut:
                time.sleep(0.02)  # loading failed: the server is away for a moment

    def _told_to_stop(self) -> bool:
        return bool(self._orders.stop_file) and Path(self._orders.stop_file).exists()

    def _one(self, turn: int) -> bool:
        """One commit from the load to its end; whether it was acknowledged."""
        orders, chance = self._orders, self._chance
        by_transaction = turn % 2 == 1
        tables = [orders.table]
        if by_transaction and chance.random() < orders.side_share:
            tables.append(f"side{orders.number}")
        changes = {table: append(self._load(table)) for table in tables}
        ids = {table: change["updates"][0]["snapshot"]["snapshot-id"] for table, change in changes.items()}
        path, body = self._request(by_transaction, changes)
        headers = {"content-type": "application/json"}
        if chance.random() < orders.key_share:
            headers["idempotency-key"] = str(uuid.UUID(int=chance.getrandbits(128)))
        began_s = time.monotonic()
        self._note("sent", ids, began_s)
        status, message, tries = self._send_until_answered(path, body, headers)
        outcome = {0: "unknown", 200: "acked", 204: "acked", 409: "refused"}.get(status, "failed")
        told = {"status": status, "message": message, "tries": tries, "by_transaction": by_transaction}
        self._note(outcome, ids, began_s, **told)
        return outcome == "acked"

    def _request(self, by_transaction: bool, changes: dict[str, Any]) -> tuple[str, bytes]:
        orders = self._orders
        if not by_transaction:
            path = f"/v1/main/namespaces/{orders.namespace}/tables/{orders.table}"
            return path, json.dumps(changes[orders.table]).encode()
        named = [
            {"identifier": {"namespace": [orders.namespace], "name": table}, **change}
            for table, change in changes.items()
        ]
        return "/v1/main/transactions/commit", json.dumps({"table-changes": named}).encode()

    def _send_until_answered(self, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, str, int]:
        """Status (0 if it was given up), the message of a refusal, and how often it was sent."""
        cut = self._chance.random() < self._orders.cut_share
        tries = 0
        while True:
            tries += 1
            try:
                status, answer = self._exchange("POST", path, body, headers, cut=cut and tries == 1)
            except Cut:
                if self._told_to_stop() or self._chance.random() < self._orders.abandon_share:
                    return 0, "given up", tries
                time.sleep(self._chance.uniform(0.0, 0.05))
                continue
            if status in (500, 503, 504) and self._orders.outages:
                self._note("answered", {}, 0.0, status=status, message=answer.decode(errors="replace")[:2000])
                if self._told_to_stop():
                    return 0, "given up", tries
                time.sleep(0.05)
                continue
            return status, "" if status < 300 else answer.decode(errors="replace")[:2000], tries

    def _load(self, table: str) -> dict[str, Any]:
        path = f"/v1/main/namespaces/{self._orders.namespace}/tables/{table}?snapshots=refs"
        status, answer = self._exchange("GET", path, b"", {})
        if status == 200:
            metadata: dict[str, Any] = json.loads(answer)["metadata"]
            return metadata
        self._note("load", {}, 0.0, status=status, message=answer.decode(errors="replace")[:2000])
        raise Cut

    def _exchange(
        self, method: str, path: str, body: bytes, headers: dict[str, str], *, cut: bool = False
    ) -> tuple[int, bytes]:
        try:
            if self._connection is None:
                timeout_s = self._orders.timeout_s
                self._connection = http.client.HTTPConnection(
                    "127.0.0.1", self._orders.port, timeout=timeout_s
                )
            self._connection.request(method, path, body, headers)
            if cut:
                time.sleep(self._chance.uniform(0, 0.03))
                raise Cut
            response = self._connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException, Cut) as error:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            raise Cut from error

    def _note(self, what: str, ids: dict[str, int], began_s: float, **more: Any) -> None:
        line = {"what": what, "ids": ids, "began_s": began_s, "ended_s": time.monotonic(), **more}
        # In the kernel at once: what is told to the ledger outlives this process.
        self._ledger.write(json.dumps(line) + "\n")
        self._ledger.flush()


def append(metadata: dict[str, Any]) -> dict[str, Any]:
    """The commit of an append on top of what the table is now, with a snapshot id that nobody has."""
    snapshot_id = uuid.uuid4().int >> 66
    parent = metadata.get("current-snapshot-id")
    parent = None if parent == -1 else parent
    snapshot = {
        "snapshot-id": snapshot_id,
        "sequence-number": metadata["last-sequence-number"] + 1,
        "timestamp-ms": max(time.time_ns() // 1_000_000, metadata["last-updated-ms"]),
        "manifest-list": f"{metadata['location']}/metadata/snap-{snapshot_id}.avro",
        "summary": {"operation": "append", "added-records": "1"},
        "schema-id": metadata["current-schema-id"],
    }
    if parent is not None:
        snapshot["parent-snapshot-id"] = parent
    ref = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot_id}
    return {
        "requirements": [
            {"type": "assert-table-uuid", "uuid": metadata["table-uuid"]},
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": parent},
        ],
        "updates": [{"action": "add-snapshot", "snapshot": snapshot}, ref],
    }


def main() -> None:
    orders = Orders(**json.loads(sys.argv[1]))
    with Path(orders.ledger).open("a", encoding="utf-8") as ledger:
        Writer(orders, ledger).run()


if __name__ == "__main__":
    main()
