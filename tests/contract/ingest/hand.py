"""A worker by hand: what a Spark worker says to the server, without Spark.

Its snapshots name files that are not there; a catalog never opens them.
"""

from __future__ import annotations

import time
import uuid
from typing import Any

import httpx
import sqlalchemy as sa

from tests.harness.rest import Rest, append_body
from tests.harness.stacks import Stack

Job = dict[str, Any]


class Hand:
    """One worker under a name of its own."""

    def __init__(self, url: str, name: str | None = None, *, headers: dict[str, str] | None = None) -> None:
        self.name = name or f"w{uuid.uuid4().hex[:8]}"
        self.rest = Rest(url, headers=headers)
        self.headers = headers
        self.about: dict[str, Any] = {}  # such as `rebuilds`, to get jobs of that kind too
        self._changes: dict[str, list[Any]] = {}  # by job

    @property
    def transaction(self) -> str:
        return f"{self.name}-0"

    # -- producing

    def post(self, table: str, *rows: dict[str, Any], transaction: str | None = None) -> None:
        """The rows as inserts of a new source."""
        metadata = {"metadata": {"transactionId": transaction, "transactionEnd": True}} if transaction else {}
        events = [
            {
                "sequence": number,
                "timestamp": 1_700_000_000_000,
                "operation": "INSERT",
                "table": row.pop("_table", table),
                "rowId": str(row["id"]),
                "after": row,
                **metadata,
            }
            for number, row in enumerate(rows, start=1)
        ]
        answer = self.rest.call(
            "POST", "/cdc", json={"events": events}, headers={"X-Source-Id": uuid.uuid4().hex}
        )
        assert answer.is_success, answer.text
        assert answer.json()["eventsAccepted"] == len(rows), answer.text

    # -- jobs

    def ask(self, wait_s: float = 0) -> httpx.Response:
        body = {"worker": self.name, "wait-s": wait_s, "about": self.about}
        return self.rest.lake("POST", "jobs/lease", json=body)

    def lease(self, space: str, *, timeout_s: float = 60) -> Job:
        """The next job of this namespace; what others left behind is done on the way."""
        until_s = time.monotonic() + timeout_s
        while time.monotonic() < until_s:
            answer = self.ask(1)
            if answer.status_code == 204:
                continue
            assert answer.status_code == 200, answer.text
            job: Job = answer.json()
            if all(table["namespace"] == [space] for table in job["tables"]):
                return job
            self.land(job)
        raise AssertionError(f"no job of {space} within {timeout_s} s")

    def work(self, job: Job) -> dict[str, int]:
        """Everything but the publish. The snapshot of each table."""
        found: dict[str, int] = {}
        self._changes[job["id"]] = []
        for table in job["tables"]:
            for name, state in table["states"].items():
                if job["kind"] == "rebuild" and name == table["changes"]:
                    continue  # it is only read
                body = append_body(state["metadata"])
                _count_rows(state["metadata"], body["updates"][0]["snapshot"])
                found[name] = body["updates"][0]["snapshot"]["snapshot-id"]
                self._changes[job["id"]].append(
                    {
                        "identifier": {"namespace": table["namespace"], "name": name},
                        "requirements": state["requirements"]
                        if {"type": "assert-create"} in state["requirements"]
                        else [*state["requirements"], *body["requirements"]],
                        "updates": [*state["updates"], *body["updates"]],
                    }
                )
        return found

    def publish(self, job: Job, *, url: str | None = None, **more: Any) -> httpx.Response:
        body = {**self.publish_body(job), **more}
        where = (url or self.rest.url) + f"/lake/v1/jobs/{job['id']}/publish"
        return httpx.post(where, json=body, headers=self.headers, timeout=60)

    def publish_body(self, job: Job) -> dict[str, Any]:
        changes = self._changes.get(job["id"], [])
        return {"epoch": job["epoch"], "table-changes": changes, "metrics": {}}

    def land(self, job: Job) -> int:
        self.work(job)
        answer = self.publish(job)
        assert answer.status_code == 200, answer.text
        number: int = answer.json()["number"]
        return number

    def heartbeat(self, job: Job, *, tables: bool = False) -> httpx.Response:
        body = {"epoch": job["epoch"], "progress": {"stage": "write"}, "tables": tables}
        return self.rest.lake("POST", f"jobs/{job['id']}/heartbeat", json=body)

    def fail(self, job: Job, error: str = "no", *, retry: bool = True) -> httpx.Response:
        body = {"epoch": job["epoch"], "error": error, "retry": retry}
        return self.rest.lake("POST", f"jobs/{job['id']}/fail", json=body)

    def abort(self, warehouse: str = "main") -> None:
        self.rest.lake("DELETE", f"{warehouse}/transactions/{self.transaction}")

    def shown(self, job: Job) -> dict[str, Any]:
        found: dict[str, Any] = self.rest.lake("GET", f"jobs/{job['id']}").json()
        return found


def _count_rows(metadata: dict[str, Any], added: dict[str, Any]) -> None:
    """A snapshot also says how many rows the table has then, as Iceberg's library does."""
    parent = [
        one
        for one in metadata.get("snapshots") or ()
        if one["snapshot-id"] == added.get("parent-snapshot-id")
    ]
    before = sum(int(one["summary"].get("total-records", 0)) for one in parent)
    added["summary"]["total-records"] = str(before + int(added["summary"]["added-records"]))


def expire(stack: Stack, job: Job) -> None:
    """Let the lease of a job be over, without the wait."""
    engine = sa.create_engine(stack.database.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        connection.execute(
            sa.text("UPDATE landing_jobs SET lease_ends_ms = 0, not_before_ms = 0 WHERE id = :id"),
            {"id": job["id"]},
        )
    engine.dispose()
