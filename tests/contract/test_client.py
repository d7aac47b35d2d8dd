"""The Python client against a running server."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal

import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, DecimalType, LongType, NestedField

import calve
from calve import errors
from calve.client import Lake
from tests.clients import pyiceberg_client
from tests.harness.stacks import Stack


@pytest.fixture
def lake(stack: Stack) -> Iterator[Lake]:
    with calve.connect(stack.url) as found:
        yield found


@pytest.fixture
def namespace(stack: Stack) -> str:
    name = f"c{uuid.uuid4().hex[:8]}"
    pyiceberg_client.catalog(stack).create_namespace(name)
    return name


def create(stack: Stack, name: str, data: pa.Table) -> None:
    pyiceberg_client.catalog(stack).create_table(name, data.schema).append(data)


def pending(lake: Lake, table: str) -> int:
    found: int = lake.status()["landing"]["tables"][table]["pending-events"]
    return found


class LosesAnswers(httpx.HTTPTransport):
    """Sends each change, and loses every answer to it but the third."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = super().handle_request(request)
        if request.url.path.startswith("/cdc"):
            self.sent += 1
            if self.sent % 3:
                response.read()
                raise httpx.ReadError("the connection was reset")
        return response


def test_connecting(stack: Stack) -> None:
    with pytest.raises(errors.NotFound, match="no-such"):
        calve.connect(stack.url, warehouse="no-such")
    with pytest.raises(errors.Unavailable, match="No server answers"):
        calve.connect("http://127.0.0.1:1")


def test_a_query_as_of_two_moments(stack: Stack, lake: Lake, namespace: str) -> None:
    create(stack, f"{namespace}.orders", pa.table({"id": [1, 2]}))
    before = lake.query(f"SELECT count(*) AS n FROM {namespace}.orders")
    pyiceberg_client.catalog(stack).load_table(f"{namespace}.orders").append(pa.table({"id": [3]}))
    sql = "SELECT count(*) AS n FROM orders WHERE id > $least"
    assert lake.query(sql, {"least": 0}, namespace=namespace).rows == [{"n": 3}]
    past = lake.query(sql, {"least": 0}, namespace=namespace, as_of=before.as_of["number"])
    assert (past.rows, past.as_of["number"]) == ([{"n": 2}], before.as_of["number"])
    assert past.snapshots == before.snapshots
    assert past.columns == ["n"]
    with pytest.raises(errors.NotFound, match="did not exist"):
        lake.query(sql, {"least": 0}, namespace=namespace, as_of="yesterday")
    with pytest.raises(errors.QueryFailed, match="no_such"):
        lake.query("SELECT no_such FROM orders", namespace=namespace)


TYPES = """SELECT 1::BIGINT AS a, 1.50::DECIMAL(9,2) AS b, DATE '2026-11-15' AS c, TIME '01:02:03.5' AS d,
  TIMESTAMP '2026-11-15 01:02:03.25' AS e, TIMESTAMPTZ '2026-11-15 01:02:03+00' AS f, 'x' AS g,
  NULL::INTEGER AS h, true AS i, 0.1::DOUBLE AS j, '\\x00\\xFF'::BLOB AS k, [1, 2] AS l, {'x': 1} AS m,
  170141183460469231731687303715884105727::HUGEINT AS n, 1 AS a"""


