"""The schema block: the type and the encoding of every kind of column."""

from __future__ import annotations

from typing import Any

import pytest

from ingest.formats import debezium
from ingest.formats.debezium_schema import block_of_envelope, block_of_row
from tests.unit.ingest.formats.recorded import parse, sample

(EVENT,) = sample("debezium", "with_schema")
(CHANGE,) = parse(debezium, [EVENT]).changes
TYPES: dict[str, tuple[Any, str | None]] = {
    "id": ("int", None),
    "small": ("int", None),
    "big": ("long", None),
    "ratio": ("float", None),
    "measure": ("double", None),
    "flag": ("boolean", None),
    "name": ("string", None),
    "blob": ("binary", "base64"),
    "born": ("date", "days"),
    "at_ms": ("time", "ms"),
    "at_us": ("time", "us"),
    "at_ns": ("time", "ns"),
    "seen_ms": ("timestamp", "ms"),
    "seen_us": ("timestamp", "us"),
    "seen_ns": ("timestamp", "ns"),
    "seen_tz": ("timestamptz", None),
    "clock_tz": ("string", None),
    "c_date": ("date", "days"),
    "c_time": ("time", "ms"),
    "c_timestamp": ("timestamp", "ms"),
    "iso_date": ("date", None),
    "lasted": ("long", None),
    "every": ("string", None),
    "year": ("int", None),
    "price": ("decimal(10,2)", "decimal-base64"),
    "any_price": ("decimal(38,4)", "decimal-base64"),
    "wide": ("string", "decimal-base64:5"),
    "free": ("string", "decimal-struct"),
    "doc": ("string", None),
    "ref": ("uuid", None),
    "mood": ("string", None),
    "mask": ("binary", "bits-base64"),
    "spot": ("binary", "base64"),
    "area": ("binary", "base64"),
    "tags": ({"type": "list", "element": "string", "element-required": False}, None),
    "days": ({"type": "list", "element": "date", "element-required": False}, "days"),
    "extra": ({"type": "map", "key": "string", "value": "string", "value-required": False}, None),
    "address": (
        {
            "type": "struct",
            "fields": [
                {"name": "city", "required": False, "type": "string"},
                {"name": "floor", "required": False, "type": "int"},
            ],
        },
        None,
    ),
    "period": ("string", "json"),
    "planned": ("timestamp", None),
}


def test_the_table_is_complete() -> None:
    assert CHANGE.declared is not None
    assert CHANGE.declared.columns.keys() == TYPES.keys()
    assert CHANGE.declared.required == {"id"}


@pytest.mark.parametrize("column", TYPES)
def test_types(column: str) -> None:
    assert CHANGE.declared is not None
    assert (CHANGE.declared.columns[column], CHANGE.declared.encodings.get(column)) == TYPES[column]


def test_unusual_values_are_brought_into_the_usual_form() -> None:
    assert CHANGE.after is not None
    assert CHANGE.after["spot"] == CHANGE.after["area"] == "AQEAAAAAAAAAAADwPwAAAAAAAABA"
    assert CHANGE.after["planned"] == "2024-02-29T12:34:56.789012"
    untouched = TYPES.keys() - {"spot", "area", "planned"}
    assert {name: CHANGE.after[name] for name in untouched} == {
        name: EVENT["payload"]["after"][name] for name in untouched
    }


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("StructuredDate", {"year": 24, "month": 2, "day": 9}, "0024-02-09"),
        ("StructuredTime", {"hour": 1, "minute": 2, "second": 3, "nanos": 4000}, "01:02:03.000004"),
        (
            "StructuredZonedTimestamp",
            {
                "year": 2024,
                "month": 2,
                "day": 29,
                "hour": 1,
                "minute": 2,
                "second": 3,
                "offsetSeconds": -12600,
            },
            "2024-02-29T01:02:03-03:30",
        ),
        ("StructuredDate", {"specialValue": "POSITIVE_INFINITY"}, None),
        ("StructuredDate", {"year": "x"}, {"year": "x"}),
        ("StructuredDate", "text", "text"),
        ("StructuredDate", None, None),
    ],
)
def test_calendar_parts(kind: str, value: Any, expected: Any) -> None:
    block = block_of_row(
        {"type": "struct", "fields": [{"type": "struct", "name": f"io.debezium.time.{kind}", "field": "v"}]}
    )
    assert block is not None
    assert block.reshaped({"v": value, "w": 1}) == {"v": expected, "w": 1}


def test_the_work_is_done_once_for_each_schema() -> None:
    again = parse(debezium, [EVENT]).changes[0]
    assert again.declared is CHANGE.declared


@pytest.mark.parametrize(
    "schema",
    [
        None,
        7,
        {},
        {"fields": 7},
        {"fields": [7, {"field": "after"}]},
        {"fields": [{"field": "after", "type": "struct", "fields": None}]},
    ],
)
def test_a_schema_without_rows(schema: object) -> None:
    assert block_of_envelope(schema) is None


@pytest.mark.parametrize(
    "column",
    [
        7,
        {"field": 7, "type": "int32"},
        {"field": "c"},
        {"field": "c", "type": "odd"},
        {"field": "c", "type": ["int32"]},
        {"field": "c", "type": "array", "items": None},
        {"field": "c", "type": "map", "keys": 7, "values": {"type": "int32"}},
        {"field": "c", "type": "struct", "fields": []},
        {"field": "c", "type": "struct", "fields": [{"field": "d", "type": "odd"}]},
    ],
)
def test_a_column_that_is_not_understood_is_left_to_its_values(column: object) -> None:
    block = block_of_row({"type": "struct", "fields": [{"field": "a", "type": "int64"}, column]})
    assert block is not None
    assert block.declared.columns == {"a": "long"}


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"scale": "0"}, ("decimal(38,0)", "decimal-base64")),
        ({"scale": "38", "connect.decimal.precision": "38"}, ("decimal(38,38)", "decimal-base64")),
        ({"scale": "9", "connect.decimal.precision": "5"}, ("string", "decimal-base64:9")),
        ({"scale": "-2", "connect.decimal.precision": "5"}, ("string", "decimal-base64:-2")),
        ({"scale": "x"}, ("binary", "base64")),
        (None, ("binary", "base64")),
    ],
)
def test_decimals(parameters: object, expected: tuple[str, str]) -> None:
    column = {"field": "c", "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal"}
    block = block_of_row({"type": "struct", "fields": [{**column, "parameters": parameters}]})
    assert block is not None
    assert (block.declared.columns["c"], block.declared.encodings["c"]) == expected


def test_maps_with_other_keys_and_nested_shapes_become_json() -> None:
    date = {"type": "int32", "name": "io.debezium.time.Date"}
    fields = [
        {"field": "by_number", "type": "map", "keys": {"type": "int32"}, "values": {"type": "string"}},
        {
            "field": "spots",
            "type": "array",
            "items": {"type": "struct", "name": "io.debezium.data.geometry.Point"},
        },
        {"field": "dates", "type": "map", "keys": {"type": "string"}, "values": date},
    ]
    block = block_of_row({"type": "struct", "fields": fields})
    assert block is not None
    assert block.declared.columns["by_number"] == "string"
    assert block.declared.columns["spots"]["element"] == "string"
    assert block.declared.encodings == {"by_number": "json", "spots": "json", "dates": "days"}
