"""The methods of a table: which request each one sends, and what it returns of the response."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import httpx
import pytest

from calve import errors
from calve.client import AsyncLake, AsyncTable, Lake, Table
from tests.unit.client.server import FakeServer

HERE = "/lake/v1/main/namespaces/shop/tables/orders"
SNAPSHOT = {"snapshot_id": 7, "is_current": True}
Method = Callable[[Table], Any]

CASES: list[tuple[str, Method, Any, Any]] = [
    # route, call, what is sent (parameters or body), what comes back
    ("GET /rows", lambda t: t.rows(where="id > 1", limit=5), {"where": "id > 1", "limit": "5"}, [{"id": 1}]),
    (
        "GET /rows",
        lambda t: t.rows(columns=["id", "x"], as_of=3, dates=(date(2026, 11, 1), "2026-11-02")),
        {
            "columns": "id,x",
            "as_of": "3",
            "from_date": "2026-11-01",
            "to_date": "2026-11-02",
            "limit": "10000",
        },
        [{"id": 1}],
    ),
    ("GET /rows/a%2Fb", lambda t: t.get("a/b"), {}, {"id": 1}),
    ("GET /rows/17", lambda t: t.get(17, as_of="2026-11-15"), {"as_of": "2026-11-15"}, {"id": 1}),
    ("GET /snapshots", lambda t: t.snapshots(), {}, [SNAPSHOT]),
    ("GET /snapshots", lambda t: t.snapshot_as_of(12), {"as_of": "12"}, SNAPSHOT),
    ("GET /history", lambda t: t.history({"a": 1}), {"key": '{"a": 1}'}, [{"operation": "insert"}]),
    ("GET /changes", lambda t: t.changes(3, 5), {"from": "3", "to": "5"}, "whole"),
    ("GET /diff", lambda t: t.diff(3, limit=9), {"from": "3", "limit": "9"}, "whole"),
    ("POST /rollback", lambda t: t.rollback_to(3), {"dry_run": False, "as_of": 3}, "whole"),
    (
        "POST /rollback",
        lambda t: t.rollback_to(snapshot_id=7, dry_run=True),
        {"dry_run": True, "snapshot_id": 7},
        "whole",
    ),
    ("GET /tags", lambda t: t.tags(), {}, [{"name": "v1"}]),
    ("POST /tags", lambda t: t.create_tag("v1", as_of=3), {"name": "v1", "as_of": 3}, "whole"),
    ("DELETE /tags/v%2F1", lambda t: t.drop_tag("v/1"), {}, None),
    ("GET /branches", lambda t: t.branches(), {}, [{"name": "main"}]),
    (
        "POST /branches",
        lambda t: t.create_branch("b", snapshot_id=7),
        {"name": "b", "snapshot_id": 7},
        "whole",
    ),
    ("DELETE /branches/b", lambda t: t.drop_branch("b"), {}, None),
    ("GET /schema", lambda t: t.schema(as_of=3), {"as_of": "3"}, "whole"),
    ("POST /schema/check", lambda t: t.check_schema([{"name": "x"}]), {"columns": [{"name": "x"}]}, "whole"),
    ("POST /schema/evolve", lambda t: t.evolve(drop=["x"]), {"drop": ["x"], "dry_run": False}, "whole"),
    ("GET /partitions", lambda t: t.partitions(as_of=3), {"as_of": "3"}, "whole"),
    ("POST /partitions", lambda t: t.evolve_partitions(add=["days(at)"]), {"add": ["days(at)"]}, "whole"),
    ("GET /files", lambda t: t.files("id = 1"), {"filter": "id = 1"}, "whole"),
    ("POST /append-files", lambda t: t.append_files("a", "b"), {"files": ["a", "b"]}, "whole"),
    (
        "POST /overwrite-files",
        lambda t: t.overwrite_files("a", where="id = 1"),
        {"files": ["a"], "where": "id = 1"},
        "whole",
    ),
    ("POST /export", lambda t: t.export("s3://b/x", as_of=3), {"location": "s3://b/x", "as_of": 3}, "whole"),
]
BODY = {
    "columns": [{"name": "id", "type": "long"}],
    "truncated": False,
    "rows": [{"id": 1}],
    "row": {"id": 1},
    "snapshots": [SNAPSHOT],
    "versions": [{"operation": "insert"}],
    "tags": [{"name": "v1"}],
    "branches": [{"name": "main"}],
}


def served(route: str) -> FakeServer:
    method, _, rest = route.partition(" ")
    return FakeServer({f"{method} {HERE}{rest}": httpx.Response(204) if method == "DELETE" else BODY})


@pytest.mark.parametrize(("route", "call", "sent", "expected"), CASES)
def test_a_method_is_one_request(route: str, call: Method, sent: Any, expected: Any) -> None:
    server = served(route)
    assert call(server.connect().table("shop.orders")) == (BODY if expected == "whole" else expected)
    given = server.sent if server.last.method == "POST" else dict(server.last.url.params)
    assert given == sent


@pytest.mark.parametrize(("route", "call", "sent", "expected"), CASES)
def test_the_same_with_asyncio(route: str, call: Method, sent: Any, expected: Any) -> None:
    server = served(route)

    async def run() -> Any:
        lake = await server.connect_async()
        return await call(lake.table("shop.orders"))  # type: ignore[arg-type]

    assert asyncio.run(run()) == (BODY if expected == "whole" else expected)
    given = server.sent if server.last.method == "POST" else dict(server.last.url.params)
    assert given == sent


def test_pages_are_put_together() -> None:
    pages: list[Any] = [
        {"snapshots": [{"snapshot_id": 2}], "next-page-token": "t"},
        {"snapshots": [{"snapshot_id": 1}], "next-page-token": None},
    ]
    server = FakeServer({f"GET {HERE}/snapshots": pages})
    found = server.connect().table("shop.orders").snapshots()
    assert [one["snapshot_id"] for one in found] == [2, 1]
    assert server.last.url.params["pageToken"] == "t"


def test_rows_that_are_not_there() -> None:
    columns = [{"name": "amount", "type": "decimal(9, 2)"}]
    body = {"columns": columns, "rows": [{"amount": "1.10"}], "truncated": True}
    server = FakeServer({f"GET {HERE}/rows": body, f"GET {HERE}/rows/1": {"columns": columns, "row": None}})
    table = server.connect().table("shop.orders")
    assert table.get(1) is None
    assert table.rows(limit=1) == [{"amount": Decimal("1.10")}]
    with pytest.raises(errors.TooLarge, match="10000 rows"):
        table.rows()


def test_the_pages_of_changes_end_at_one_number() -> None:
    pages: list[Any] = [
        {"from_number": 3, "to_number": 9, "changes": [{"operation": "insert"}], "next-page-token": "t"},
        {"from_number": 3, "to_number": 9, "changes": [{"operation": "delete"}], "next-page-token": None},
    ]
    server = FakeServer({f"GET {HERE}/changes": pages})
    found = server.connect().table("shop.orders").changes(3)
    changes = [{"operation": "insert"}, {"operation": "delete"}]
    assert found == {"from_number": 3, "to_number": 9, "changes": changes}
    assert dict(server.last.url.params) == {"from": "3", "to": "9", "pageToken": "t"}


def test_the_metadata_comes_from_the_catalog() -> None:
    server = FakeServer({"GET /v1/main/namespaces/a%1Fb/tables/t%20t": {"metadata": {"format-version": 2}}})
    table = server.connect().table("a.b.t t")
    assert (table.metadata(), table.name) == ({"format-version": 2}, "a.b.t t")


def test_names_of_tables() -> None:
    lake = FakeServer({}).connect()
    assert lake.table("orders").name == "default.orders"
    with pytest.raises(ValueError, match=r"namespace\.name"):
        lake.table("shop..orders")


@pytest.mark.parametrize(("plain", "awaited"), [(Lake, AsyncLake), (Table, AsyncTable)])
def test_both_forms_have_the_same_methods(plain: type, awaited: type) -> None:
    def methods(class_: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(found).parameters)
            for name, found in vars(class_).items()
            if inspect.isfunction(found) and not name.startswith("__")
        }

    assert methods(plain) == methods(awaited)
