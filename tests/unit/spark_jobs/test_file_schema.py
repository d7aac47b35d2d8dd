"""Which tables the driver writes files of, and how."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from spark_jobs.file_schema import FIELD_ID, file_schema

STAMP = "_commit_timestamp"
DAY_US = 86_400_000_000


def _metadata(*types: Any, **others: Any) -> dict[str, Any]:
    fields = [
        {"id": number, "name": f"c{number}", "type": type_, "required": number == 1}
        for number, type_ in enumerate(types, start=1)
    ]
    fields.append({"id": 99, "name": STAMP, "type": "timestamptz", "required": False})
    return {
        "format-version": 2,
        "schemas": [{"schema-id": 0, "fields": [], "type": "struct"}, {"schema-id": 3, "fields": fields}],
        "current-schema-id": 3,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "default-spec-id": 0,
        **others,
    }


def _specs(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"partition-specs": [{"spec-id": 0, "fields": list(fields)}]}


def _part(transform: str, source: int = 99, name: str = "day") -> dict[str, Any]:
    return {"field-id": 1000, "name": name, "source-id": source, "transform": transform}


def test_columns_have_the_ids_of_the_fields() -> None:
    found = file_schema(_metadata("long", "decimal(10, 2)", "decimal(9,0)", "timestamp"), STAMP)
    assert found is not None
    assert found.columns.types == [
        pa.int64(),
        pa.decimal128(10, 2),
        pa.decimal128(9, 0),
        pa.timestamp("us"),
        pa.timestamp("us", tz="UTC"),
    ]
    assert [field.metadata[FIELD_ID] for field in found.columns] == [b"1", b"2", b"3", b"4", b"99"]
    assert [field.nullable for field in found.columns] == [False, True, True, True, True]
    assert found.partition_path(0) == ""


@pytest.mark.parametrize(
    "metadata",
    [
        _metadata("uuid"),
        _metadata("fixed[4]"),
        _metadata("time"),
        _metadata({"type": "list", "element-id": 5, "element": "long", "element-required": False}),
        _metadata("long", **{"format-version": 3}),
        _metadata("long", **{"default-sort-order-id": 1}),
        _metadata("long", **_specs(_part("identity", 1))),
        _metadata("long", **_specs(_part("day", 1))),
        _metadata("long", **_specs(_part("month"))),
        _metadata("long", **_specs(_part("day", name="a/b=c"))),
        _metadata("long", **_specs(_part("day"), _part("bucket[4]", 1, "b"))),
    ],
)
def test_what_is_left_to_spark(metadata: dict[str, Any]) -> None:
    assert file_schema(metadata, STAMP) is None


def test_rows_by_the_day_of_their_commit() -> None:
    found = file_schema(_metadata("long", **_specs(_part("day"))), STAMP)
    assert found is not None
    assert found.partition_path(20_000 * DAY_US + DAY_US - 1) == "day=2024-10-04"
    assert found.partition_path(-1) == "day=1969-12-31"


def test_rows_are_fitted_or_left_to_spark() -> None:
    found = file_schema(_metadata("int", "string"), STAMP)
    assert found is not None
    fitted = found.fitted(pa.table({"c1": pa.array([1, 2], pa.int64())}))
    assert fitted is not None
    assert fitted.schema.equals(found.columns, check_metadata=True)
    assert fitted.to_pydict() == {"c1": [1, 2], "c2": [None, None], STAMP: [None, None]}
    assert found.fitted(pa.table({"c1": pa.array([2**40], pa.int64())})) is None, "too large"
    assert found.fitted(pa.table({"c1": pa.array([None], pa.int32())})) is None, "required"
    assert found.fitted(pa.table({"c1": [1], "unknown": [1]})) is None
    assert found.fitted(pa.table({"c1": [pa.scalar({"a": 1})]})) is None
