"""Partition specs from text."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.errors import Invalid
from catalog.metadata.invariants import violations
from catalog.metadata.tables import new_table
from ingest.staging.targets import create_table_body
from ingest.types.schema_plan import partition_spec

NAMES = {
    "id": "long",
    "name": "string",
    "at": "timestamp",
    "_commit_timestamp": "timestamptz",
    "day": "date",
    "x": "double",
    "at_day": "int",
    "days(x)": "string",
    "with space, and comma": "date",
    "s": {"type": "struct", "fields": [{"id": 50, "name": "t", "required": False, "type": "timestamp"}]},
    "tags": {"type": "list", "element-id": 60, "element": "string", "element-required": False},
}
SCHEMA: dict[str, Any] = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": place, "name": name, "required": False, "type": type_}
        for place, (name, type_) in enumerate(NAMES.items(), 1)
    ],
}


@pytest.mark.parametrize(
    ("text", "column", "transform", "name"),
    [
        ("days(_commit_timestamp)", "_commit_timestamp", "day", "_commit_timestamp_day"),
        ("day(_commit_timestamp)", "_commit_timestamp", "day", "_commit_timestamp_day"),
        ("bucket(16, id)", "id", "bucket[16]", "id_bucket"),
        ("BUCKET( 16,id )", "id", "bucket[16]", "id_bucket"),
        ("months(at)", "at", "month", "at_month"),
        ("years(day)", "day", "year", "day_year"),
        ("hours(at)", "at", "hour", "at_hour"),
        ("truncate(10, name)", "name", "truncate[10]", "name_trunc"),
        ("name", "name", "identity", "name"),
        ("identity(name)", "name", "identity", "name"),
        ("days(x)", "days(x)", "identity", "days(x)"),  # there is a column of this name
        ("days(at)", "at", "day", "at_day_2"),  # at_day is a column
        ("days(with space, and comma)", "with space, and comma", "day", "with space, and comma_day"),
    ],
)
def test_specs(text: str, column: str, transform: str, name: str) -> None:
    spec = partition_spec(SCHEMA, [text])
    id_ = list(NAMES).index(column) + 1
    assert spec["fields"] == [{"source-id": id_, "name": name, "transform": transform, "field-id": 1000}]


def test_a_nested_column() -> None:
    assert partition_spec(SCHEMA, ["hours(s.t)"])["fields"][0]["source-id"] == 50


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nope", "no such column"),
        ("days(nope)", 'no column "nope"'),
        ("weeks(at)", "no such transform"),
        ("bucket(id)", "write bucket"),
        ("days(5, at)", "write days"),
        ("days(name)", "Invalid source type"),
        ("hours(day)", "Invalid source type"),
        ("bucket(16, x)", "Invalid source type"),
        ("bucket(0, id)", "number must be"),
        ("tags", "non-primitive"),
        ("tags.element", "parent"),
        ("", "no such column"),
        ("days()", "no column"),
    ],
)
def test_what_cannot_be_is_said(text: str, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        partition_spec(SCHEMA, [text])


def test_the_catalog_takes_the_spec() -> None:
    spec = partition_spec(
        SCHEMA, ["days(_commit_timestamp)", "bucket(16, id)", "bucket(4, id)", "days(at)", "name"]
    )
    assert [field["name"] for field in spec["fields"]][1:3] == ["id_bucket", "id_bucket_2"]
    request = create_table_body("t", SCHEMA, spec, {"format-version": "2"})
    uuid = "11111111-2222-4333-8444-555555555555"
    metadata = new_table(request, location="file:///lake/t", table_uuid=uuid, now_ms=1)
    assert not violations(metadata)
    assert len(metadata["partition-specs"][0]["fields"]) == 5
