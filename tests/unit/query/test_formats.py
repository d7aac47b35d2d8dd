"""Every format gives back the values that went in, whatever their type."""

from __future__ import annotations

import base64
import csv
import io
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import orjson
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings

from query import formats, media_types

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "boolean": (pa.bool_(), st.booleans()),
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "unsigned": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "double": (pa.float64(), st.floats(allow_nan=False)),
    "float": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "decimal": (pa.decimal128(38, 10), st.decimals(-(10**27), 10**27, places=10)),
    "string": (pa.string(), TEXT),
    "binary": (pa.binary(), st.binary(max_size=20)),
    "date": (pa.date32(), st.dates()),
    "time": (pa.time64("us"), st.times()),
    "timestamp": (pa.timestamp("us"), st.datetimes()),
    "timestamptz": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    "list": (pa.list_(pa.int64()), st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=4)),
    "struct": (
        pa.struct([("a", pa.string()), ("b", pa.list_(pa.decimal128(9, 2)))]),
        st.fixed_dictionaries(
            {"a": st.none() | TEXT, "b": st.none() | st.lists(st.decimals(-1000, 1000, places=2), max_size=3)}
        ),
    ),
    "map": (
        pa.map_(pa.string(), pa.timestamp("us", "UTC")),
        st.lists(st.tuples(TEXT, st.none() | st.datetimes(timezones=st.just(UTC))), max_size=3),
    ),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    names = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4, unique=True))
    size = draw(st.integers(0, 5))
    columns = {}
    for name in names:
        type_, values = VALUES[name]
        column = draw(st.lists(st.none() | values, min_size=size, max_size=size))
        columns[name] = pa.array(column, type_)
    return pa.table(columns)


def _written(name: str, table: pa.Table, rows_in_batch: int = 2) -> bytes:
    out = formats.writer(name, table.schema, ["?"] * table.num_columns)
    pieces = [out.head(), *(out.rows(batch) for batch in table.to_batches(max_chunksize=rows_in_batch))]
    return b"".join([*pieces, out.tail({"rowCount": table.num_rows})])


