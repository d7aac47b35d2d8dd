"""Lists under `/lake/v1`: pages in the words of the spec, and no list that ends before its end."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import sqlalchemy as sa

from catalog.services.reports import REPORT_BYTES_MAX
from catalog.store.schema import dropped, transactions
from tests.harness.rest import Rest
from tests.harness.stacks import Stack, Stacks

MANY = 2_500


@pytest.fixture
def rest(stack: Stack) -> Rest:
    return Rest(stack.url)


@pytest.fixture
def warehouse(rest: Rest) -> str:
    """One that nobody else lists."""
    name = f"w{uuid.uuid4().hex[:8]}"
    answer = rest.lake("POST", "warehouses", json={"name": name})
    assert answer.status_code == 200, answer.text
    return name


def insert(stack: Stack, table: sa.Table, rows: list[dict[str, Any]]) -> None:
    engine = sa.create_engine(stack.database.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        connection.execute(sa.insert(table), rows)
    engine.dispose()


def pages(rest: Rest, path: str, key: str, **params: Any) -> Iterator[list[dict[str, Any]]]:
    token: str | None = ""
    while token is not None:
        answer = rest.lake("GET", path, params={**params, "pageToken": token})
        assert answer.status_code == 200, answer.text
        yield answer.json()[key]
        token = answer.json()["next-page-token"]


def dropped_row(warehouse: str, number: int) -> dict[str, Any]:
    return {
        "warehouse": warehouse,
        "id": str(uuid.uuid4()),
        "kind": "table",
        "namespace": "ns",
        "name": f"t{number}",
        "uuid": str(uuid.uuid4()),
        "metadata_location": "file:///nowhere",
        "document": b"",
        "dropped_ms": 1_000 + number // 700,  # many at the same time
        "expires_ms": 2**50,
        "principal": "anonymous",
    }


def transaction_row(warehouse: str, number: int) -> dict[str, Any]:
    return {
        "id": str(uuid.uuid4()),
        "warehouse": warehouse,
        "name": f"n{number % 7}",
        "base_number": 0,
        "state": "aborted",
        "opened_ms": 1_000 + number // 700,
        "expires_ms": 2_000,
        "closed_ms": 2**50,  # a day after they were closed they would be deleted
        "number": None,
        "principal": "anonymous",
    }


@pytest.mark.parametrize("what", ["dropped", "transactions"])
def test_a_walk_finds_each_of_many_once_and_newest_first(
    stack: Stack, rest: Rest, warehouse: str, what: str
) -> None:
    table, row = {"dropped": (dropped, dropped_row), "transactions": (transactions, transaction_row)}[what]
    rows = [row(warehouse, number) for number in range(MANY)]
    insert(stack, table, rows)
    path = f"{warehouse}/{what}"
    cut = list(pages(rest, path, what, pageSize=999))
    assert [len(page) for page in cut] == [999, 999, 502]
    found = [entry for page in cut for entry in page]
    assert {entry["id"] for entry in found} == {row["id"] for row in rows}
    times = [entry.get("dropped-ms") or entry["opened-ms"] for entry in found]
    assert times == sorted(times, reverse=True)
    # Who does not ask for pages is told that there is more.
    first = rest.lake("GET", path).json()
    assert (len(first[what]), bool(first["next-page-token"])) == (1000, True)


def test_warehouses_in_pages(rest: Rest, warehouse: str) -> None:
    names = [entry["name"] for page in pages(rest, "warehouses", "warehouses", pageSize=1) for entry in page]
    assert {"main", warehouse} <= set(names)
    assert names == sorted(set(names))


def test_a_report_has_a_size_limit(rest: Rest) -> None:
    namespace = rest.fresh_namespace()
    rest.create(namespace, "t")
    path = rest.table_path(namespace, "t", "metrics")
    report = {"report-type": "scan-report", "filler": ""}
    frame = len(orjson.dumps(report))
    report["filler"] = "x" * (REPORT_BYTES_MAX - frame)
    assert rest.call("POST", path, json=report).status_code == 204
    report["filler"] += "x"
    answer = rest.call("POST", path, json=report)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "BadRequestException")
    assert str(REPORT_BYTES_MAX) in answer.json()["error"]["message"]
    assert len(rest.lake("GET", f"main/namespaces/{namespace}/tables/t/metrics").json()["reports"]) == 1


def test_reports_and_history_of_a_table_in_pages(rest: Rest) -> None:
    namespace = rest.fresh_namespace()
    rest.create(namespace, "t")
    for number in range(5):
        report = {"report-type": "commit-report", "table-name": "t", "number": number}
        assert rest.call("POST", rest.table_path(namespace, "t", "metrics"), json=report).is_success
        rest.append(namespace, "t")
    table = f"main/namespaces/{namespace}/tables/t"
    found = list(pages(rest, f"{table}/metrics", "reports", pageSize=2))
    assert [[entry["report"]["number"] for entry in page] for page in found] == [[4, 3], [2, 1], [0]]
    found = list(pages(rest, f"{table}/history", "events", pageSize=4))
    assert [len(page) for page in found] == [4, 2]
    numbers = [event["number"] for page in found for event in page]
    assert numbers == sorted(numbers, reverse=True)
    assert found[-1][-1]["changes"][0]["operation"] == "create-table"


@pytest.mark.parametrize(
    "params", [{"pageToken": "x"}, {"pageToken": "W10"}, {"pageSize": "0"}, {"pageSize": "a"}]
)
def test_wrong_pages_are_refused(rest: Rest, params: dict[str, str]) -> None:
    answer = rest.lake("GET", "main/dropped", params=params)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, 400)


def test_a_token_belongs_to_its_list(stack: Stack, rest: Rest, warehouse: str) -> None:
    insert(stack, dropped, [dropped_row(warehouse, number) for number in range(2)])
    token = rest.lake("GET", f"{warehouse}/dropped", params={"pageSize": 1}).json()["next-page-token"]
    assert rest.lake("GET", f"{warehouse}/dropped", params={"pageToken": token}).status_code == 200
    for other in ("main/dropped", f"{warehouse}/transactions"):
        assert rest.lake("GET", other, params={"pageToken": token}).status_code == 400


def test_lake_routes_take_the_separator_of_the_server(stacks: Stacks, tmp_path: Path) -> None:
    with stacks.started("embedded", tmp_path, {"CALVE_NAMESPACE_SEPARATOR": "%2E"}) as stack:
        rest = Rest(stack.url)
        for levels in (["a"], ["a", "b"]):
            rest.ok("POST", rest.path("namespaces"), json={"namespace": levels})
        rest.create(["a", "b"], "t")
        for written in ("a%1Fb", "a%2Eb", "a.b"):
            answer = rest.lake("GET", f"main/namespaces/{written}/tables/t/protection")
            assert (written, answer.status_code) == (written, 200)
