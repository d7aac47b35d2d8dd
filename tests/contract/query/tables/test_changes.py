"""History of a row, changes between moments, differences of tables and warehouses."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)

from tests.clients import pyiceberg_client
from tests.clients.duckdb_client import DuckLake
from tests.contract.query.tables.table_lake import TableLake, orders

CHANGES = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "status", StringType()),
    NestedField(3, "_operation", StringType()),
    NestedField(4, "_commit_timestamp", TimestamptzType()),
    NestedField(5, "_source_timestamp", TimestamptzType()),
    NestedField(6, "_source", StringType()),
    NestedField(7, "_position", StringType()),
    NestedField(8, "_transaction", StringType()),
    NestedField(9, "_event_id", StringType()),
    NestedField(10, "_before", StringType()),
)


def change(second: int, operation: str, id_: int | None, status: str | None, **more: Any) -> dict[str, Any]:
    at = datetime(2026, 11, 15, 12, 0, second, tzinfo=UTC)
    row = {"id": id_, "status": status, "_operation": operation, "_commit_timestamp": at}
    before = more.pop("before", None)
    row |= {"_position": f"{second:04d}", "_before": None if before is None else json.dumps(before)}
    return row | {f"_{name}": value for name, value in more.items()}


def published(table: Table, *rows: dict[str, Any]) -> None:
    table.append(pa.Table.from_pylist(list(rows), schema=table.schema().as_arrow()))


def with_changes(lake: TableLake) -> list[int]:
    """A mirror and its changes table; the numbers of two publishes."""
    lake.create("orders").append(orders((1, "paid"), (3, "new")))
    table = lake.create("orders__changes", CHANGES)
    published(
        table,
        change(2, "insert", 2, "new"),
        change(1, "insert", 1, "new", transaction="t1", event_id="e1", source="pg"),
    )
    first = lake.head()
    published(
        table,
        change(3, "update", 1, "paid", before={"id": 1, "status": "new"}),
        change(4, "delete", 2, None, before={"id": 2, "status": "new"}),
        change(5, "insert", 3, "new"),
    )
    return [first, lake.head()]


def test_history_of_a_row_has_every_version(lake: TableLake) -> None:
    with_changes(lake)
    answer = lake.get("orders", "history", key=1)
    assert answer["key"] == {"id": "1"}
    insert, update = answer["versions"]
    assert insert == {
        "operation": "insert",
        "before": None,
        "after": {"id": 1, "status": "new"},
        "commit_timestamp": "2026-11-15T12:00:01.000000Z",
        "source_timestamp": None,
        "source": "pg",
        "position": "0001",
        "transaction": "t1",
        "event_id": "e1",
    }
    assert (update["operation"], update["before"]["status"], update["after"]["status"]) == (
        "update",
        "new",
        "paid",
    )
    _, delete = lake.get("orders", "history", key="id=2")["versions"]
    assert (delete["operation"], delete["after"], delete["before"]) == (
        "delete",
        None,
        {"id": 2, "status": "new"},
    )
    assert lake.get("orders", "history", key=99)["versions"] == []
    first = lake.get("orders", "history", key=1, pageSize=1)
    second = lake.get("orders", "history", key=1, pageSize=1, pageToken=first["next-page-token"])
    assert first["versions"] + second["versions"] == answer["versions"]
    assert second["next-page-token"] is None


def test_history_shows_a_truncate_of_the_table(lake: TableLake) -> None:
    with_changes(lake)
    published(lake.table("orders__changes"), change(9, "truncate", None, None))
    versions = lake.get("orders", "history", key='{"id": 1}')["versions"]
    assert [version["operation"] for version in versions] == ["insert", "update", "truncate"]
    assert lake.get("orders", "history", key=99)["versions"] == []


def test_history_without_a_key_is_that_of_the_table(lake: TableLake) -> None:
    lake.orders()
    events = lake.get("orders", "history")["events"]
    assert [event["changes"][0]["operation"] for event in events] == [
        "update-table",
        "update-table",
        "create-table",
    ]


@pytest.mark.parametrize(
    ("key", "message"), [("x", "needs a long"), ("region=eu,id=1", "long"), ("id=", "needs a long")]
)
def test_keys_that_do_not_fit(lake: TableLake, key: str, message: str) -> None:
    with_changes(lake)
    error = lake.refused("GET", "orders", "history", params={"key": key})
    assert error["code"] == 400
    assert message in error["message"]


def test_tables_without_changes_say_so(lake: TableLake) -> None:
    lake.orders()
    for path in ("history", "changes"):
        error = lake.refused("GET", "orders", path, params={"key": 1})
        assert error["code"] == 409
        assert "orders__changes" in error["message"]
        assert lake.refused("GET", "missing", path, params={"key": 1})["code"] == 404


def test_changes_between_moments(lake: TableLake) -> None:
    first, second = with_changes(lake)
    whole = lake.get("orders", "changes")
    assert [(one["operation"], one["number"]) for one in whole["changes"]] == [
        ("insert", first),
        ("insert", first),
        ("update", second),
        ("delete", second),
        ("insert", second),
    ]
    assert [one["position"] for one in whole["changes"]] == ["0001", "0002", "0003", "0004", "0005"]
    assert lake.get("orders", "changes", **{"from": first})["changes"] == whole["changes"][2:]
    assert lake.get("orders", "changes", to=first)["changes"] == whole["changes"][:2]
    assert lake.get("orders", "changes", **{"from": second, "to": "now"})["changes"] == []
    snapshot = lake.table("orders").current_snapshot()
    assert snapshot is not None
    assert lake.get("orders", "changes", to=f"snapshot:{snapshot.snapshot_id}")["changes"] == []
    error = lake.refused("GET", "orders", "changes", params={"from": second, "to": first})
    assert "later than" in error["message"]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_changes_come_in_pages(lake: TableLake, size: int) -> None:
    with_changes(lake)
    whole = lake.get("orders", "changes")["changes"]
    found: list[Any] = []
    token: str | None = ""
    while token is not None:
        page = lake.get("orders", "changes", pageSize=size, pageToken=token)
        assert len(page["changes"]) <= size
        found += page["changes"]
        token = page["next-page-token"]
    assert found == whole


def test_diff_of_a_table_with_a_key(lake: TableLake) -> None:
    lake.create("orders").append(orders((1, "new"), (2, "paid"), (4, None)))
    before = lake.head()
    table = lake.table("orders")
    table.overwrite(orders((1, "paid"), (3, "new"), (4, "x"), (2, "paid")))
    answer = lake.get("orders", "diff", **{"from": before})
    rows = answer["rows"]
    assert (rows["added_count"], rows["removed_count"], rows["changed_count"]) == (1, 0, 2)
    assert rows["key"] == ["id"]
    assert rows["added"] == [{"id": 3, "status": "new"}]
    assert rows["changed"] == [
        {"key": {"id": 1}, "old": {"status": "new"}, "new": {"status": "paid"}},
        {"key": {"id": 4}, "old": {"status": None}, "new": {"status": "x"}},
    ]
    assert (answer["from"]["number"], answer["to"]["number"]) == (before, lake.head())
    assert answer["files"]["removed"] == 1
    # The other way round.
    back = lake.get("orders", "diff", **{"from": lake.head(), "to": before})["rows"]
    assert back["removed"] == rows["added"]
    # A moment and itself.
    same = lake.get("orders", "diff", **{"from": "now"})
    assert [same["rows"][name] for name in ("added_count", "removed_count", "changed_count")] == [0, 0, 0]
    cut = lake.get("orders", "diff", **{"from": before, "limit": 1})["rows"]
    assert (len(cut["changed"]), cut["changed_count"], cut["truncated"]) == (1, 2, True)


def test_diff_compares_every_type(lake: TableLake) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "price", DecimalType(20, 2)),
        NestedField(3, "rate", DoubleType()),
        NestedField(4, "tags", ListType(5, StringType(), element_required=False)),
        NestedField(6, "at", TimestamptzType()),
        identifier_field_ids=[1],
    )
    table = lake.create("typed", schema)
    at = datetime(2026, 11, 15, 1, 2, 3, 456789, tzinfo=UTC)
    row = {"price": Decimal("12345678901234567.89"), "rate": float("nan"), "tags": ["a", None], "at": at}
    rows = [{"id": id_, **row} for id_ in range(1, 6)]
    arrow = table.schema().as_arrow()
    table.append(pa.Table.from_pylist(rows, schema=arrow))
    before = lake.head()
    changes: list[dict[str, Any]] = [
        {},
        {"price": Decimal("12345678901234567.88")},
        {"rate": 1.5},
        {"tags": ["a"]},
        {"at": None},
    ]
    rows = [row | changed for row, changed in zip(rows, changes, strict=True)]
    lake.table("typed").overwrite(pa.Table.from_pylist(rows, schema=arrow))
    found = lake.get("typed", "diff", **{"from": before})["rows"]["changed"]
    assert [(one["old"], one["new"]) for one in found] == [
        ({"price": "12345678901234567.89"}, {"price": "12345678901234567.88"}),
        ({"rate": "NaN"}, {"rate": 1.5}),
        ({"tags": ["a", None]}, {"tags": ["a"]}),
        ({"at": "2026-11-15T01:02:03.456789Z"}, {"at": None}),
    ]


def test_diff_without_a_key_has_added_and_removed_rows(lake: TableLake) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "status", StringType()))
    lake.create("plain", schema).append(orders((1, "a"), (1, "a"), (2, "b")))
    before = lake.head()
    lake.table("plain").overwrite(orders((1, "a"), (2, "c")))
    rows = lake.get("plain", "diff", **{"from": before})["rows"]
    assert rows["key"] is None
    assert rows["added"] == [{"id": 2, "status": "c"}]
    assert sorted(row["id"] for row in rows["removed"]) == [1, 2]


def test_diff_shows_columns_that_changed(lake: TableLake) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "status", StringType()),
        NestedField(3, "count", IntegerType()),
        NestedField(4, "old", StringType()),
        identifier_field_ids=[1],
    )
    table = lake.create("evolved", schema)
    rows = [{"id": 1, "status": "new", "count": 7, "old": "x"}]
    table.append(pa.Table.from_pylist(rows, schema=schema.as_arrow()))
    before = lake.head()
    with table.update_schema() as update:
        update.rename_column("status", "state")
        update.update_column("count", LongType())
        update.delete_column("old")
        update.add_column("note", StringType())
    rows = [{"id": 2, "state": "new", "count": 8, "note": "y"}]
    table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
    answer = lake.get("evolved", "diff", **{"from": before})
    assert answer["schema"] == [
        {"column": "state", "change": "renamed", "old": "status", "new": "state"},
        {"column": "count", "change": "type", "old": "int", "new": "long"},
        {"column": "note", "change": "added", "old": None, "new": "string"},
        {"column": "old", "change": "dropped", "old": "string", "new": None},
    ]
    assert answer["rows"]["added"] == [{"id": 2, "state": "new", "count": 8, "note": "y"}]
    assert answer["rows"]["changed"] == []
    back = lake.get("evolved", "diff", **{"from": "now", "to": before})
    assert back["rows"]["removed"] == [{"id": 2, "state": "new", "count": 8, "note": "y"}]


@pytest.mark.parametrize("version", ["2", "3"])
def test_diff_of_rows_that_an_engine_deleted_in_place(lake: TableLake, version: str) -> None:
    """Position deletes and deletion vectors: the data files stay, and their delete files change."""
    lake.create("orders", properties={"format-version": version})
    with DuckLake(lake.stack) as engine:
        name = f"lake.{lake.namespace}.orders"
        for start, status in ((0, "new"), (1000, "old")):
            engine.sql(f"INSERT INTO {name} SELECT range, '{status}' FROM range({start}, {start + 1000})")
        numbers = [lake.head()]
        for statement in (
            f"DELETE FROM {name} WHERE id % 100 = 7",
            f"UPDATE {name} SET status = 'paid' WHERE id % 100 IN (8, 9)",
            f"DELETE FROM {name} WHERE id = 8",
        ):
            engine.sql(statement)
            numbers.append(lake.head())
    begin, deleted, updated, end = numbers
    assert _counts(lake, begin, deleted) == (0, 20, 0)
    assert _counts(lake, begin, updated) == (0, 20, 40)
    assert _counts(lake, begin, end) == (0, 21, 39)
    assert _counts(lake, updated, end) == (0, 1, 0)
    assert _counts(lake, end, begin) == (21, 0, 39)
    changed = lake.get("orders", "diff", **{"from": deleted, "to": updated})["rows"]["changed"]
    assert changed[0] == {"key": {"id": 8}, "old": {"status": "new"}, "new": {"status": "paid"}}


def _counts(lake: TableLake, start: int, end: int) -> tuple[int, int, int]:
    rows = lake.get("orders", "diff", **{"from": start, "to": end, "limit": 3})["rows"]
    return rows["added_count"], rows["removed_count"], rows["changed_count"]


@pytest.mark.parametrize("stack", ["embedded"], indirect=True)
def test_diff_of_many_rows(lake: TableLake) -> None:
    """All files are others, as after a compaction, and one row differs."""
    count = 2_100_000
    ids = pa.array(range(count), pa.int64())
    schema = lake.create("many").schema().as_arrow()
    status = pa.array(["new"] * count)
    lake.table("many").append(pa.table([ids, status], schema=schema))
    before, memory_kb = lake.head(), _peak_kb(lake.stack.server.pid)
    changed = pa.concat_arrays([status.slice(1), pa.array(["paid"])])
    lake.table("many").overwrite(pa.table([ids, changed], schema=schema))
    rows = lake.get("many", "diff", **{"from": before})["rows"]
    assert (rows["added_count"], rows["removed_count"], rows["changed_count"]) == (0, 0, 1)
    assert rows["changed"][0]["key"] == {"id": count - 1}
    assert _peak_kb(lake.stack.server.pid) - memory_kb < 900 * 1024


def _peak_kb(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")[2].split()[0])


def test_diff_of_moments_before_the_table(lake: TableLake) -> None:
    before = lake.head()
    lake.orders()
    error = lake.refused("GET", "orders", "diff", params={"from": before})
    assert (error["code"], "did not exist then" in error["message"]) == (404, True)
    catalog = pyiceberg_client.catalog(lake.stack)
    then = lake.head()
    catalog.drop_table((lake.namespace, "orders"))
    lake.orders()
    error = lake.refused("GET", "orders", "diff", params={"from": then})
    assert (error["code"], "dropped and made again" in error["message"]) == (409, True)


def test_diff_of_a_warehouse(lake: TableLake) -> None:
    lake.orders("changed")
    lake.orders("dropped")
    lake.orders("renamed")
    lake.orders("same")
    before = lake.head()
    catalog = pyiceberg_client.catalog(lake.stack)
    lake.table("changed").append(orders((5, "new")))
    with lake.table("changed").update_schema() as update:
        update.add_column("note", StringType())
    catalog.drop_table((lake.namespace, "dropped"))
    catalog.rename_table((lake.namespace, "renamed"), (lake.namespace, "with another name"))
    lake.create("created")
    lake.create("gone")
    catalog.drop_table((lake.namespace, "gone"))
    params = {"from": before, "to": lake.head()}
    answer = lake.send("GET", "/lake/v1/main/diff", params=params).json()
    entries = {one["name"]: one for one in answer["entries"] if one["namespace"] == [lake.namespace]}
    assert {name: one["change"] for name, one in entries.items()} == {
        "changed": "changed",
        "created": "created",
        "dropped": "dropped",
        "with another name": "renamed",
    }
    changed = entries["changed"]
    assert (changed["commits"], changed["snapshots_added"], changed["schema_changed"]) == (2, 1, True)
    assert entries["with another name"]["renamed_from"] == [lake.namespace, "renamed"]
    assert answer["commits"] == params["to"] - before
    found: list[Any] = []
    token: str | None = ""
    while token is not None:
        path = "/lake/v1/main/diff"
        page = lake.send("GET", path, params=params | {"pageSize": 1, "pageToken": token}).json()
        found += page["entries"]
        token = page["next-page-token"]
    assert found == answer["entries"]
