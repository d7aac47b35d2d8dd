"""One sound request for every operation there is, made against things that are really there.

The list of operations comes from both files in openapi/, which tests/contract/test_openapi.py keeps equal to
the code. An operation without a request here fails every test that asks for one, so a new route cannot be
forgotten: it fails closed.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

import httpx
import yaml

from tests.contract.ingest.hand import Hand, Job
from tests.harness.components import ROOT
from tests.harness.rest import SCHEMA, Rest, identified

METHODS = frozenset({"get", "head", "post", "put", "patch", "delete"})
INGEST_TAGS = frozenset({"Changes", "Jobs", "Dead letters", "Sources", "Verification"})
# Answered without a token. Whatever else is to be open must say so here.
OPEN = frozenset({"getToken", "health", "ready", "metrics"})
LETTERS_AT_ONCE = 8

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Served:
    """An operation: what it is called, how it is reached, what it needs."""

    id: str
    method: str
    path: str
    tags: tuple[str, ...]
    takes_key: bool

    @property
    def writes(self) -> bool:
        return self.method not in ("GET", "HEAD")

    @property
    def is_ingest(self) -> bool:
        return not INGEST_TAGS.isdisjoint(self.tags)


def _described(file: str) -> Iterator[Served]:
    document = yaml.safe_load((ROOT / "openapi" / file).read_text(encoding="utf-8"))
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if method in METHODS:
                parameters = str(operation.get("parameters"))
                takes_key = "#/components/parameters/idempotency-key" in parameters
                tags = tuple(operation.get("tags", ()))
                yield Served(operation["operationId"], method.upper(), path, tags, takes_key)


SPEC = [served for served in _described("iceberg-rest.yaml") if served.id not in OPEN]
LAKE = [served for served in _described("lake.yaml") if served.id not in OPEN]
ALL = [*SPEC, *LAKE]
CATALOG = [served for served in ALL if not served.is_ingest]
INGEST = [served for served in ALL if served.is_ingest]
# A worker's calls name a job. The job's warehouse decides who may make them.
OF_JOBS = [served for served in INGEST if served.path.startswith("/lake/v1/jobs/")]
# Those that are about the server or about the caller.
SERVER_WIDE = frozenset({"listWarehouses", "createWarehouse", "dropWarehouse"})
# A query belongs to its caller. One that has ended looks to everybody as if it had never been.
OF_A_QUERY = frozenset({"cancelQuery"})
# All others name one warehouse, in the path, in the query or in the body.
OF_A_WAREHOUSE = [
    served
    for served in ALL
    if served not in OF_JOBS and served.id not in {"listWarehouses", "createWarehouse", *OF_A_QUERY}
]


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    body: Any = None
    query: str = ""

    def send(self, http: httpx.Client, **options: Any) -> httpx.Response:
        address = f"{self.path}?{self.query}" if self.query else self.path
        given = {"json": self.body} if self.body is not None else {}
        return http.request(self.method, address, **given, **options)

    def of(self, before: str, after: str) -> Request:
        """The same request about another warehouse."""
        path = self.path.replace(f"/{before}", f"/{after}", 1)
        body = self.body
        if isinstance(body, dict) and body.get("warehouse") == before:
            body = body | {"warehouse": after}
        return replace(self, path=path, body=body, query=self.query.replace(before, after))


class Maker:
    """Makes requests about one warehouse; `rest` may do everything there."""

    def __init__(self, rest: Rest) -> None:
        self.rest = rest
        self.warehouse = rest.prefix
        self._letters: list[str] = []
        self.namespace = rest.fresh_namespace()
        rest.create(self.namespace, "t")
        rest.ok("POST", rest.namespace_path(self.namespace, "views"), json=view_body("v", self.namespace))

    def request(self, served: Served) -> Request:
        body, query, parts = None, "", {"prefix": self.warehouse, "warehouse": self.warehouse}
        assert served.id in MAKERS, f"add a request for {served.id} to MAKERS in {__name__}"
        made = MAKERS[served.id](self)
        body, query = made.pop("body", None), made.pop("query", "")
        parts |= {"namespace": self.namespace, "table": "t", "view": "v"} | made
        path = served.path.format(**{name: quote(text, safe="@~") for name, text in parts.items()})
        return Request(served.method, path, body, query)

    # -- things that a request uses up

    def name(self) -> str:
        return f"n{next(_numbers)}"

    def table(self) -> str:
        name = self.name()
        self.rest.create(self.namespace, name)
        return name

    def snapshot(self) -> tuple[str, str]:
        """A new table, and its one snapshot."""
        name = self.table()
        metadata = self.rest.append(self.namespace, name)["metadata"]
        return name, str(metadata["current-snapshot-id"])

    def of_snapshot(self, body: Callable[[int], dict[str, Any]]) -> dict[str, Any]:
        table, snapshot_id = self.snapshot()
        return {"table": table, "body": body(int(snapshot_id))}

    def with_changes(self) -> str:
        """A new table that has a table of changes beside it."""
        name = self.table()
        self.rest.create(self.namespace, f"{name}__changes")
        return name

    def webhook(self) -> str:
        """A new webhook that nothing is posted to: its address is a private one."""
        body = {"url": "https://localhost:1/"}
        answer = self.rest.lake("POST", f"{self.warehouse}/webhooks", json=body)
        if answer.status_code == 403:
            return uuid.uuid4().hex  # webhooks are for administrators: the role is judged before the id
        assert answer.status_code == 200, answer.text
        found: str = answer.json()["id"]
        return found

    def keyed(self) -> str:
        """A new table with a key."""
        name = self.name()
        self.rest.create(self.namespace, name, schema={**SCHEMA, "identifier-field-ids": [1]})
        return name

    def free_location(self) -> str:
        """A location of the warehouse that no table has."""
        answer = self.rest.lake("GET", f"warehouses/{self.warehouse}")
        assert answer.status_code == 200, answer.text
        return f"{answer.json()['root'].rstrip('/')}/exports/{self.name()}"

    def exported(self) -> list[str]:
        """Parquet files with the columns of a new table."""
        path = f"{self.warehouse}/namespaces/{self.namespace}/tables/{self.table()}/export"
        answer = self.rest.lake("POST", path, json={"location": self.free_location()})
        assert answer.status_code == 200, answer.text
        files: list[str] = answer.json()["files"]
        return files

    def ref(self, kind: str) -> dict[str, Any]:
        """A tag or branch of a new table."""
        table, _ = self.snapshot()
        path = f"{self.warehouse}/namespaces/{self.namespace}/tables/{table}/{kind}"
        answer = self.rest.lake("POST", path, json={"name": "n"})
        assert answer.status_code == 200, answer.text
        return {"table": table, "name": "n"}

    def view(self) -> str:
        name = self.name()
        path = self.rest.namespace_path(self.namespace, "views")
        self.rest.ok("POST", path, json=view_body(name, self.namespace))
        return name

    def metadata_file(self, kind: str = "tables") -> str:
        """The metadata file of something whose name is gone."""
        name = self.table() if kind == "tables" else self.view()
        path = self.rest.namespace_path(self.namespace, kind, name)
        location: str = self.rest.ok("GET", path)["metadata-location"]
        self.rest.ok("DELETE", path)
        return location

    def dropped(self) -> str:
        name = self.table()
        self.rest.ok("DELETE", self.rest.table_path(self.namespace, name))
        listed = self.rest.lake("GET", f"{self.warehouse}/dropped").json()["dropped"]
        found: str = next(entry["id"] for entry in listed if entry["name"] == name)
        return found

    def transaction(self) -> str:
        name = self.name()
        answer = self.rest.lake("POST", f"{self.warehouse}/transactions", json={"name": name})
        assert answer.status_code == 200, answer.text
        return name

    # -- ingest

    def changes(self, *rows: dict[str, Any], table: str | None = None) -> dict[str, Any]:
        """Rows as inserts, in Calve's own format."""
        name = f"{self.namespace}.{table or self.name()}"
        events = [
            {
                "sequence": number,
                "timestamp": 1_700_000_000_000,
                "operation": "INSERT",
                "table": name,
                "rowId": str(row["id"]),
                "after": row,
            }
            for number, row in enumerate(rows or ({"id": 1},), start=1)
        ]
        return {"events": events}

    def sender(self) -> str:
        """A source that has sent changes."""
        name = uuid.uuid4().hex
        self.post(self.changes(), source=name)
        return name

    def post(self, body: dict[str, Any], source: str | None = None) -> str:
        """Append changes; the token of their position."""
        headers = {"X-Source-Id": source or uuid.uuid4().hex}
        path = f"/cdc?warehouse={self.warehouse}"
        answer = self.rest.call("POST", path, json=body, headers=headers)
        assert answer.is_success, answer.text
        token: str = answer.json()["token"]
        return token

    def leased(self) -> tuple[Hand, Job]:
        """A batch that a worker of this warehouse has, and the worker."""
        self.post(self.changes())
        hand = self._hand()
        for _ in range(60):
            answer = hand.ask(1)
            if answer.status_code == 200:
                job: Job = answer.json()
                return hand, job
        raise AssertionError("no batch became due")

    def _hand(self) -> Hand:
        return Hand(self.rest.url, headers={"Authorization": self.rest.http.headers["Authorization"]})

    def held(self, **more: Any) -> dict[str, Any]:
        """A job as its worker speaks of it."""
        _, job = self.leased()
        return {"job": job["id"], "body": {"epoch": job["epoch"], **more}}

    def maintained(self) -> dict[str, Any]:
        """A job of maintenance as its worker speaks of it."""
        name = self.table()
        self.rest.append(self.namespace, name)
        self.rest.lake("POST", f"{self.warehouse}/namespaces/{self.namespace}/tables/{name}/compact")
        until_s = time.monotonic() + 60
        body = {"worker": "w", "wait-s": 2, "about": {"maintenance": "only"}}
        while time.monotonic() < until_s:
            answer = self.rest.lake("POST", "jobs/lease", json=body)
            if answer.status_code == 200:
                job = answer.json()
                return {"job": job["id"], "body": {"epoch": job["epoch"]}}
        raise AssertionError("no job of maintenance within 60 s")

    def worked_on(self) -> dict[str, Any]:
        """A job that can be published."""
        hand, job = self.leased()
        hand.work(job)
        return {"job": job["id"], "body": hand.publish_body(job)}

    def letter(self) -> str:
        """A dead letter that is open: a row that does not fit the columns of its table."""
        while self._letters:
            letter = self._letters.pop()
            shown = self.rest.lake("GET", f"{self.warehouse}/dead-letters/{letter}").json()
            if shown["state"] == "open":  # a request that names no letter replays all of them
                return letter
        table = self.name()
        self.post(self.changes({"id": 0, "n": 1}, table=table))
        self._land()
        rows = [{"id": number, "n": {"not": "a number"}} for number in range(LETTERS_AT_ONCE)]
        self.post(self.changes(*rows, table=table))
        self._land()
        query = {"table": f"{self.namespace}.{table}"}
        found = self.rest.lake("GET", f"{self.warehouse}/dead-letters", params=query).json()
        self._letters = [letter["id"] for letter in found["dead-letters"]]
        return self._letters.pop()

    def _land(self) -> None:
        """Publish everything that waits in this warehouse."""
        hand = self._hand()
        for _ in range(100):
            answer = hand.ask(1)
            if answer.status_code == 204:
                return
            hand.land(answer.json())
        raise AssertionError("batches do not end")

    def paused_table(self) -> str:
        name = self.name()
        path = f"{self.warehouse}/namespaces/{self.namespace}/tables/{name}/ingest/pause"
        answer = self.rest.lake("POST", path, json={})
        assert answer.is_success, answer.text
        return name

    def resyncing(self) -> str:
        """A table with an open resync."""
        name = self.keyed()
        path = f"{self.warehouse}/namespaces/{self.namespace}/tables/{name}/resync"
        answer = self.rest.lake("POST", path, json={})
        assert answer.is_success, answer.text
        return name

    def landed_table(self) -> str:
        """A table whose changes have landed."""
        name = self.name()
        self.post(self.changes({"id": 0, "n": 1}, table=name))
        self._land()
        return name

    def source(self) -> str:
        """A source that is known."""
        name = self.name()
        answer = self.rest.lake("POST", f"{self.warehouse}/sources/{name}/pause", json={})
        assert answer.is_success, answer.text
        return name

    def ruled_source(self) -> str:
        """A source that has rules, if the caller may set them."""
        name = self.name()
        body = {"exclude": ["*.tmp"]}
        answer = self.rest.lake("PUT", f"{self.warehouse}/sources/{name}", json=body)
        assert answer.is_success or answer.status_code == 403, answer.text
        return name

    def rename(self, name: str) -> dict[str, Any]:
        return {
            "source": {"namespace": [self.namespace], "name": name},
            "destination": {"namespace": [self.namespace], "name": self.name()},
        }


