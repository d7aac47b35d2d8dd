"""Columns of values: the quick way and the slow way say the same, and files keep it."""

from __future__ import annotations

import io
import string
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ingest.types.arrays import _one_by_one, _quick, column_array

LIST = {"type": "list", "element": "long"}
STRUCT = {"type": "struct", "fields": [{"name": "a", "type": "date"}, {"name": "b", "type": "string"}]}
MAP = {"type": "map", "key": "string", "value": "double"}


def reread(array: pa.Array) -> pa.Array:
    file = io.BytesIO()
    pq.write_table(pa.table([array], names=["c"]), file)
    return pq.read_table(io.BytesIO(file.getvalue()))["c"].combine_chunks()


def is_quick(values: list[Any], type_: str, encoding: str | None = None) -> bool:
    kinds = {type(value) for value in values if value is not None}
    return _quick(values, kinds, type_, encoding) is not None


@pytest.mark.parametrize(
    ("type_", "encoding", "values"),
    [
        ("long", None, [1, None, 3]),
        ("long", None, ["1", None, "-3"]),
        ("int", None, [1, None, 3]),
        ("double", None, [1.5, None, 3]),
        ("double", None, ["1.5", "1e3"]),
        ("float", None, [1.5, None]),
        ("boolean", None, [True, None, False]),
        ("string", None, ["a", None, "b"]),
        ("string", "json", ["{}", None]),
        ("uuid", None, ["123e4567-e89b-12d3-a456-42661417400A", None]),
        ("binary", None, ["MDk=", None]),
        ("decimal(10,2)", None, ["1.50", None]),
        ("decimal(10,2)", None, [1, None]),
        ("decimal(10,2)", None, [1.5, 2]),
        ("decimal(10,2)", "decimal-base64:2", ["MDk=", None, "z8c="]),
        ("date", None, ["2024-02-29", None]),
        ("date", "days", [19782, None, -1]),
        ("timestamp", None, ["2024-02-29 12:00:00", None]),
        ("timestamp", None, ["2024-02-29T12:00:00Z", None]),
        ("timestamptz", None, ["2024-02-29T12:00:00+01:00", None]),
        ("timestamptz", None, ["2024-02-29T12:00:00", None]),
        ("timestamp", "ms", [1, -1]),
        ("timestamptz", "us", [1, -1]),
        ("timestamp", "ns", [1999, 1]),
    ],
)
def test_usual_columns_go_the_quick_way(type_: str, encoding: str | None, values: list[Any]) -> None:
    assert is_quick(values, type_, encoding)
    quick, unfit = column_array(values, type_, encoding)
    slow, none = _one_by_one(values, type_, encoding, "")
    assert quick.equals(slow)
    assert quick.type == slow.type
    assert unfit == none == {}


def test_what_does_not_fit_is_null_and_named() -> None:
    array, unfit = column_array([1, "two", None, "3", 4.5], "long", name="n")
    assert array.to_pylist() == [1, None, None, 3, None]
    assert unfit == {
        1: "column \"n\": 'two' does not fit long: not a number",
        4: 'column "n": 4.5 does not fit long: not a whole number',
    }


@pytest.mark.parametrize("type_", ["long", "string", "decimal(9,2)", "timestamptz", LIST, STRUCT, MAP])
def test_columns_without_a_value(type_: Any) -> None:
    for values in ([], [None, None]):
        array, unfit = column_array(values, type_)
        assert (len(array), array.null_count, unfit) == (len(values), len(values), {})


@pytest.mark.parametrize(
    ("type_", "values", "found"),
    [
        (LIST, [[1, None], [], None], [[1, None], [], None]),
        (STRUCT, [{"a": 0}, None], [{"a": 0, "b": None}, None]),
        (MAP, [{"x": 1}, None], [[("x", 1.0)], None]),
    ],
)
def test_nested_columns_survive_a_file(type_: Any, values: list[Any], found: list[Any]) -> None:
    array, unfit = column_array(values, type_)
    assert not unfit
    assert reread(array).to_pylist() == array.to_pylist()
    if type_ != STRUCT:
        assert array.to_pylist() == found