def test_rows_are_the_same_with_and_without_pyarrow(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    [row] = lake.query(TYPES).rows
    assert row["b"] == Decimal("1.50")
    assert row["c"] == date(2026, 11, 15)
    assert row["f"] == datetime(2026, 11, 15, 1, 2, 3, tzinfo=UTC)
    assert (row["k"], row["l"], row["m"], row["a_1"]) == (b"\x00\xff", [1, 2], {"x": 1}, 1)
    monkeypatch.setattr("calve.client.operations.has_arrow", lambda: False)
    assert lake.query(TYPES).rows == [row]


def test_data_frames(lake: Lake) -> None:
    result = lake.query("SELECT range AS n, 'x' AS t FROM range(3)")
    assert result.arrow()["n"].to_pylist() == [0, 1, 2]
    assert result.df()["n"].tolist() == [0, 1, 2]
    assert result.pl()["t"].to_list() == ["x"] * 3
    assert b"".join(lake.stream("SELECT 1 AS n", format="csv")) == b"n\r\n1\r\n"


def test_writes_land_once_although_responses_are_lost(stack: Stack, namespace: str) -> None:
    transport = LosesAnswers()
    with calve.connect(stack.url, transport=transport) as lake:
        table = f"{namespace}.orders"
        result = lake.write(table, [{"id": 1}, {"id": 2}], key="id")
        assert (result.accepted, result.duplicates, transport.sent) == (0, 2, 3)
        assert pending(lake, table) == 2
        lake.write(table, {"operation": "update", "after": {"id": 1, "x": 1}})
        lake.write(table, {"operation": "delete", "before": {"id": 1}})
        assert (pending(lake, table), transport.sent) == (4, 9)
        # The same rows, sent by a program that begins again.
        for _ in range(2):
            lake.load([{"id": 5}], table, idempotency_key=f"{namespace}-day-1")
        assert pending(lake, table) == 5


def test_a_write_without_a_usable_row(lake: Lake, namespace: str) -> None:
    with pytest.raises(errors.InvalidRequest):
        lake.write(f"{namespace}.orders", {"operation": "insert", "after": {"id": 1}, "timestamp": "now"})


def test_a_flush_without_a_worker_reports_that_it_waits(lake: Lake, namespace: str) -> None:
    token = lake.write(f"{namespace}.orders", [{"id": 1}]).token
    assert token.startswith("main:")
    assert lake.flush([f"{namespace}.orders"], timeout_s=0.2)["committed"] is False
    result = lake.write(f"{namespace}.orders", [{"id": 2}], wait="commit", timeout_s=0.2)
    assert (result.accepted, result.committed) == (1, False)


def test_tables_and_their_metadata(stack: Stack, lake: Lake, namespace: str) -> None:
    pyiceberg_client.catalog(stack).create_namespace((namespace, "eu"))
    create(stack, f"{namespace}.orders", pa.table({"id": [1]}))
    create(stack, f"{namespace}.eu.orders", pa.table({"id": [1]}))
    assert lake.tables(namespace) == [f"{namespace}.eu.orders", f"{namespace}.orders"]
    assert set(lake.tables()) >= {f"{namespace}.eu.orders", f"{namespace}.orders"}
    assert lake.table(f"{namespace}.eu.orders").metadata()["format-version"] == 2
    with pytest.raises(errors.NotFound, match="nothing"):
        lake.table(f"{namespace}.nothing").metadata()


def test_snapshots_tags_and_rollback(stack: Stack, lake: Lake, namespace: str) -> None:
    create(stack, f"{namespace}.orders", pa.table({"id": [1]}))
    table = lake.table(f"{namespace}.orders")
    first = table.snapshots()[0]
    pyiceberg_client.catalog(stack).load_table(table.name).append(pa.table({"id": [2]}))
    assert [one["is_current"] for one in table.snapshots()] == [True, False]
    found = table.snapshot_as_of(first["number"])
    assert found is not None
    assert found["snapshot_id"] == first["snapshot_id"]
    table.create_tag("v1", snapshot_id=first["snapshot_id"])
    assert [tag["name"] for tag in table.tags()] == ["v1"]
    table.drop_tag("v1")
    table.create_branch("b")
    assert [branch["name"] for branch in table.branches()] == ["b", "main"]
    table.drop_branch("b")
    dry = table.rollback_to(first["number"], dry_run=True)
    assert (len(dry["undone"]), dry["number"]) == (1, None)
    table.rollback_to(snapshot_id=first["snapshot_id"])
    assert lake.query(f"SELECT id FROM {table.name}").rows == [{"id": 1}]


def test_rows_and_differences(stack: Stack, lake: Lake, namespace: str) -> None:
    """Of a table with a key, which an engine writes."""
    key = NestedField(1, "id", LongType(), required=True)
    columns = (key, NestedField(2, "amount", DecimalType(9, 2)), NestedField(3, "day", DateType()))
    schema = Schema(*columns, identifier_field_ids=[1])
    created = pyiceberg_client.catalog(stack).create_table(f"{namespace}.orders", schema)

    def orders(*rows: tuple[int, str, int]) -> pa.Table:
        found = [{"id": i, "amount": Decimal(a), "day": date(2026, 11, d)} for i, a, d in rows]
        return pa.Table.from_pylist(found, schema=created.schema().as_arrow())

    created.append(orders((1, "1.10", 1), (2, "2.20", 2)))
    table = lake.table(f"{namespace}.orders")
    first = table.snapshots()[0]["number"]
    created.overwrite(orders((2, "2.50", 2), (3, "3.30", 3)))
    assert table.get(2) == {"id": 2, "amount": Decimal("2.50"), "day": date(2026, 11, 2)}
    assert table.get({"id": 2}, as_of=first) == {"id": 2, "amount": Decimal("2.20"), "day": date(2026, 11, 2)}
    assert table.get(1) is None
    assert table.rows(columns=["id"], where="amount > 3") == [{"id": 3}]
    assert table.rows(columns=["id"], dates=(date(2026, 11, 3), None)) == [{"id": 3}]
    assert sorted(row["id"] for row in table.rows(as_of=first)) == [1, 2]
    rows = table.diff(first, limit=5)["rows"]
    assert [row["id"] for row in rows["added"]] == [3]
    assert [row["id"] for row in rows["removed"]] == [1]
    assert rows["changed"] == [{"key": {"id": 2}, "old": {"amount": "2.20"}, "new": {"amount": "2.50"}}]
    with pytest.raises(errors.Conflict, match="changes"):
        table.changes(first)
    with pytest.raises(errors.NotFound, match="did not exist"):
        table.rows(as_of="yesterday")


def test_schema_partitions_and_files(stack: Stack, lake: Lake, namespace: str) -> None:
    create(stack, f"{namespace}.orders", pa.table({"id": [1, 2]}))
    table = lake.table(f"{namespace}.orders")
    assert table.check_schema([{"name": "id", "type": "string"}])["compatible"] is False
    table.evolve(add=[{"name": "note", "type": "string"}])
    versions = table.schema()["versions"]
    assert [[column["name"] for column in one["columns"]] for one in versions] == [["id"], ["id", "note"]]
    table.evolve_partitions(add=["bucket(4, id)"])
    assert [one["column"] for one in table.partitions()["spec"]] == ["id"]
    assert table.files("id > 5")["selected"]["files"] == 0
    exported = table.export(f"{stack.warehouse_root}/exports/{namespace}", where="id > 1")
    assert exported["rows"] == 1
    create(stack, f"{namespace}.copies", pa.table({"id": [7], "note": ["x"]}))
    copies = lake.table(f"{namespace}.copies")
    copies.append_files(*exported["files"])
    assert sorted(row["id"] for row in copies.rows()) == [2, 7]
    again = table.export(f"{stack.warehouse_root}/exports/{namespace}")
    copies.overwrite_files(*again["files"], where="id = 7")
    assert sorted(row["id"] for row in copies.rows()) == [1, 2, 2]


def test_a_transaction(stack: Stack, lake: Lake, namespace: str) -> None:
    storage = stack.s3.iceberg if stack.s3 else {}
    with lake.transaction() as tx:
        catalog = load_catalog("tx", **tx.catalog_properties(), **storage)
        catalog.create_table(f"{namespace}.orders", pa.schema([("id", pa.int64())])).append(
            pa.table({"id": [1]})
        )
        assert tx.query(f"SELECT id FROM {namespace}.orders").rows == [{"id": 1}]
        assert lake.tables(namespace) == []
        tx.extend(60)
    assert tx.number is not None
    assert lake.tables(namespace) == [f"{namespace}.orders"]


def test_a_transaction_that_fails_leaves_nothing(stack: Stack, lake: Lake, namespace: str) -> None:
    storage = stack.s3.iceberg if stack.s3 else {}
    table = f"{namespace}.orders"
    create(stack, table, pa.table({"id": [1]}))

    def drop_and_fail() -> None:
        with lake.transaction() as tx:
            load_catalog("tx", **tx.catalog_properties(), **storage).drop_table(table)
            raise KeyError("x")

    def append_beside_another() -> None:
        with lake.transaction(namespace) as tx:
            load_catalog("tx", **tx.catalog_properties(), **storage).load_table(table).append(
                pa.table({"id": [2]})
            )
            pyiceberg_client.catalog(stack).load_table(table).append(pa.table({"id": [3]}))

    with pytest.raises(KeyError):
        drop_and_fail()
    with pytest.raises(errors.Conflict, match=table):
        append_beside_another()
    assert lake.query(f"SELECT id FROM {table} ORDER BY id").rows == [{"id": 1}, {"id": 3}]
    with lake.transaction(namespace):  # the name is free again
        pass


def test_the_same_with_asyncio(stack: Stack, namespace: str) -> None:
    async def run() -> None:
        async with await calve.connect_async(stack.url) as lake:
            assert (await lake.query("SELECT 1 AS n")).rows == [{"n": 1}]
            assert (await lake.write(f"{namespace}.orders", [{"id": 1}])).accepted == 1
            assert await lake.tables(namespace) == []
            async with lake.transaction() as tx:
                assert tx.warehouse.startswith("main~")
            pieces = [piece async for piece in lake.stream("SELECT 1 AS n", format="ndjson")]
            assert b"".join(pieces).startswith(b'{"n":1}\n')

    asyncio.run(run())
