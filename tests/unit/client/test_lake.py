"""The client against a made-up server: requests, retries, results and errors."""

from __future__ import annotations

import asyncio
import json
from decimal import Decimal
from typing import Any

import httpx
import pyarrow as pa
import pytest

from calve import errors
from calve.client import calls, results
from tests.unit.client.server import URL, Answer, FakeServer, failed

AS_OF = {"warehouse": "main", "number": 3, "time": "2026-11-15T00:00:00Z", "commit_time": None}
SUMMARY: dict[str, Any] = {
    "as_of": AS_OF,
    "snapshots": {"main.shop.orders": 7},
    "freshness_ms": 5,
    "elapsed_ms": 1.5,
    "query_id": "q1",
}
RECEIVED = {"eventsAccepted": 2, "duplicates": 0, "deadLettered": 0, "token": "main:9", "events": []}


@pytest.fixture
def _without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "FIRST_DELAY_S", 0.0)
    monkeypatch.setattr(calls, "DELAY_S_MAX", 0.0)


def arrow_response(table: pa.Table) -> httpx.Response:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    headers = {
        "content-type": results.ARROW,
        "calve-as-of": json.dumps(AS_OF),
        "calve-snapshots": json.dumps(SUMMARY["snapshots"]),
        "calve-freshness-ms": "5",
        "calve-query-id": "q1",
    }
    return httpx.Response(200, content=sink.getvalue().to_pybytes(), headers=headers)


def test_connecting_checks_the_server_and_the_warehouse() -> None:
    server = FakeServer({})
    lake = server.connect(token="secret", warehouse="acme")
    assert server.last.headers["authorization"] == "Bearer secret"
    assert server.last.url.params["warehouse"] == "acme"
    assert repr(lake) == f"<calve lake acme at {URL}>"
    with pytest.raises(errors.Unavailable, match=r"No server answers at http://lake\.test"):
        FakeServer({"GET /v1/config": httpx.ConnectError("refused")}).connect()
    with pytest.raises(errors.NotFound, match="no warehouse acme"):
        FakeServer({"GET /v1/config": failed(404, "no warehouse acme")}).connect()


def test_the_environment_says_where_to_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CALVE_URI", raising=False)
    monkeypatch.delenv("CALVE_TOKEN", raising=False)
    assert calls.address_and_token(None, None) == ("http://127.0.0.1:8181", None)
    monkeypatch.setenv("CALVE_URI", "https://lake.test/")
    monkeypatch.setenv("CALVE_TOKEN", "secret")
    assert calls.address_and_token(None, None) == ("https://lake.test", "secret")
    assert calls.address_and_token(None, "mine") == ("https://lake.test", "mine")
    assert calls.address_and_token("https://other.test", None) == ("https://other.test", None), (
        "a token goes to its own server only"
    )


def test_a_query() -> None:
    table = pa.table({"n": [1, 2], "amount": pa.array([Decimal("1.10"), None], pa.decimal128(9, 2))})
    server = FakeServer({"POST /query": arrow_response(table)})
    result = server.connect().query("SELECT $x", {"x": 1}, as_of="2026-11-15", consistency="fresh")
    assert server.sent == {
        "sql": "SELECT $x",
        "params": {"x": 1},
        "as_of": "2026-11-15",
        "consistency": "fresh",
        "warehouse": "main",
        "format": "arrow",
    }
    rows = [{"n": 1, "amount": Decimal("1.10")}, {"n": 2, "amount": None}]
    assert (result.columns, result.rows, list(result), len(result)) == (["n", "amount"], rows, rows, 2)
    assert (result.as_of, result.snapshots) == (AS_OF, {"main.shop.orders": 7})
    assert (result.freshness_ms, result.query_id) == (5, "q1")
    assert result.arrow() == table
    assert result.df()["n"].tolist() == [1, 2]
    assert result.pl()["amount"].to_list() == [Decimal("1.10"), None]


def test_a_query_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calve.client.operations.has_arrow", lambda: False)
    columns = [{"name": "n", "type": "BIGINT"}, {"name": "amount", "type": "DECIMAL(9,2)"}]
    body = {"columns": columns, "rows": [{"n": 1, "amount": "1.10"}], "rowCount": 1, **SUMMARY}
    server = FakeServer({"POST /query": body})
    result = server.connect().query("SELECT 1")
    assert server.sent["format"] == "json"
    assert result.rows == [{"n": 1, "amount": Decimal("1.10")}]
    assert result.as_of == AS_OF
    with pytest.raises(errors.MissingPackage, match="run it again"):
        result.arrow()


def test_a_missing_package_is_named() -> None:
    with pytest.raises(errors.MissingPackage, match=r"df\(\) needs no_such_package: pip install"):
        results.require("no_such_package", "df()")


def test_a_result_that_breaks_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calve.client.operations.has_arrow", lambda: False)
    error = {"message": "took too long", "type": "Timeout", "code": 504}
    server = FakeServer({"POST /query": {"columns": [], "rows": [], "error": error}})
    with pytest.raises(errors.QueryFailed, match="took too long"):
        server.connect().query("SELECT 1")