def test_an_array_is_a_single_piece() -> None:
    array, _ = column_array(["x" * 1000] * 1000, "string")
    assert isinstance(array, pa.Array)


NUMBER_TEXTS = st.one_of(
    st.integers(-(10**20), 10**20).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.text("0123456789.eE+-xX _", max_size=8),
)
DATES = st.dates().map(str) | st.just("0000-00-00") | st.text("0123456789-", max_size=10)
INSTANTS = st.builds(
    lambda day, rest, zone: f"{day}{rest}{zone}",
    st.dates().map(str),
    st.sampled_from(
        ["", "T12", " 12:34", "T12:34:56", "T123456", " 12:34:56.1", "T12:34:56.123456789", "T24:00:00"]
    ),
    st.sampled_from(["", "Z", "+02:00", "-0330", "+05", "+19:59", "+24:00", " UTC", "+01:75"]),
)
BASE64 = st.text(string.ascii_letters + string.digits + "+/-_=", max_size=12)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "whole": st.integers(-(2**66), 2**66),
    "small": st.integers(-1000, 1000),
    "float": FLOATS,
    "number": FLOATS | st.integers(-1000, 1000),
    "number text": NUMBER_TEXTS,
    "text": st.text(max_size=5),
    "date": DATES,
    "instant": INSTANTS,
    "base64": BASE64,
    "boolean": st.booleans(),
    "uuid": st.uuids().map(str) | st.uuids().map(lambda u: u.hex.upper()),
}
TYPES = (
    *("boolean", "int", "long", "float", "double", "string", "uuid", "binary", "date", "time", "timestamp"),
    *("timestamptz", "decimal(10,2)", "decimal(38,0)", "decimal(20,10)", "decimal(38,30)"),
)
ENCODINGS = (
    *(None, "days", "ms", "us", "ns", "base64", "hex", "json", "bits-base64", "decimal-base64"),
    *("decimal-base64:2", "decimal-struct", "time-us"),
)
COLUMNS = st.sampled_from(sorted(KINDS)).flatmap(lambda kind: st.lists(st.none() | KINDS[kind], max_size=5))


def in_bits(array: pa.Array) -> list[Any]:
    """The values in a form in which -0.0 and 0.0 differ, and years beyond 9999 can be shown."""
    numbers: Callable[[pa.DataType], pa.Array] = array.cast
    if pa.types.is_date(array.type):
        array = numbers(pa.int32())
    elif pa.types.is_timestamp(array.type) or pa.types.is_time(array.type):
        array = numbers(pa.int64())
    return [repr(value) for value in array.to_pylist()]


@settings(deadline=None)
@given(COLUMNS, st.sampled_from(TYPES), st.sampled_from(ENCODINGS))
@example(["", "AQ=="], "decimal(10,2)", "decimal-base64")
@example(["0x10"], "long", None)
@example([6.683321680367403e16], "decimal(38,30)", None)
@example(["66833216803674030"], "decimal(38,30)", None)
@example([2**53 + 1, 0.5], "double", None)
@example([1e300], "float", None)
@example([-1], "timestamp", "ns")
@example([2**63 - 1], "timestamp", "us")
@example([2**31 - 1], "date", "days")
def test_both_ways_say_the_same(values: list[Any], type_: str, encoding: str | None) -> None:
    array, unfit = column_array(values, type_, encoding)
    slow, reasons = _one_by_one(values, type_, encoding, "")
    assert in_bits(array) == in_bits(slow)
    assert unfit == reasons
    array.validate(full=True)


@settings(deadline=None)
@given(COLUMNS, st.sampled_from(TYPES), st.sampled_from(ENCODINGS))
def test_every_column_survives_a_file(values: list[Any], type_: str, encoding: str | None) -> None:
    array, unfit = column_array(values, type_, encoding)
    again = reread(array)
    assert again.type == array.type
    assert in_bits(again) == in_bits(array)
    assert all(array[row].as_py() is None for row in unfit)
