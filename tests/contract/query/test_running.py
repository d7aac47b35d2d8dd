"""Queries under way: large results, cancellation, limits, the list of queries, the server's readiness."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import orjson
import pyarrow as pa
import pytest
from pyiceberg.transforms import DayTransform

from tests.contract.query.lake import QueryLake
from tests.harness.server import CalveServer
from tests.harness.stacks import Stack, Stacks

SLOW = "SELECT count(*) FROM range(10000000000000)"
LARGE = "SELECT range AS id, 'x' || range AS name FROM range(3000000)"


def _wait_for(condition: Callable[[], Any], timeout_s: float = 30) -> Any:
    until_s = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < until_s, "it did not happen"
        time.sleep(0.02)
    return found


def _running(lake: QueryLake, sql: str) -> list[dict[str, Any]]:
    listed = httpx.get(f"{lake.stack.url}/lake/v1/main/queries").json()["queries"]
    return [query for query in listed if query["sql"] == sql and query["state"] == "running"]


def _listed(lake: QueryLake, query_id: str) -> dict[str, Any]:
    listed = httpx.get(f"{lake.stack.url}/lake/v1/main/queries").json()["queries"]
    found: dict[str, Any] = next(query for query in listed if query["query_id"] == query_id)
    return found


def _memory_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


@pytest.mark.parametrize(
    ("stack", "format_"),
    [("embedded", "ndjson"), ("embedded", "csv"), ("postgres-s3", "arrow"), ("postgres-s3", "json")],
    indirect=["stack"],
)
def test_a_large_result_is_streamed(lake: QueryLake, format_: str) -> None:
    """The server never holds the result, however slowly the client reads."""
    body, plain = {"sql": LARGE, "format": format_}, {"Accept-Encoding": "identity"}
    before_kb = _memory_kb(lake.stack.server.pid)
    size, rows, tail = 0, 0, b""
    url = f"{lake.stack.url}/query"
    with httpx.stream("POST", url, json=body, headers=plain, timeout=120) as response:
        assert response.status_code == 200
        for index, piece in enumerate(response.iter_raw(1 << 16)):
            if index % 200 == 0:
                assert _memory_kb(lake.stack.server.pid) - before_kb < 64 * 1024
            size, rows, tail = size + len(piece), rows + piece.count(b"\n"), (tail + piece)[-4000:]
    assert size > 30_000_000
    if format_ == "ndjson":
        assert rows == 3_000_001
        assert orjson.loads(tail.splitlines()[-1])["summary"]["rowCount"] == 3_000_000
    if format_ == "csv":
        assert rows == 3_000_001
    if format_ == "json":
        assert b'"rowCount":3000000' in tail
    if format_ == "arrow":
        assert tail.endswith(b"\xff\xff\xff\xff\x00\x00\x00\x00"), "the stream has its end"


def test_cancel(lake: QueryLake) -> None:
    sql = f"{SLOW} -- {lake.namespace}"
    with ThreadPoolExecutor() as threads:
        answer = threads.submit(lake.post, sql)
        (query,) = _wait_for(lambda: _running(lake, sql))
        cancelled = httpx.delete(f"{lake.stack.url}/query/{query['query_id']}")
        assert cancelled.status_code == 200
        assert answer.result(30).status_code == 409
        assert answer.result().json()["error"]["type"] == "QueryCancelledException"
    assert _listed(lake, query["query_id"])["state"] == "cancelled"
    assert httpx.delete(f"{lake.stack.url}/query/{query['query_id']}").status_code == 404
    assert lake.rows("SELECT 1") == [(1,)]


def test_a_client_that_leaves_ends_its_query(lake: QueryLake) -> None:
    sql = f"{SLOW} -- left {lake.namespace}"
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{lake.stack.url}/query", json={"sql": sql}, timeout=1.5)
    _wait_for(lambda: not _running(lake, sql), 10)

    sql = f"{LARGE} -- left {lake.namespace}"
    with httpx.stream("POST", f"{lake.stack.url}/query", json={"sql": sql}, timeout=60) as response:
        assert next(response.iter_raw(1000))
        query_id = response.headers["Calve-Query-Id"]
    _wait_for(lambda: _listed(lake, query_id)["state"] == "cancelled", 10)


def test_a_result_that_breaks_off(lake: QueryLake) -> None:
    """The error comes after many rows are out: every format shows that the result is not whole."""
    value = "CASE WHEN range < 1000000 THEN range ELSE error('broken on purpose') END"
    sql = f"SELECT {value} AS a FROM range(1200000)"
    answer = lake.post(sql).json()
    assert "broken on purpose" in answer["error"]["message"]
    assert "rowCount" not in answer
    last = orjson.loads(lake.post(sql, format="ndjson").text.splitlines()[-1])
    assert "broken on purpose" in last["error"]["message"]
    for format_ in ("csv", "arrow", "parquet"):
        with pytest.raises(httpx.RemoteProtocolError):
            lake.post(sql, format=format_)
    assert lake.rows("SELECT 1") == [(1,)]


def test_limits(stacks: Stacks, tmp_path: Path) -> None:
    settings = {
        "CALVE_QUERY_TIMEOUT_S": "30",
        "CALVE_QUERY_RESULT_BYTES_MAX": "1000000",
        "CALVE_QUERY_MEMORY_BYTES_MAX": str(128 * 2**20),
        "CALVE_QUERY_CONCURRENCY_PER_CALLER": "1",
    }
    with stacks.started("embedded", tmp_path, settings) as stack:
        lake = QueryLake.on(stack)
        error = lake.refused(SLOW, timeout_s=2)
        assert (error["code"], "2 s" in error["message"]) == (504, True)
        error = lake.refused("SELECT list(range) FROM range(200000000)")
        assert error["code"] == 413
        answer = lake.post("SELECT repeat('x', 100) FROM range(100000)").json()
        assert "1000000 bytes" in answer["error"]["message"]
        with ThreadPoolExecutor() as threads:  # one at a time: the second waits for the first
            slow = [threads.submit(lake.post, SLOW, timeout_s=2) for _ in range(2)]
            _wait_for(lambda: _running(lake, SLOW))
            assert len(_running(lake, SLOW)) == 1
            assert {answer.result().status_code for answer in slow} <= {504, 503}
        assert lake.rows("SELECT 1") == [(1,)]


def test_callers_share_the_processes(lake: QueryLake) -> None:
    lake.orders()
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: lake.rows("SELECT sum(id) FROM orders"), range(24)))
    assert answers == [[(6,)]] * 24


def test_explain(lake: QueryLake) -> None:
    lake.orders()
    explained = lake.ask("SELECT sum(amount) FROM orders WHERE id = 3", explain=True)["explain"]
    (table,) = explained["tables"]
    assert table["table"] == f"main.{lake.namespace}.orders"
    assert (table["files_total"], table["rows_total"]) == (2, 3)
    assert table["files_read"] == 1, "the file with ids 1 and 2 is pruned"
    assert table["files_pruned"] == 1
    assert explained["bytes_read"] > 0
    assert 0 < table["bytes_read"] < table["bytes_total"]
    assert table["partitions_total"] is None, "the table is not partitioned"
    text = lake.rows("EXPLAIN SELECT * FROM orders")
    assert "ICEBERG_SCAN" in str(text)


def test_explain_lists_partitions(lake: QueryLake) -> None:
    days = [datetime(2026, 11, day, hour, tzinfo=UTC) for day in (1, 2, 3) for hour in (1, 2)]
    schema = pa.schema([("id", pa.int64()), ("placed", pa.timestamp("us", "UTC"))])
    table = lake.create("placed", schema.empty_table())
    with table.update_spec() as spec:
        spec.add_field("placed", DayTransform(), "day")
    rows = pa.table({"id": range(6), "placed": days}, schema)
    table.append(rows)
    number = lake.ask("SELECT 1")["as_of"]["number"]
    table.append(rows)

    def explained(sql: str) -> dict[str, Any]:
        (found,) = lake.ask(sql, explain=True)["explain"]["tables"]
        return {name: found[name] for name in found if name.startswith(("partitions_", "files_"))}

    assert explained("SELECT sum(id) FROM placed WHERE placed < '2026-11-02 00:00:00Z'") == {
        "partitions_read": 1,
        "partitions_total": 3,
        "partitions_pruned": 2,
        "files_read": 2,
        "files_total": 6,
        "files_pruned": 4,
    }
    everything = explained("SELECT sum(id) FROM placed")
    assert (everything["partitions_read"], everything["files_read"]) == (3, 6)
    nothing = explained("SELECT sum(id) FROM placed WHERE placed > '2027-01-01 00:00:00Z'")
    assert (nothing["partitions_pruned"], nothing["files_pruned"]) == (3, 6)
    (before,) = lake.ask("SELECT sum(id) FROM placed", explain=True, as_of=number)["explain"]["tables"]
    assert (before["partitions_read"], before["files_total"]) == (3, 3), "before the second commit"


def test_ready_reports_queries(stack: Stack) -> None:
    assert httpx.get(f"{stack.url}/ready").json()["checks"]["query"] == "ok"


def test_a_server_on_a_free_port(tmp_path: Path) -> None:
    """The system chooses the port, and query processes find the catalog all the same."""
    server = CalveServer(tmp_path, {"CALVE_PORT": "0"})
    child = server._child
    port: list[int] = []

    def is_ready() -> bool:
        text = child.log.read_text() if child.log.exists() else ""
        _, found, rest = text.partition("listens on http://127.0.0.1:")
        if found:
            port.append(int(rest.split()[0]))
        return bool(found)

    child.start(is_ready, timeout_s=60)
    try:
        url = f"http://127.0.0.1:{port[0]}"
        _wait_for(lambda: _status(f"{url}/ready") == 200)
        httpx.post(f"{url}/v1/main/namespaces", json={"namespace": ["s"]}).raise_for_status()
        schema = {"type": "struct", "fields": [{"id": 1, "name": "a", "required": False, "type": "int"}]}
        table = {"name": "t", "schema": schema}
        httpx.post(f"{url}/v1/main/namespaces/s/tables", json=table).raise_for_status()
        answer = httpx.post(f"{url}/query", json={"sql": "SELECT * FROM s.t"}, timeout=60)
        assert answer.json()["rows"] == [], answer.text
    finally:
        child.stop(timeout_s=30)


def _status(url: str) -> int:
    try:
        return httpx.get(url).status_code
    except httpx.TransportError:
        return 0


def test_values_of_the_engine(lake: QueryLake) -> None:
    """Types that Arrow lacks come out as text, exact."""
    sql = """SELECT 340282366920938463463374607431768211455::UHUGEINT AS a, '12:00:00+02:30'::TIMETZ AS b,
        '101'::BIT AS c, INTERVAL '1 month 2 days' AS d,
        170141183460469231731687303715884105727::HUGEINT AS e, TIMESTAMPTZ '2026-01-01 00:00:00+02' AS f,
        9223372036854775807 AS g, {'x': [1.50::DECIMAL(9,2)]} AS h"""
    assert lake.ask(sql)["rows"] == [
        {
            "a": "340282366920938463463374607431768211455",
            "b": "12:00:00+02:30",
            "c": "101",
            "d": "P1M2D",
            "e": 170141183460469231731687303715884105727,
            "f": "2025-12-31T22:00:00.000000Z",
            "g": 9223372036854775807,
            "h": {"x": ["1.50"]},
        }
    ]
    read = pa.ipc.open_stream(lake.post(sql, format="arrow").content).read_all()
    assert read.column("a").to_pylist() == ["340282366920938463463374607431768211455"]


def test_a_stop_of_the_server_ends_queries(tmp_path: Path) -> None:
    """They have a moment to finish; no query process stays behind."""
    with CalveServer.started(tmp_path) as server:
        with ThreadPoolExecutor() as threads:
            url = f"{server.url}/query"
            answer = threads.submit(httpx.post, url, json={"sql": SLOW}, timeout=60)
            _wait_for(lambda: httpx.get(f"{server.url}/lake/v1/main/queries").json()["queries"])
            _wait_for(lambda: _children(server.pid))
            children = _children(server.pid)
            assert server.stop(timeout_s=25) == 0
            assert answer.result(30).status_code == 503
        _wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children), 10)


def _children(pid: int) -> list[int]:
    """The kernel lists children by the thread that started them."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(word) for path in lists for word in path.read_text().split()]