@pytest.mark.parametrize(
    ("status", "class_"),
    [
        (400, errors.QueryFailed),
        (413, errors.QueryFailed),
        (401, errors.Unauthorized),
        (403, errors.Forbidden),
        (404, errors.NotFound),
        (503, errors.Unavailable),
        (504, errors.Timeout),
    ],
)
def test_a_query_that_fails(status: int, class_: type[errors.CalveError]) -> None:
    server = FakeServer({"POST /query": failed(status, "no such column", "BinderException")})
    with pytest.raises(class_) as raised:
        server.connect().query("SELECT x")
    assert type(raised.value) is class_
    assert (raised.value.status, raised.value.type) == (status, "BinderException")
    assert raised.value.message == str(raised.value) == "no such column"
    assert len(server.requests) == 2, "a query is not repeated"


def test_an_error_that_is_not_json() -> None:
    server = FakeServer({"GET /status": httpx.Response(502, text="bad gateway")})
    with pytest.raises(errors.Unavailable, match="502: bad gateway"):
        server.connect().status()


def test_a_result_in_pieces() -> None:
    server = FakeServer({"POST /query": httpx.Response(200, content=b"id\r\n1\r\n")})
    assert b"".join(server.connect().stream("SELECT 1", format="csv")) == b"id\r\n1\r\n"
    server = FakeServer({"POST /query": failed(400, "wrong")})
    with pytest.raises(errors.QueryFailed, match="wrong"):
        list(server.connect().stream("SELEC"))


@pytest.mark.usefixtures("_without_waiting")
def test_a_write_is_repeated_as_it_was() -> None:
    troubles: list[Answer] = [
        httpx.ReadError("reset"),
        failed(500, "unknown"),
        failed(429, "full", **{"Retry-After": "0"}),
        httpx.ReadTimeout("slow"),
    ]
    server = FakeServer({"POST /cdc/shop/orders": [*troubles, RECEIVED]})
    result = server.connect().write("shop.orders", [{"id": 1}, {"id": 2}], key="id")
    assert (result.accepted, result.token, result.committed) == (2, "main:9", None)
    sent = server.requests[1:]
    assert len(sent) == 5
    assert len({(request.content, request.headers["idempotency-key"], request.url) for request in sent}) == 1
    assert dict(sent[0].url.params) == {"warehouse": "main", "format": "rows", "key": "id"}


@pytest.mark.usefixtures("_without_waiting")
def test_changes_keep_their_numbers_when_they_are_repeated() -> None:
    path = "POST /cdc/a%1Fb/t"
    server = FakeServer({path: [failed(503, "away"), RECEIVED, RECEIVED]})
    lake = server.connect()
    lake.write(("a", "b", "t"), [{"operation": "insert", "after": {"id": 1}}])
    lake.write("a.b.t", {"operation": "delete", "before": {"id": 1}})
    first, repeated, second = server.requests[1:]
    assert first.content == repeated.content
    assert [json.loads(request.content)["sequence"] for request in (first, second)] == [1, 2]
    assert len({request.headers["x-source-id"] for request in server.requests[1:]}) == 1
    assert second.url.params["format"] == "native"


@pytest.mark.usefixtures("_without_waiting")
def test_a_write_ends_after_its_time() -> None:
    server = FakeServer({"POST /cdc/shop/orders": failed(503, "away")})
    with pytest.raises(errors.Unavailable, match="away"):
        server.connect(retry_s=0).write("shop.orders", [{"id": 1}])
    assert len(server.requests) == 2


def test_a_write_that_is_wrong_is_not_repeated() -> None:
    server = FakeServer({"POST /cdc/shop/orders": failed(400, "event 0")})
    with pytest.raises(errors.InvalidRequest, match="event 0"):
        server.connect().write("shop.orders", [{"id": 1}])
    assert len(server.requests) == 2


def test_large_writes_go_in_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calve.client.rows.chunks.__defaults__", (20,))
    committed = RECEIVED | {"committed": True, "snapshots": [{"table": "shop.orders"}]}
    server = FakeServer({"POST /cdc/shop/orders": [RECEIVED, RECEIVED, committed]})
    seen: list[int] = []
    rows = ({"id": number} for number in range(6))
    result = server.connect().load(
        rows, "shop.orders", wait="commit", timeout_s=9, idempotency_key="day-1", progress=seen.append
    )
    assert (seen, result.accepted, result.committed) == ([2, 2, 2], 6, True)
    keys = [request.headers["idempotency-key"] for request in server.requests[1:]]
    assert keys == ["day-1-0", "day-1-1", "day-1-2"]
    assert [request.url.params.get("wait") for request in server.requests[1:]] == [None, None, "commit"]
    assert server.last.url.params["timeout_s"] == "9"


def test_an_empty_write_sends_nothing() -> None:
    server = FakeServer({})
    assert server.connect().write("shop.orders", []).accepted == 0
    assert len(server.requests) == 1


