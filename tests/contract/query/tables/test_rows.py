"""Rows without SQL: by key, by predicate, by date, as of a moment."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

import calve
from catalog.moments import AtTime
from tests.contract.query.tables.table_lake import TableLake, orders
from tests.harness.stacks import Stack

DAYS = Schema(
    NestedField(1, "region", StringType(), required=True),
    NestedField(2, "id", LongType(), required=True),
    NestedField(3, "at", TimestamptzType()),
    NestedField(4, "day", DateType()),
    identifier_field_ids=[1, 2],
)
BY_DAY = PartitionSpec(PartitionField(4, 1000, IdentityTransform(), "day"))


def by_day(lake: TableLake) -> None:
    """Four rows a day for ten days from 2026-11-01, one file a day."""
    table = lake.create("days", DAYS, partition_spec=BY_DAY)
    start = datetime(2026, 11, 1, tzinfo=UTC)
    rows = []
    for number in range(40):
        at = start + timedelta(hours=6 * number)
        rows.append({"region": "eu", "id": number, "at": at, "day": at.date()})
    table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))


def ids(answer: dict[str, Any]) -> list[int]:
    return sorted(row["id"] for row in answer["rows"])


def test_rows_of_a_predicate(lake: TableLake) -> None:
    lake.orders()
    answer = lake.get("orders", "rows")
    assert ids(answer) == [1, 2, 3]
    assert answer["columns"] == [{"name": "id", "type": "long"}, {"name": "status", "type": "string"}]
    assert (answer["truncated"], answer["files"]) == (False, 2)
    assert ids(lake.get("orders", "rows", where="status = 'new' and id > 1")) == [3]
    assert lake.get("orders", "rows", where="id = 2", columns="status")["rows"] == [{"status": "paid"}]
    cut = lake.get("orders", "rows", limit=2)
    assert (len(cut["rows"]), cut["truncated"]) == (2, True)


@pytest.mark.parametrize("limit", [1, 3, 4, 7])
def test_rows_come_in_pages_of_one_snapshot(lake: TableLake, limit: int) -> None:
    by_day(lake)
    params: dict[str, Any] = {"where": "id >= 5 and id < 25", "limit": limit}
    page = lake.get("days", "rows", **params)
    found = page["rows"]
    lake.table("days").delete("id < 20")
    while page["truncated"]:
        page = lake.get("days", "rows", **params, pageToken=page["next-page-token"])
        found += page["rows"]
        assert len(page["rows"]) <= limit
    assert page["next-page-token"] is None
    assert [row["id"] for row in sorted(found, key=lambda row: row["id"])] == list(range(5, 25))


def test_rows_as_of_a_moment(lake: TableLake) -> None:
    before = lake.head()
    first, second = lake.orders()
    assert ids(lake.get("orders", "rows", as_of=first)) == [1, 2]
    assert ids(lake.get("orders", "rows", as_of=second)) == [1, 2, 3]
    snapshot = lake.table("orders").snapshots()[0].snapshot_id
    assert ids(lake.get("orders", "rows", as_of=f"snapshot:{snapshot}")) == [1, 2]
    error = lake.refused("GET", "orders", "rows", params={"as_of": before})
    assert "did not exist then" in error["message"]


def test_rows_requested_before_the_table_was_created(lake: TableLake) -> None:
    lake.orders()
    made = lake.get("orders", "history")["events"][-1]
    with calve.connect(lake.stack.url) as client:
        table = client.table(f"{lake.namespace}.orders")
        for moment in ("yesterday", "an hour ago", datetime.now(UTC) - timedelta(days=400)):
            with pytest.raises(calve.errors.NotFound) as refused:
                table.rows(as_of=moment)
            message = refused.value.message
            assert "did not exist then" in message
            assert f"it exists from {AtTime(made['time-ms'])} (number {made['number']})" in message, message
    error = lake.refused("GET", "orders", "rows", params={"as_of": "yesterday"})
    assert "it exists from" in error["message"]


def test_rows_of_dates_are_pruned(lake: TableLake) -> None:
    by_day(lake)
    answer = lake.get("days", "rows", from_date="2026-11-03", to_date="2026-11-04")
    assert ids(answer) == list(range(8, 16))
    assert answer["files"] == 2
    at = {"date_column": "at", "from_date": "2026-11-03T06:00:00Z", "to_date": "2026-11-03T12:00:00Z"}
    exact = lake.get("days", "rows", **at)
    assert (ids(exact), exact["files"]) == ([9, 10], 1)
    with_offset = lake.get("days", "rows", date_column="at", from_date="2026-11-10T19:00:00+01:00")
    assert ids(with_offset) == [39]
    whole_day = lake.get("days", "rows", date_column="at", from_date="2026-11-09", to_date="2026-11-09")
    assert ids(whole_day) == [32, 33, 34, 35]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"where": "status ="}, "where: cannot be read"),
        ({"where": "nothing = 1"}, "nothing"),
        ({"where": "(" * 4000}, "where: cannot be read"),
        ({"where": "id = 'x'"}, "where"),
        ({"where": "x" * 10_001}, "longer than"),
        ({"columns": "id,nothing"}, "there is no column nothing"),
        ({"from_date": "2026-11-01"}, "date_column"),
        ({"from_date": "2026-11-01", "date_column": "id"}, "date_column"),
        ({"limit": 0}, "limit"),
        ({"limit": 10_001}, "limit"),
    ],
)
def test_rows_that_are_refused(lake: TableLake, params: dict[str, Any], message: str) -> None:
    lake.orders()
    error = lake.refused("GET", "orders", "rows", params=params)
    assert error["code"] == 400
    assert message in error["message"]


@pytest.mark.parametrize("text", ["soon", "2026-13-01", "2026-11-01T25:00:00Z"])
def test_dates_that_are_refused(lake: TableLake, text: str) -> None:
    by_day(lake)
    error = lake.refused("GET", "days", "rows", params={"to_date": text})
    assert "to_date: write a date" in error["message"]


def test_a_row_by_its_key(lake: TableLake) -> None:
    first, _ = lake.orders()
    answer = lake.get("orders", "rows", "2")
    assert answer["row"] == {"id": 2, "status": "paid"}
    assert lake.get("orders", "rows", "3", columns="status")["row"] == {"status": "new"}
    assert lake.get("orders", "rows", "3", as_of=first)["row"] is None
    assert lake.refused("GET", "orders", "rows", "x")["code"] == 400


def test_a_row_by_a_key_of_two_columns(lake: TableLake) -> None:
    by_day(lake)
    assert lake.get("days", "rows", "region=eu,id=7")["row"]["id"] == 7
    assert lake.get("days", "rows", '{"region": "eu", "id": 7}')["row"]["id"] == 7
    assert lake.get("days", "rows", "region=us,id=7")["row"] is None
    error = lake.refused("GET", "days", "rows", "7")
    assert "write it as region=VALUE,id=VALUE" in error["message"]


def test_a_key_with_a_slash(lake: TableLake) -> None:
    schema = Schema(NestedField(1, "path", StringType(), required=True), identifier_field_ids=[1])
    table = lake.create("paths", schema)
    table.append(pa.Table.from_pylist([{"path": "a/b=c,d é"}], schema=table.schema().as_arrow()))
    assert lake.get("paths", "rows", "a/b=c,d é")["row"] == {"path": "a/b=c,d é"}


def test_a_table_without_a_key(lake: TableLake) -> None:
    lake.create("plain", Schema(NestedField(1, "id", LongType())))
    error = lake.refused("GET", "plain", "rows", "1")
    assert "has no key" in error["message"]


def test_values_are_exact(lake: TableLake) -> None:
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "price", DecimalType(38, 10)),
        NestedField(3, "at", TimestamptzType()),
        NestedField(4, "local", TimestampType()),
        NestedField(5, "day", DateType()),
        NestedField(6, "rate", DoubleType()),
        NestedField(7, "data", BinaryType()),
        NestedField(8, "tags", ListType(9, StringType(), element_required=False)),
        NestedField(10, "map", MapType(11, StringType(), 12, LongType(), value_required=False)),
        NestedField(13, "inner", StructType(NestedField(14, "x", LongType()))),
    )
    table = lake.create("exact", schema)
    row = {
        "id": 2**63 - 1,
        "price": Decimal("1234567890123456789012345678.0123456789"),
        "at": datetime(2026, 11, 15, 23, 59, 59, 999_999, tzinfo=UTC),
        "local": datetime(1900, 1, 1, 0, 0, 0, 1),  # noqa: DTZ001 - a timestamp without a zone
        "day": date(2026, 11, 15),
        "rate": float("inf"),
        "data": b"\x00\xff",
        "tags": ["a", None],
        "map": [("k", 1)],
        "inner": {"x": None},
    }
    nothing = dict.fromkeys(row)
    table.append(pa.Table.from_pylist([row, nothing], schema=table.schema().as_arrow()))
    found = sorted(lake.get("exact", "rows")["rows"], key=lambda row: row["id"] is None)
    assert found == [
        {
            "id": 2**63 - 1,
            "price": "1234567890123456789012345678.0123456789",
            "at": "2026-11-15T23:59:59.999999Z",
            "local": "1900-01-01T00:00:00.000001",
            "day": "2026-11-15",
            "rate": "Infinity",
            "data": "AP8=",
            "tags": ["a", None],
            "map": [{"key": "k", "value": 1}],
            "inner": {"x": None},
        },
        nothing,
    ]


@pytest.mark.parametrize("stack", ["embedded"], indirect=True)
def test_files_outside_the_warehouse_are_never_read(lake: TableLake, stack: Stack, tmp_path: Path) -> None:
    """A writer commits a manifest that names a file of somebody else: its rows stay there."""
    pq.write_table(orders((1, "secret")), tmp_path / "secret.parquet")
    lake.create("stolen").add_files([f"file://{tmp_path}/secret.parquet"])
    error = lake.refused("GET", "stolen", "rows")
    assert "outside the warehouse" in error["message"]
    link = Path(stack.warehouse_root.removeprefix("file://")) / "link.parquet"
    link.symlink_to(tmp_path / "secret.parquet")
    lake.create("linked").add_files([f"file://{link}"])
    error = lake.refused("GET", "linked", "rows")
    assert (error["code"], "symbolic link" in error["message"]) == (403, True)