def _as_json(value: Any, type_: pa.DataType) -> Any:
    """What a value must be in JSON, without Arrow's help."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {field.name: _as_json(value[field.name], field.type) for field in type_}
    if pa.types.is_map(type_):
        return [{"key": key, "value": _as_json(one, type_.item_type)} for key, one in value]
    if isinstance(value, list):
        return [_as_json(one, type_.value_type) for one in value]
    return value


def _same(found: Any, expected: Any) -> bool:
    """Text of a decimal, date or time equals the value that it means."""
    if isinstance(expected, Decimal):
        return isinstance(found, str) and Decimal(found) == expected
    if isinstance(expected, datetime):
        has_zone = isinstance(found, str) and found.endswith("Z")
        return has_zone == (expected.tzinfo is not None) and datetime.fromisoformat(found) == expected
    if isinstance(expected, date):
        return date.fromisoformat(found) == expected
    if isinstance(expected, time):
        return time.fromisoformat(found) == expected
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(_same, found, expected))
    if isinstance(expected, dict):
        return set(found) == set(expected) and all(_same(found[name], expected[name]) for name in expected)
    return bool(found == expected) and type(found) is type(expected)


def _expected(table: pa.Table) -> list[list[Any]]:
    types = [field.type for field in table.schema]
    columns = [column.to_pylist() for column in table.columns]
    return [[_as_json(*pair) for pair in zip(row, types, strict=True)] for row in zip(*columns, strict=True)]


@given(tables())
@settings(max_examples=150, deadline=None)
def test_every_format_keeps_every_value(table: pa.Table) -> None:
    expected = _expected(table)

    whole = orjson.loads(_written("json", table))
    assert _same([list(row.values()) for row in whole["rows"]], expected)
    assert whole["rowCount"] == table.num_rows
    assert _same(orjson.loads(_written("compact", table))["rows"], expected)

    lines = [orjson.loads(line) for line in _written("ndjson", table).splitlines()]
    assert _same([list(line.values()) for line in lines[:-1]], expected)
    assert lines[-1]["summary"]["rowCount"] == table.num_rows

    assert pa.ipc.open_stream(_written("arrow", table)).read_all().equals(table)
    read = pyarrow.parquet.read_table(io.BytesIO(_written("parquet", table)))
    assert read.to_pylist() == table.to_pylist()

    header, *rows = csv.reader(io.StringIO(_written("csv", table).decode(), newline=""))
    assert header == table.column_names
    assert len(rows) == len(expected)
    for row, values in zip(rows, expected, strict=True):
        for text, value in zip(row or [""], values, strict=True):  # a blank line is one null
            assert _same_in_csv(text, value), (text, value)


def _same_in_csv(text: str, value: Any) -> bool:
    if value is None:
        return text == ""
    if isinstance(value, bool):
        return text == str(value).lower()
    if isinstance(value, int):
        return int(text) == value
    if isinstance(value, float):
        return float(text) == value
    if isinstance(value, list | dict):
        return _same(orjson.loads(text), value)
    return _same(text, value)


def test_null_and_empty_text_differ_in_csv() -> None:
    table = pa.table({"a": pa.array([None, "", "x", 'say "hi",\n'])})
    assert _written("csv", table) == b'a\r\n\r\n""\r\nx\r\n"say ""hi"",\n"\r\n'


@pytest.mark.parametrize(
    ("months", "days", "nanoseconds", "text"),
    [
        (0, 0, 0, "PT0S"),
        (14, 0, 0, "P14M"),
        (0, -3, 0, "P-3D"),
        (1, 2, 3_500_000_000, "P1M2DT3.5S"),
        (0, 0, -1, "PT-0.000000001S"),
        (0, 0, 86_400_000_000_000, "PT86400S"),
    ],
)
def test_intervals(months: int, days: int, nanoseconds: int, text: str) -> None:
    assert formats.duration(months, days, nanoseconds) == text
    table = pa.table({"a": pa.array([pa.MonthDayNano([months, days, nanoseconds]), None])})
    assert orjson.loads(_written("compact", table))["rows"] == [[text], [None]]
    read = pyarrow.parquet.read_table(io.BytesIO(_written("parquet", table)))
    assert read.column("a").to_pylist() == [text, None]


def test_rare_values() -> None:
    far = pa.array([2**63 - 1, -(2**63 - 1), 0, None], pa.int64()).cast(pa.timestamp("us"))
    days = pa.array([2**31 - 1, -(2**31 - 1), 0, None], pa.int32()).cast(pa.date32())
    nanoseconds = pa.array([1, None, 0, 10**9], pa.int64()).cast(pa.timestamp("ns", "UTC"))
    table = pa.table({"t": far, "d": days, "n": nanoseconds, "f": [float("nan"), float("inf"), 0.5, None]})
    assert orjson.loads(_written("compact", table))["rows"] == [
        ["infinity", "infinity", "1970-01-01T00:00:00.000000001Z", "NaN"],
        ["-infinity", "-infinity", None, "Infinity"],
        ["1970-01-01T00:00:00.000000", "1970-01-01", "1970-01-01T00:00:00.000000000Z", 0.5],
        [None, None, "1970-01-01T00:00:01.000000000Z", None],
    ]


def test_names_are_unique_in_objects() -> None:
    assert formats.unique_names(["a", "a", "a_1", "a"]) == ["a", "a_2", "a_1", "a_3"]


def test_a_result_that_breaks_off_is_recognised() -> None:
    error = {"message": "late", "type": "GatewayTimeoutException", "code": 504}
    table = pa.table({"a": [1]})
    for name in ("json", "compact"):
        out = formats.writer(name, table.schema, ["BIGINT"])
        body = out.head() + out.rows(table.to_batches()[0]) + (media_types.broken_off(name, error) or b"")
        assert orjson.loads(body)["error"] == error
        assert "rowCount" not in orjson.loads(body)
    assert orjson.loads(media_types.broken_off("ndjson", error) or b"") == {"error": error}
    for name in ("csv", "arrow", "parquet"):
        assert media_types.broken_off(name, error) is None