def test_rows_that_cannot_land_are_a_warning() -> None:
    problem = {"index": 0, "status": "dead_lettered", "reason": "`id` is text"}
    server = FakeServer({"POST /cdc/shop/orders": RECEIVED | {"deadLettered": 1, "events": [problem]}})
    lake = server.connect()
    with pytest.warns(errors.DeadLetterWarning, match="1 rows cannot land .* `id` is text"):
        assert lake.write("shop.orders", [{"id": "x"}]).problems == [problem]


def test_tables_of_all_namespaces() -> None:
    def page(name: str, *found: Any, token: str | None = None) -> dict[str, Any]:
        return {name: list(found), "next-page-token": token}

    orders, lines, deep = (
        {"namespace": ["shop"], "name": "orders"},
        {"namespace": ["shop"], "name": "lines"},
        {"namespace": ["shop", "eu"], "name": "orders"},
    )
    server = FakeServer(
        {
            "GET /v1/main/namespaces": [
                page("namespaces", ["shop"]),
                page("namespaces", ["shop", "eu"]),
                page("namespaces"),
            ],
            "GET /v1/main/namespaces/shop/tables": [
                page("identifiers", orders, token="x"),
                page("identifiers", lines),
            ],
            "GET /v1/main/namespaces/shop%1Feu/tables": page("identifiers", deep),
        }
    )
    assert server.connect().tables() == ["shop.eu.orders", "shop.lines", "shop.orders"]


def test_flush_and_status() -> None:
    server = FakeServer({"POST /flush": {"success": True}, "GET /status": {"state": "idle"}})
    lake = server.connect(warehouse="acme")
    assert lake.flush(["shop.orders"], timeout_s=5) == {"success": True}
    assert server.sent == {"wait": True, "timeout_s": 5, "tables": [["shop", "orders"]]}
    assert lake.status() == {"state": "idle"}
    assert server.last.url.params["warehouse"] == "acme"


OPENED = {"name": "t1", "warehouse": "main~t1", "base-number": 4}
TRANSACTIONS = "/lake/v1/main/transactions"


def test_a_transaction_is_published_at_the_end() -> None:
    server = FakeServer({f"POST {TRANSACTIONS}": OPENED, f"POST {TRANSACTIONS}/t1/commit": {"number": 9}})
    with server.connect(token="it's").transaction(ttl_s=60) as tx:
        assert server.sent == {"ttl-s": 60}
        assert tx.catalog_properties() == {
            "type": "rest",
            "uri": URL,
            "warehouse": "main~t1",
            "token": "it's",
        }
        assert tx.spark_properties()["spark.sql.catalog.tx.warehouse"] == "main~t1"
        assert "TOKEN 'it''s'" in tx.duckdb_sql()
        assert "ATTACH 'main~t1' AS tx (TYPE iceberg" in tx.duckdb_sql()
    assert (tx.number, tx.is_closed, tx.base_number) == (9, True, 4)


def test_a_transaction_is_aborted_after_an_exception() -> None:
    answers: dict[str, Answer | list[Answer]] = {
        f"POST {TRANSACTIONS}": OPENED,
        f"DELETE {TRANSACTIONS}/t1": httpx.Response(204),
    }
    server = FakeServer(answers)
    with pytest.raises(KeyError), server.connect().transaction() as tx:
        raise KeyError("x")
    assert (server.last.method, tx.is_closed) == ("DELETE", True)
    server = FakeServer({**answers, f"POST {TRANSACTIONS}/t1/commit": failed(409, "shop.orders has moved")})
    with pytest.raises(errors.Conflict, match=r"shop\.orders"), server.connect().transaction():
        pass
    assert server.last.method == "DELETE"


def test_a_publish_whose_answer_is_lost_is_repeated_and_never_aborted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calls, "FIRST_DELAY_S", 0.0)
    path = f"POST {TRANSACTIONS}/t1/commit"
    server = FakeServer({f"POST {TRANSACTIONS}": OPENED, path: [httpx.ReadError("reset"), {"number": 9}]})
    with server.connect().transaction() as tx:
        pass
    assert tx.number == 9
    server = FakeServer({f"POST {TRANSACTIONS}": OPENED, path: failed(503, "away")})
    with pytest.raises(errors.Unavailable), server.connect(retry_s=0).transaction():
        pass
    assert server.last.method == "POST"


def test_the_same_with_asyncio() -> None:
    table = pa.table({"n": [1]})
    server = FakeServer(
        {
            "POST /query": [arrow_response(table), httpx.Response(200, content=b"n\r\n1\r\n")],
            "POST /cdc/shop/orders": RECEIVED,
            "GET /status": {"state": "idle"},
            f"POST {TRANSACTIONS}": OPENED,
            f"POST {TRANSACTIONS}/t1/commit": {"number": 9},
        }
    )

    async def run() -> None:
        async with await server.connect_async() as lake:
            assert (await lake.query("SELECT 1 AS n")).rows == [{"n": 1}]
            assert [piece async for piece in lake.stream("SELECT 1 AS n")] == [b"n\r\n1\r\n"]
            assert (await lake.write("shop.orders", [{"id": 1}])).accepted == 2
            assert await lake.status() == {"state": "idle"}
            async with lake.transaction() as tx:
                assert tx.warehouse == "main~t1"
            assert tx.number == 9

    asyncio.run(run())
