"""Schema and partitions of a table: versions, checks, evolution."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from tests.contract.query.tables.table_lake import TableLake, orders

COUNTED = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "status", StringType()),
    NestedField(3, "count", IntegerType(), doc="How many"),
    identifier_field_ids=[1],
)


def test_schema_versions_with_when_and_by_whom(lake: TableLake) -> None:
    table = lake.create("orders")
    created = lake.head()
    with table.update_schema() as update:
        update.add_column("note", StringType())
    evolved = lake.head()
    table.append(orders((1, "new")).append_column("note", [["x"]]))
    answer = lake.get("orders", "schema")
    first, second = answer["versions"]
    assert answer["current_schema_id"] == second["schema_id"] == 1
    assert (first["number"], second["number"]) == (created, evolved)
    assert (first["is_current"], second["is_current"]) == (False, True)
    assert first["principal"] == second["principal"] is not None
    assert [column["name"] for column in second["columns"]] == ["id", "status", "note"]
    assert second["identifier_columns"] == ["id"]
    then = lake.get("orders", "schema", as_of=created)
    assert (then["current_schema_id"], len(then["versions"])) == (0, 1)


def test_schema_check_returns_an_action_for_each_column(lake: TableLake) -> None:
    lake.create("counted", COUNTED)
    head = lake.head()
    texts = {"type": "list", "element-id": 9, "element": "string", "element-required": False}
    columns: list[dict[str, Any]] = [
        {"name": "id", "type": "long", "required": True},
        {"name": "count", "type": "long"},
        {"name": "note", "type": texts},
    ]
    answer = lake.post("counted", "schema", "check", columns=columns)
    assert answer["compatible"]
    assert {one["column"]: one["action"] for one in answer["columns"]} == {
        "id": "none",
        "count": "widen",
        "note": "add",
        "status": "keep",
    }
    columns = [
        {"name": "status", "type": "long"},
        {"name": "count", "type": "int", "doc": "Number"},
        {"name": "must", "type": "string", "required": True},
    ]
    answer = lake.post("counted", "schema", "check", columns=columns)
    assert not answer["compatible"]
    assert {one["column"]: one["action"] for one in answer["columns"]} == {
        "status": "refuse",
        "count": "comment",
        "must": "refuse",
        "id": "refuse",
    }
    reasons = {one["column"]: one["reason"] for one in answer["columns"]}
    assert "string -> long" in reasons["status"]
    assert "required" in reasons["must"]
    assert "lacks it" in reasons["id"]
    optional = lake.post("counted", "schema", "check", columns=[{"name": "id", "type": "long"}])
    assert optional["columns"][0]["action"] == "optional"
    assert lake.head() == head


def test_schema_evolves_in_one_commit(lake: TableLake) -> None:
    lake.create("counted", COUNTED)
    head = lake.head()
    body: dict[str, Any] = {
        "rename": {"status": "state"},
        "widen": {"count": "long"},
        "comment": {"count": "Number of pieces"},
        "add": [{"name": "note", "type": "string", "doc": "Free text", "first": True}],
        "reorder": [{"column": "count", "after": "id"}],
    }
    planned = lake.post("counted", "schema", "evolve", **body, dry_run=True)
    assert (planned["number"], lake.head()) == (None, head)
    done = lake.post("counted", "schema", "evolve", **body)
    assert done["changes"] == planned["changes"]
    assert (done["number"], lake.head()) == (head + 1, head + 1)
    fields = lake.table("counted").schema().fields
    assert [(field.name, str(field.field_type), field.doc) for field in fields] == [
        ("note", "string", "Free text"),
        ("id", "long", None),
        ("count", "long", "Number of pieces"),
        ("state", "string", None),
    ]
    lake.post("counted", "schema", "evolve", drop=["note"])
    assert [field.name for field in lake.table("counted").schema().fields] == ["id", "count", "state"]
    assert lake.post("counted", "schema", "evolve")["number"] is None


@pytest.mark.parametrize(
    "body",
    [
        {"widen": {"status": "long"}},
        {"widen": {"count": "short"}},
        {"drop": ["nothing"]},
        {"drop": ["id"]},
        {"rename": {"status": "id"}},
        {"add": [{"name": "status", "type": "string"}]},
        {"add": [{"name": "must", "type": "string", "required": True}]},
        {"add": [{"name": "x", "type": "no type"}]},
        {"reorder": [{"column": "id"}]},
        {"reorder": [{"column": "id", "after": "nothing"}]},
        {"unknown": 1},
    ],
)
def test_evolutions_that_are_refused(lake: TableLake, body: dict[str, Any]) -> None:
    lake.create("counted", COUNTED)
    head = lake.head()
    error = lake.refused("POST", "counted", "schema", "evolve", json={"comment": {"id": "x"}} | body)
    assert error["code"] == 400, error
    assert lake.head() == head


def test_partitions_with_rows_and_bytes(lake: TableLake) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "status"))
    table = lake.create("orders", partition_spec=spec)
    assert lake.get("orders", "partitions")["partitions"] == []
    table.append(orders((1, "new"), (2, "paid"), (3, "new")))
    first = lake.head()
    table.append(orders((4, "paid")))
    answer = lake.get("orders", "partitions")
    assert answer["spec"] == [{"name": "status", "column": "status", "transform": "identity"}]
    found = {row["partition"]["status"]: row for row in answer["partitions"]}
    assert {status: (row["rows"], row["files"]) for status, row in found.items()} == {
        "new": (2, 1),
        "paid": (2, 2),
    }
    assert all(row["bytes"] > 0 for row in found.values())
    then = lake.get("orders", "partitions", as_of=first)["partitions"]
    assert {row["partition"]["status"]: row["files"] for row in then} == {"new": 1, "paid": 1}


def test_partitions_evolve(lake: TableLake) -> None:
    lake.orders()
    head = lake.head()
    answer = lake.post("orders", "partitions", add=["bucket(16, id)", "status"])
    assert [(field["name"], field["transform"]) for field in answer["spec"]] == [
        ("id_bucket_16", "bucket[16]"),
        ("status", "identity"),
    ]
    assert answer["number"] == lake.head() == head + 1
    (spec,) = lake.post("orders", "partitions", drop=["status"], rename={"id_bucket_16": "b"})["spec"]
    assert spec == {"name": "b", "column": "id", "transform": "bucket[16]"}
    for add in ["bucket(id)", "sometimes(id)", "nothing", "days(id)", "days(3, id)"]:
        assert lake.refused("POST", "orders", "partitions", json={"add": [add]})["code"] == 400, add
    assert lake.refused("POST", "orders", "partitions", json={"drop": ["nothing"]})["code"] == 400