def view_body(name: str, namespace: str) -> dict[str, Any]:
    version = {
        "version-id": 1,
        "timestamp-ms": 1,
        "schema-id": 0,
        "summary": {},
        "representations": [{"type": "sql", "sql": "SELECT 1", "dialect": "spark"}],
        "default-namespace": [namespace],
    }
    return {"name": name, "schema": SCHEMA, "view-version": version, "properties": {}}


def _properties() -> dict[str, Any]:
    update = {"action": "set-properties", "updates": {"n": str(next(_numbers))}}
    return {"requirements": [], "updates": [update]}


def _changes(maker: Maker) -> dict[str, Any]:
    return {"table-changes": [identified(maker.namespace, "t", _properties())]}


def _fresh_namespace(maker: Maker) -> dict[str, Any]:
    return {"namespace": maker.rest.fresh_namespace()}


MAKERS: dict[str, Callable[[Maker], dict[str, Any]]] = {
    "getConfig": lambda m: {"query": f"warehouse={m.warehouse}"},
    "listNamespaces": lambda m: {},
    "createNamespace": lambda m: {"body": {"namespace": [m.name()]}},
    "loadNamespaceMetadata": lambda m: {},
    "namespaceExists": lambda m: {},
    "dropNamespace": _fresh_namespace,
    "updateProperties": lambda m: {"body": {"updates": {"n": str(next(_numbers))}, "removals": []}},
    "listTables": lambda m: {},
    "createTable": lambda m: {"body": {"name": m.name(), "schema": SCHEMA}},
    "registerTable": lambda m: {"body": {"name": m.name(), "metadata-location": m.metadata_file()}},
    "loadTable": lambda m: {},
    "updateTable": lambda m: {"body": _properties()},
    "dropTable": lambda m: {"table": m.table()},
    "tableExists": lambda m: {},
    "unregisterTable": lambda m: {"table": m.table()},
    "renameTable": lambda m: {"body": m.rename(m.table())},
    "reportMetrics": lambda m: {"body": {"report-type": "scan-report", "table-name": "t"}},
    "commitTransaction": lambda m: {"body": _changes(m)},
    "listViews": lambda m: {},
    "createView": lambda m: {"body": view_body(m.name(), m.namespace)},
    "loadView": lambda m: {},
    "replaceView": lambda m: {"body": {"updates": _properties()["updates"]}},
    "dropView": lambda m: {"view": m.view()},
    "viewExists": lambda m: {},
    "renameView": lambda m: {"body": m.rename(m.view())},
    "registerView": lambda m: {"body": {"name": m.name(), "metadata-location": m.metadata_file("views")}},
    # Calve's own
    "listWarehouses": lambda m: {},
    "createWarehouse": lambda m: {"body": {"name": f"w{uuid.uuid4().hex}"}},
    "loadWarehouse": lambda m: {},
    "dropWarehouse": lambda m: {},
    "listEvents": lambda m: {},
    "loadTableHistory": lambda m: {},
    "openTransaction": lambda m: {"body": {"name": m.name()}},
    "listTransactions": lambda m: {},
    "loadTransaction": lambda m: {"name": m.transaction()},
    "extendTransaction": lambda m: {"name": m.transaction(), "body": {"ttl-s": 60}},
    "publishTransaction": lambda m: {"name": m.transaction()},
    "abortTransaction": lambda m: {"name": m.transaction()},
    "listDropped": lambda m: {},
    "undrop": lambda m: {"dropped_id": m.dropped(), "body": {}},
    "loadProtection": lambda m: {},
    "setProtection": lambda m: {"body": {"protected": False}},
    "listReports": lambda m: {},
    # Maintenance
    "loadMaintenance": lambda m: {},
    "setMaintenance": lambda m: {"body": {}},
    "loadNamespaceMaintenance": lambda m: {},
    "setNamespaceMaintenance": lambda m: {"body": {"compact": True}},
    "loadTableMaintenance": lambda m: {"table": m.table()},
    "setTableMaintenance": lambda m: {"table": m.table(), "body": {"compact": True}},
    "compactTable": lambda m: {"table": m.table()},
    "archiveTable": lambda m: {"table": m.table(), "query": "dry-run=true"},
    "rewriteManifests": lambda m: {"table": m.table()},
    "expireTable": lambda m: {"table": m.table()},
    "removeOrphans": lambda m: {"table": m.table()},
    # Table functions
    "listSnapshots": lambda m: {},
    "loadSnapshot": lambda m: dict(zip(("table", "snapshot_id"), m.snapshot(), strict=True)),
    "rollback": lambda m: m.of_snapshot(lambda snapshot_id: {"snapshot_id": snapshot_id}),
    "listTags": lambda m: {},
    "createTag": lambda m: m.of_snapshot(lambda snapshot_id: {"name": "n", "snapshot_id": snapshot_id}),
    "dropTag": lambda m: m.ref("tags"),
    "listBranches": lambda m: {},
    "createBranch": lambda m: m.of_snapshot(lambda snapshot_id: {"name": "n", "snapshot_id": snapshot_id}),
    "dropBranch": lambda m: m.ref("branches"),
    "listChanges": lambda m: {"table": m.with_changes()},
    "diffTable": lambda m: {"table": m.table(), "query": "from=now"},
    "listRows": lambda m: {"table": m.table()},
    "loadRow": lambda m: {"table": m.keyed(), "key": "1"},
    "loadSchema": lambda m: {},
    "checkSchema": lambda m: {"body": {"columns": [{"name": "id", "type": "long", "required": True}]}},
    "evolveSchema": lambda m: {"table": m.table(), "body": {"comment": {"id": "n"}}},
    "listPartitions": lambda m: {"table": m.table()},
    "evolvePartitions": lambda m: {"table": m.table(), "body": {"add": ["bucket(4, id)"]}},
    "listFiles": lambda m: {"table": m.table()},
    "appendFiles": lambda m: {"table": m.table(), "body": {"files": m.exported()}},
    "overwriteFiles": lambda m: {"table": m.table(), "body": {"files": m.exported()}},
    "exportTable": lambda m: {"table": m.table(), "body": {"location": m.free_location()}},
    "diffWarehouse": lambda m: {"query": "from=now"},
    # SQL over HTTP
    "query": lambda m: {"body": {"sql": "SELECT 1", "warehouse": m.warehouse}},
    "queryByUrl": lambda m: {"query": f"sql=SELECT%201&warehouse={m.warehouse}"},
    "cancelQuery": lambda m: {"query_id": uuid.uuid4().hex},
    "listQueries": lambda m: {},
    "subscribe": lambda m: {"query": f"warehouse={m.warehouse}&timeout-s=0"},
    "listWarehouseChanges": lambda m: {},
    "createWebhook": lambda m: {"body": {"url": "https://localhost:1/"}},
    "listWebhooks": lambda m: {},
    "loadWebhook": lambda m: {"webhook_id": m.webhook()},
    "deleteWebhook": lambda m: {"webhook_id": m.webhook()},
    "testWebhook": lambda m: {"webhook_id": m.webhook()},
    "resumeWebhook": lambda m: {"webhook_id": m.webhook(), "body": {}},
    # Changes, jobs and dead letters
    "postChanges": lambda m: {"query": f"warehouse={m.warehouse}", "body": m.changes()},
    "postTableChanges": lambda m: {"query": f"warehouse={m.warehouse}", "body": m.changes()},
    "postTopic": lambda m: {
        "topic": m.name(),
        "query": f"warehouse={m.warehouse}",
        "body": {"records": [{"value": {"id": next(_numbers)}}]},
    },
    "explainChanges": lambda m: {"query": f"warehouse={m.warehouse}", "body": m.changes()},
    "explainTableChanges": lambda m: {"query": f"warehouse={m.warehouse}", "body": m.changes()},
    "flush": lambda m: {"query": f"warehouse={m.warehouse}", "body": {"wait": False}},
    "ingestStatus": lambda m: {"query": f"warehouse={m.warehouse}"},
    "landed": lambda m: {"query": f"token={m.post(m.changes())}"},
    "loadIngestSettings": lambda m: {},
    "setIngestSettings": lambda m: {"table": m.name(), "body": {"mode": "mirror+changes"}},
    "listSources": lambda m: {},
    "loadSource": lambda m: {"source": m.source()},
    "setSource": lambda m: {"source": m.name(), "body": {"drop-columns": {"*": ["password"]}}},
    "deleteSource": lambda m: {"source": m.ruled_source()},
    "pauseSource": lambda m: {"source": m.name(), "body": {"reason": "a test"}},
    "resumeSource": lambda m: {"source": m.source()},
    "pauseTable": lambda m: {"table": m.name(), "body": {"reason": "a test"}},
    "resumeTable": lambda m: {"table": m.name()},
    "rebuildTable": lambda m: {"table": m.landed_table(), "body": {"reason": "a test"}},
    "skipChanges": lambda m: {"table": m.paused_table(), "body": {}},
    "loadVerification": lambda m: {"table": m.table()},
    "verifyTable": lambda m: {"table": m.table()},
    "postChecksums": lambda m: {
        "table": m.table(),
        "body": {"source": "s", "position": 1, "columns": ["id"], "count": 0, "hash": "0"},
    },
    "beginResync": lambda m: {"table": m.keyed()},
    "endResync": lambda m: {"table": m.resyncing()},
    "abortResync": lambda m: {"table": m.resyncing()},
    "loadResync": lambda m: {"table": m.resyncing()},
    "leaseJob": lambda m: {"body": {"worker": m.name(), "wait-s": 0}},
    "listJobs": lambda m: {},
    "loadJob": lambda m: {"job": m.leased()[1]["id"]},
    "keepJob": Maker.held,
    "failJob": lambda m: m.held(error="a test"),
    "publishJob": Maker.worked_on,
    "completeJob": Maker.maintained,
    "loadEpoch": lambda m: {"source": m.sender()},
    "beginEpoch": lambda m: {"source": m.sender(), "body": {"same-history": True}},
    "listDeadLetters": lambda m: {},
    "loadDeadLetter": lambda m: {"letter": m.letter()},
    "fixDeadLetter": lambda m: {"letter": m.letter(), "body": {"event": m.changes()["events"][0]}},
    "dropDeadLetter": lambda m: {"letter": m.letter()},
    "replayDeadLetters": lambda m: {"body": {"ids": [m.letter()]}},
}
