"""Files of a table: what a predicate leaves, append and overwrite with Parquet files, export."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.contract.query.tables.table_lake import TableLake, orders


def written(lake: TableLake, name: str, table: pa.Table) -> str:
    """A Parquet file in the warehouse's storage that belongs to no table."""
    location = f"{lake.stack.warehouse_root}/files/{lake.namespace}/{name}.parquet"
    with lake.table("orders").io.new_output(location).create() as sink:
        pq.write_table(table, sink)
    return location


def test_files_that_a_predicate_leaves(lake: TableLake) -> None:
    first, _ = lake.orders()
    answer = lake.get("orders", "files", filter="id = 3")
    assert (answer["total"]["files"], answer["total"]["rows"]) == (2, 3)
    assert (answer["selected"]["files"], answer["selected"]["rows"]) == (1, 1)
    (file,) = answer["files"]
    assert file["path"].startswith(lake.stack.warehouse_root)
    assert (file["format"], file["rows"], file["bytes"]) == ("PARQUET", 1, answer["selected"]["bytes"])
    assert lake.get("orders", "files", filter="id > 99")["files"] == []
    assert lake.get("orders", "files", as_of=first)["total"]["files"] == 1
    assert lake.refused("GET", "orders", "files", params={"filter": "id ="})["code"] == 400


def test_append_files_maps_columns_by_name(lake: TableLake) -> None:
    lake.orders()
    head = lake.head()
    rows = orders((7, "a"), (8, "b"))
    file = written(lake, "more", rows.select(["status", "id"]))
    answer = lake.post("orders", "append-files", files=[file])
    assert (answer["files"], answer["rows"], answer["number"]) == (1, 2, head + 1)
    assert len(lake.rows("orders")) == 5
    assert lake.get("orders", "rows", "8")["row"] == {"id": 8, "status": "b"}
    error = lake.refused("POST", "orders", "append-files", json={"files": [file]})
    assert "already referenced" in error["message"]


def test_append_files_adds_all_or_none(lake: TableLake) -> None:
    lake.orders()
    lake.orders("other")
    good = written(lake, "good", orders((7, "a")))
    wrong = written(lake, "wrong", pa.table({"id": ["x"], "status": ["y"]}))
    extra = written(lake, "extra", orders((9, "a")).append_column("more", [["x"]]))
    foreign = lake.get("other", "files")["files"][0]["path"]
    root = lake.stack.warehouse_root
    head = lake.head()
    for bad, code in [
        (wrong, 400),
        (extra, 400),
        (foreign, 400),
        (f"{root}/nothing.parquet", 404),
        (f"{root}-other/file.parquet", 400),
        ("/etc/passwd", 400),
        ("https://example.com/file.parquet", 400),
        (good, 400),
    ]:
        error = lake.refused("POST", "orders", "append-files", json={"files": [good, bad]})
        assert error["code"] == code, (bad, error)
    metadata = lake.table("orders").metadata_location
    error = lake.refused("POST", "orders", "append-files", json={"files": [metadata]})
    assert "no Parquet file" in error["message"]
    assert lake.head() == head
    assert len(lake.rows("orders")) == 3


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ({}, [(7, "a")]),
        ({"where": "status = 'new'"}, [(2, "paid"), (7, "a")]),
        ({"where": "id > 99"}, [(1, "new"), (2, "paid"), (3, "new"), (7, "a")]),
    ],
)
def test_overwrite_files(lake: TableLake, body: dict[str, Any], left: list[Any]) -> None:
    lake.orders()
    head = lake.head()
    file = written(lake, "new", orders((7, "a")))
    answer = lake.post("orders", "overwrite-files", files=[file], **body)
    assert lake.rows("orders") == left
    assert answer["number"] == lake.head() == head + 1
    assert len(lake.get("orders", "rows", as_of=head)["rows"]) == 3


def test_overwrite_files_of_a_table_without_rows(lake: TableLake) -> None:
    lake.create("orders")
    lake.post("orders", "overwrite-files", files=[written(lake, "new", orders((7, "a")))])
    assert lake.rows("orders") == [(7, "a")]


def test_export_is_a_consistent_copy(lake: TableLake) -> None:
    first, _ = lake.orders()
    location = f"{lake.stack.warehouse_root}/exports/{lake.namespace}"
    answer = lake.post("orders", "export", location=location, as_of=first)
    assert (answer["rows"], answer["as_of"]["number"]) == (2, first)
    (file,) = answer["files"]
    assert file.startswith(f"{location}/")
    with lake.table("orders").io.new_input(file).open() as source:
        assert (
            sorted(pq.read_table(source).to_pylist(), key=str) == orders((1, "new"), (2, "paid")).to_pylist()
        )
    # The files of an export can be added to a table.
    lake.create("copy")
    lake.post("copy", "append-files", files=answer["files"])
    assert lake.rows("copy") == [(1, "new"), (2, "paid")]
    some = lake.post("orders", "export", location=location, where="id = 3", columns=["status"])
    with lake.table("orders").io.new_input(some["files"][0]).open() as source:
        assert pq.read_table(source).to_pylist() == [{"status": "new"}]


def test_exports_that_are_refused(lake: TableLake) -> None:
    lake.orders()
    root = lake.stack.warehouse_root
    own = lake.table("orders").location()
    for location, code in [(root, 400), (f"{root}-other", 400), (own, 409), (f"{own}/data", 409)]:
        error = lake.refused("POST", "orders", "export", json={"location": location})
        assert error["code"] == code, (location, error)
    body = {"location": f"{root}/exports", "columns": ["nothing"]}
    assert lake.refused("POST", "orders", "export", json=body)["code"] == 400


def test_export_of_a_table_without_rows_keeps_its_columns(lake: TableLake) -> None:
    lake.create("orders")
    (file,) = lake.post("orders", "export")["files"]
    assert file.startswith(f"{lake.stack.warehouse_root}/exports/")
    with lake.table("orders").io.new_input(file).open() as source:
        assert pq.read_table(source).schema.names == ["id", "status"]
