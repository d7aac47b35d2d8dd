"""Iceberg types: Arrow types, promotion, merging."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.errors import Invalid
from ingest.types.evolution import creatable, merged
from ingest.types.iceberg import arrow_type, promotes, shape

STRUCT = {"type": "struct", "fields": [{"id": 4, "name": "x", "required": True, "type": "double"}]}
LIST = {"type": "list", "element-id": 5, "element": "int", "element-required": False}
MAP = {"type": "map", "key-id": 6, "key": "string", "value-id": 7, "value": "long", "value-required": False}
TYPES = (
    *("boolean", "int", "long", "float", "double", "date", "timestamp", "timestamptz", "string", "uuid"),
    *("binary", "fixed[4]", "decimal(9,2)", "decimal(38,0)", "decimal(38,10)", "time"),
)


@pytest.mark.parametrize(
    ("type_", "arrow"),
    [
        ("boolean", pa.bool_()),
        ("int", pa.int32()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("date", pa.date32()),
        ("time", pa.time64("us")),
        ("timestamp", pa.timestamp("us")),
        ("timestamptz", pa.timestamp("us", tz="UTC")),
        ("timestamp_ns", pa.timestamp("ns")),
        ("string", pa.string()),
        ("uuid", pa.string()),
        ("binary", pa.binary()),
        ("fixed[7]", pa.binary(7)),
        ("decimal(10, 2)", pa.decimal128(10, 2)),
        (STRUCT, pa.struct([("x", pa.float64())])),
        (LIST, pa.list_(pa.field("element", pa.int32()))),
        (MAP, pa.map_(pa.string(), pa.int64())),
    ],
)
def test_arrow_types(type_: Any, arrow: pa.DataType) -> None:
    assert arrow_type(type_) == arrow


@pytest.mark.parametrize("type_", ["variant", "geometry", "nonsense", "decimal(39,0)"])
def test_types_that_cannot_be_staged(type_: str) -> None:
    with pytest.raises(Invalid):
        arrow_type(type_)


@pytest.mark.parametrize(
    "wrong",
    [
        "integer",
        None,
        5,
        [],
        {},
        {"type": "set"},
        {"type": "list"},
        {"type": "struct", "fields": [{"name": "a"}]},
        {"type": "struct", "fields": [{"name": "", "type": "int"}]},
        {"type": "struct", "fields": [{"name": "a", "type": "int"}] * 2},
        {"type": "struct", "fields": 3},
    ],
)
def test_what_is_no_type_is_said_to_be_none(wrong: Any) -> None:
    with pytest.raises(Invalid):
        shape(wrong)


def test_a_bottomless_type_is_refused() -> None:
    deep: Any = "int"
    for _ in range(2_000):
        deep = {"type": "list", "element": deep}
    with pytest.raises(Invalid):
        shape(deep)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int", "long"),
        ("float", "double"),
        ("decimal(9,2)", "decimal(12,2)"),
        ("decimal(9, 2)", "decimal(9,2)"),
        (LIST, {"type": "list", "element": "long"}),
        (MAP, {"type": "map", "key": "string", "value": "long"}),
        (STRUCT, {"type": "struct", "fields": [{"name": "x", "type": "double"}]}),
    ],
)
def test_the_promotions_of_the_spec(old: Any, new: Any) -> None:
    assert promotes(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("long", "int"),
        ("int", "double"),
        ("int", "string"),
        ("double", "float"),
        ("date", "timestamp"),  # since v3
        ("timestamp", "timestamptz"),
        ("decimal(9,2)", "decimal(9,3)"),
        ("decimal(9,2)", "decimal(8,2)"),
        ("decimal(9,2)", "decimal(12,3)"),
        ("fixed[4]", "fixed[5]"),
        ("string", "binary"),
        (LIST, "string"),
        (LIST, MAP),
        ({"type": "map", "key": "int", "value": "int"}, {"type": "map", "key": "long", "value": "int"}),
        (STRUCT, {"type": "struct", "fields": [{"name": "y", "type": "double"}]}),
        (STRUCT, {"type": "struct", "fields": []}),
    ],
)
def test_no_other_promotion(old: Any, new: Any) -> None:
    assert not promotes(old, new)


@pytest.mark.parametrize(
    ("a", "b", "both"),
    [
        ("int", "long", "long"),
        ("int", "float", "double"),
        ("long", "double", "double"),
        ("decimal(10,2)", "decimal(12,4)", "decimal(12,4)"),
        ("decimal(10,2)", "decimal(6,4)", "decimal(12,4)"),
        ("long", "decimal(10,2)", "decimal(21,2)"),
        ("int", "decimal(4,2)", "decimal(12,2)"),
        ("unknown", "date", "date"),
        ("decimal(38,0)", "decimal(38,10)", None),
        ("decimal(10,2)", "double", None),
        ("string", "long", None),
        ("boolean", "long", None),
        ("timestamp", "timestamptz", None),
        (LIST, "string", None),
    ],
)
def test_merging_for_a_new_column(a: Any, b: Any, both: Any) -> None:
    assert merged(a, b) == both
    assert merged(b, a) == both


@settings(deadline=None)
@given(st.sampled_from(TYPES), st.sampled_from(TYPES))
def test_merging_agrees_with_promotion_and_has_no_order(a: str, b: str) -> None:
    both = merged(a, b)
    assert merged(b, a) == both
    if promotes(a, b):
        assert both == shape(b)
    if both is not None:
        assert merged(both, a) == merged(both, b) == both  # what is merged holds its parts


@settings(deadline=None)
@given(st.sampled_from(TYPES), st.sampled_from(TYPES), st.sampled_from(TYPES))
def test_promotion_is_an_order(a: str, b: str, c: str) -> None:
    assert promotes(a, a)
    if promotes(a, b) and promotes(b, c):
        assert promotes(a, c)
    if promotes(a, b) and promotes(b, a):
        assert shape(a) == shape(b)


@pytest.mark.parametrize(
    ("declared", "column"),
    [
        ("time", "string"),
        ("timestamp_ns", "timestamp"),
        ("timestamptz_ns", "timestamptz"),
        ("variant", "string"),
        ("geometry(srid:4326)", "binary"),
        ("unknown", None),
        ("decimal(9, 2)", "decimal(9,2)"),
        ({"type": "struct", "fields": []}, "string"),
        ({"type": "list", "element": "time"}, {"type": "list", "element": "string"}),
        (LIST, {"type": "list", "element": "int"}),
    ],
)
def test_a_new_column_has_a_type_that_spark_reads(declared: Any, column: Any) -> None:
    assert creatable(declared) == column
