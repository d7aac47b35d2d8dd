"""Mirrors are rebuilt from their changes tables by a Spark job, while changes go on being acknowledged."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from ingest.identity import GUESS
from tests.contract.ingest.hand import expire
from tests.harness.stacks import Stacks
from tests.pipeline.conftest import Pipeline
from tests.pipeline.own import own_pipeline
from tests.pipeline.producer import Producer, flush
from tests.pipeline.test_landing import fresh

Make = Callable[[Pipeline, str], Producer]
WAIT_S = 90


def call(method: str, url: str, **more: Any) -> httpx.Response:
    """With patience: other tests may load the machine."""
    return httpx.request(method.upper(), url, **{"timeout": 120, **more})


def ingest_url(pipeline: Pipeline, table: str) -> str:
    space, name = table.split(".")
    return f"{pipeline.url}/lake/v1/main/namespaces/{space}/tables/{name}/ingest"


def rebuild_url(pipeline: Pipeline, table: str) -> str:
    return ingest_url(pipeline, table).removesuffix("ingest") + "rebuild"


def state(pipeline: Pipeline, table: str) -> dict[str, Any]:
    found: dict[str, Any] = call("get", ingest_url(pipeline, table)).json()["state"]
    return found


def rebuilt(pipeline: Pipeline, table: str) -> dict[str, Any]:
    """The state of a table when its rebuild has ended."""
    until_s = time.monotonic() + WAIT_S
    while time.monotonic() < until_s:
        found = state(pipeline, table)
        if found["rebuild"]["state"] in ("none", "failed"):
            return found
        time.sleep(0.05)
    raise AssertionError(f"not rebuilt: {state(pipeline, table)}")


def test_a_rebuilt_mirror_has_the_rows_that_batches_landed(pipeline: Pipeline, produced: Make) -> None:
    space = fresh()
    shop = produced(pipeline, f"shop-{space}")
    table = f"{space}.orders"
    for first in range(3):
        shop.send(
            [
                shop.event("INSERT", table, None, {"id": first * 10 + n, "item": f"i{n}", "amount": n / 2})
                for n in range(8)
            ]
            + [
                shop.event("UPDATE", table, {"id": first * 10}, {"id": first * 10, "amount": 99.0}),
                shop.event("DELETE", table, {"id": first * 10 + 1}, None),
                shop.event(
                    "UPDATE",
                    table,
                    {"id": first * 10 + 2},
                    {"id": 1000 + first, "item": "moved", "amount": None},
                ),
            ]
        )
        flush(pipeline.url)
    rows = f"SELECT * FROM lake.{table} ORDER BY id"
    landed = pipeline.rows(rows)
    assert len(landed) == 21
    asked = call("post", rebuild_url(pipeline, table), json={"reason": "a test"})
    assert (asked.status_code, asked.json()["why"]) == (202, "a test"), asked.text
    shop.send([shop.event("INSERT", table, None, {"id": 5000, "item": "new", "amount": 1.0})], wait="commit")
    found = rebuilt(pipeline, table)
    assert found["rebuild"]["rebuilt-why"] == "a test", found
    assert found["key"] == ["id"]
    number = found["rebuild"]["rebuilt-number"]
    assert pipeline.rows(rows, f"main@{number - 1}") == landed
    assert pipeline.rows(rows, f"main@{number}") == landed
    assert pipeline.rows(f"SELECT id FROM lake.{table} WHERE id = 5000") == [(5000,)]
    shop.send([shop.event("DELETE", table, {"id": 3}, None)], wait="commit")
    assert pipeline.rows(f"SELECT id FROM lake.{table} WHERE id = 3") == []
    shown = call("get", f"{pipeline.url}/status").json()["landing"]["tables"][table]
    assert shown["rebuilt"]["number"] == number


class Database:
    """Sends the changes of a table as Debezium does, without keys and under the default replica identity."""

    def __init__(self, pipeline: Pipeline, table: str) -> None:
        self._url, self._table, self._lsn = pipeline.url, table, 100

    def send(self, *changes: tuple[str, dict[str, Any] | None, dict[str, Any] | None]) -> None:
        space, name = self._table.split(".")
        answer = call(
            "post",
            f"{self._url}/cdc/{space}/{name}",
            json=[self._event(*change) for change in changes],
            params={"wait": "commit"},
            timeout=120,
        )
        assert answer.json()["committed"], answer.text

    def _event(self, operation: str, before: Any, after: Any) -> dict[str, Any]:
        self._lsn += 1
        source: dict[str, Any] = {
            "connector": "postgresql",
            "name": self._table,
            "db": "d",
            "schema": "s",
            "table": "t",
        }
        source |= {"lsn": self._lsn, "txId": self._lsn, "ts_ms": 1_763_280_000_000 + self._lsn}
        return {"op": operation, "before": before, "after": after, "source": source, "ts_ms": source["ts_ms"]}


def tenant_row(tenant: str, number: int, name: str) -> dict[str, Any]:
    return {"tenant": tenant, "id": number, "name": name}


def deleted(tenant: str, number: int) -> tuple[str, dict[str, Any], None]:
    return "d", tenant_row(tenant, number, ""), None


def test_a_guessed_key_that_is_contradicted_is_in_doubt_and_corrected_by_evidence(pipeline: Pipeline) -> None:
    table = f"{fresh()}.rows"
    database = Database(pipeline, table)
    database.send(*(("c", None, tenant_row("a", n, f"a{n}")) for n in (1, 2, 3)))
    found = state(pipeline, table)
    assert (found["key"], found["key-reason"], found["doubt"]) == (["id"], GUESS, None)
    database.send(("c", None, tenant_row("b", 1, "b1")))
    doubt = state(pipeline, table)["doubt"]
    assert "with other values of tenant, name" in doubt
    assert call("get", f"{pipeline.url}/status").json()["landing"]["tables"][table]["in-doubt"] == doubt
    database.send(deleted("a", 2), deleted("a", 3), ("c", None, tenant_row("b", 2, "b2")), deleted("b", 2))
    found = rebuilt(pipeline, table)
    assert (found["key"], found["doubt"], found["rebuild"]["error"]) == (["tenant", "id"], None, None)
    assert found["key-reason"].startswith("evidence: ")
    rows = f"SELECT tenant, id, name FROM lake.{table} ORDER BY ALL"
    assert pipeline.rows(rows) == [("a", 1, "a1"), ("b", 1, "b1")]
    database.send(("u", None, tenant_row("b", 1, "b1 again")), deleted("a", 1))
    assert pipeline.rows(rows) == [("b", 1, "b1 again")]


def test_a_mirror_without_all_its_changes_is_not_rebuilt(pipeline: Pipeline, produced: Make) -> None:
    space = fresh()
    shop = produced(pipeline, f"shop-{space}")
    table = f"{space}.t"
    assert call("put", ingest_url(pipeline, table), json={"mode": "mirror"}).is_success
    shop.send([shop.event("INSERT", table, None, {"id": 1, "k": 1, "x": "y"})], wait="commit")
    assert call("put", ingest_url(pipeline, table), json={"mode": "mirror+changes"}).is_success
    shop.send([shop.event("INSERT", table, None, {"id": 2, "k": 2, "x": "z"})], wait="commit")
    refused = call("post", rebuild_url(pipeline, table))
    assert refused.status_code == 409
    assert "mode kept no changes table. Resync it from its source" in refused.json()["error"]["message"]
    refused = call("put", ingest_url(pipeline, table), json={"key": ["k"]})
    assert (refused.status_code, state(pipeline, table)["key"]) == (409, ["id"])
    shop.send([shop.event("DELETE", table, {"id": 1}, None)], wait="commit")
    assert pipeline.rows(f"SELECT id FROM lake.{table}") == [(2,)]


def test_a_mirror_that_others_changed_is_rebuilt_by_its_setting(pipeline: Pipeline, produced: Make) -> None:
    space = fresh()
    shop = produced(pipeline, f"shop-{space}")
    table, rows = f"{space}.t", f"SELECT id, x FROM lake.{space}.t ORDER BY id"
    assert call("put", ingest_url(pipeline, table), json={"mirror-changed": "rebuild"}).is_success
    for number in (1, 2):
        shop.send([shop.event("INSERT", table, None, {"id": number, "x": "y"})], wait="commit")
    mirror = f"{pipeline.url}/v1/main/namespaces/{space}/tables/t"
    first = call("get", mirror).json()["metadata"]["snapshots"][0]
    back = call(
        "post",
        rebuild_url(pipeline, table).removesuffix("rebuild") + "rollback",
        json={"as_of": f"snapshot:{first['snapshot-id']}"},
    )
    assert back.is_success, back.text
    shop.send([shop.event("INSERT", table, None, {"id": 3, "x": "z"})], wait="commit")
    assert pipeline.rows(rows) == [(1, "y"), (2, "y"), (3, "z")]
    assert state(pipeline, table)["rebuild"]["rebuilt-why"] == "the mirror was rolled back"
    call("delete", mirror).raise_for_status()
    shop.send([shop.event("INSERT", table, None, {"id": 4, "x": "z"})], wait="commit")
    assert pipeline.rows(rows) == [(1, "y"), (2, "y"), (3, "z"), (4, "z")]


def test_a_mirror_is_built_from_changes_when_the_mode_requires_one(
    pipeline: Pipeline, produced: Make
) -> None:
    space = fresh()
    shop = produced(pipeline, f"shop-{space}")
    table = f"{space}.t"
    assert call("put", ingest_url(pipeline, table), json={"mode": "changes"}).is_success
    shop.send([shop.event("INSERT", table, None, {"id": n, "x": "y"}) for n in (1, 2)], wait="commit")
    shop.send([shop.event("DELETE", table, {"id": 1}, None)], wait="commit")
    assert call("put", ingest_url(pipeline, table), json={"mode": "mirror+changes"}).is_success
    assert rebuilt(pipeline, table)["rebuild"]["rebuilt-why"] == "its mode was set to mirror+changes"
    assert pipeline.rows(f"SELECT id, x FROM lake.{table}") == [(2, "y")]
    shop.send([shop.event("UPDATE", table, {"id": 2}, {"id": 2, "x": "z"})], wait="commit")
    assert pipeline.rows(f"SELECT id, x FROM lake.{table}") == [(2, "z")]


def wait_until_running(pipeline: Pipeline, table: str) -> None:
    until_s = time.monotonic() + WAIT_S
    while (found := state(pipeline, table)["rebuild"])["state"] != "running":
        assert found["state"] == "requested", f"it ended before it could be killed: {found}"
        assert time.monotonic() < until_s, found


@pytest.mark.proof
def test_a_rebuild_is_done_again_when_its_worker_or_the_server_is_killed(
    stacks: Stacks, tmp_path: Path
) -> None:
    with own_pipeline(stacks, "embedded", tmp_path) as pipeline:
        shop = Producer(pipeline.url, "shop")
        shop.send(
            [shop.event("INSERT", "ns.t", None, {"id": n, "x": f"x{n}"}) for n in range(2000)], wait="commit"
        )
        rows = "SELECT * FROM lake.ns.t ORDER BY id"
        for number, victim in enumerate(("worker", "server")):
            landed = pipeline.rows(rows)
            call("post", rebuild_url(pipeline, "ns.t"), json={"reason": victim}).raise_for_status()
            wait_until_running(pipeline, "ns.t")
            if victim == "worker":
                pipeline.worker.kill()
                assert pipeline.rows(rows) == landed
                for job in call("get", f"{pipeline.url}/lake/v1/main/jobs").json()["jobs"]:
                    if job["state"] != "done":
                        expire(pipeline.stack, job)
                shop.send([shop.event("INSERT", "ns.t", None, {"id": 5000 + number, "x": "new"})])
                pipeline.worker.start()
            else:
                pipeline.stack.server.kill()
                pipeline.stack.server.start()
                shop.insist([shop.event("INSERT", "ns.t", None, {"id": 5000 + number, "x": "new"})])
            flush(pipeline.url)
            found = rebuilt(pipeline, "ns.t")["rebuild"]
            assert (found["rebuilt-why"], found["error"]) == (victim, None)
            assert pipeline.rows(rows, f"main@{found['rebuilt-number']}")[: len(landed)] == landed
            assert pipeline.rows(rows)[:-1] == landed
            assert pipeline.rows("SELECT max(id) FROM lake.ns.t") == [(5000 + number,)]
        shop.client.close()
