"""The SQL that reads a table with an overlay, in DuckDB, compared with a model in dicts."""

from __future__ import annotations

import datetime
import decimal
import uuid
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from query.overlay import OverlayShape, overlay_sql
from query.sql import quoted

Row = dict[str, Any]
ODD = 'odd "name"'
KEYS = st.tuples(st.integers(0, 3), st.sampled_from(["a", "b", ""]))
VALUES = st.fixed_dictionaries({"x": st.none() | st.integers(-5, 5), ODD: st.none() | st.text(max_size=3)})
OLD = st.dictionaries(KEYS, VALUES, max_size=8)
COLUMNS = ["id", "part", "x", ODD]
TYPES = [("id", "BIGINT"), ("part", "VARCHAR"), ("x", "INTEGER"), (ODD, "VARCHAR"), ("stamp", "DATE")]

# For each key: None, a delete; else the row, the columns that are missing, and the key of their old row.
NEW = st.dictionaries(
    KEYS,
    st.none() | st.tuples(VALUES, st.sets(st.sampled_from(["x", ODD])), KEYS),
    max_size=8,
)


def model(old: dict[Any, Row], new: dict[Any, Any], *, is_truncated: bool) -> dict[Any, Row]:
    found = (
        {} if is_truncated else {key: {**row, "stamp": True} for key, row in old.items() if key not in new}
    )
    for key, one in new.items():
        if one is not None:
            values, missing, base = one
            kept = {name: old.get(base, {}).get(name) for name in missing}
            found[key] = {**values, **kept, "stamp": False}
    return found


def overlay_of(new: dict[Any, Any], *, is_truncated: bool) -> tuple[OverlayShape, pa.Table]:
    missing = tuple(
        name for name in COLUMNS if any(one is not None and name in one[1] for one in new.values())
    )
    shape = OverlayShape(tuple(COLUMNS), ("id", "part"), missing, is_truncated)
    empty: tuple[Row, set[str], Any] = ({}, set(), (None, None))
    rows = [
        (
            *key,
            *((one or empty)[0].get(name) for name in COLUMNS[2:]),
            *(name in (one or empty)[1] for name in missing),
            *((one or empty)[2] if (one or empty)[1] else (None, None) if missing else ()),
            one is None,
        )
        for key, one in new.items()
    ]
    types = [pa.int32(), pa.string(), pa.int64(), pa.string(), *[pa.bool_()] * len(missing)]
    types += [pa.int32(), pa.string()] if missing else []
    columns = list(zip(*rows, strict=True)) or [()] * (len(types) + 1)
    arrays = [pa.array(values, type_) for values, type_ in zip(columns, [*types, pa.bool_()], strict=True)]
    return shape, pa.table(arrays, names=shape.names)


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


@settings(max_examples=300, deadline=None)
@given(OLD, NEW, st.booleans())
def test_the_rows_are_those_of_the_model(
    connection: duckdb.DuckDBPyConnection, old: dict[Any, Row], new: dict[Any, Any], is_truncated: bool
) -> None:
    if is_truncated:  # after a truncate no value comes from an old row
        new = {key: one and (one[0], set(), (None, None)) for key, one in new.items()}
    declared = ", ".join(f"{quoted(name)} {type_}" for name, type_ in TYPES)
    connection.execute(f"CREATE OR REPLACE TABLE lake ({declared})")
    for key, row in old.items():
        connection.execute(
            "INSERT INTO lake VALUES (?, ?, ?, ?, DATE '2026-01-01')", [*key, row["x"], row[ODD]]
        )
    shape, table = overlay_of(new, is_truncated=is_truncated)
    connection.register("overlay", table)
    result = connection.execute(overlay_sql("lake", TYPES, "overlay", shape))
    assert [(one[0], str(one[1])) for one in result.description or ()] == TYPES
    rows = result.fetchall()
    found = {(row[0], row[1]): {"x": row[2], ODD: row[3], "stamp": row[4] is not None} for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    assert found == model(old, new, is_truncated=is_truncated)


def test_rows_are_added_to_a_table_without_a_key(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("CREATE OR REPLACE TABLE lake AS SELECT 1 AS a")
    connection.register("overlay", pa.table({"v0": [1, 2], "is_deleted": [False, False]}))
    shape = OverlayShape(("a",), (), (), is_truncated=False)
    rows = connection.execute(overlay_sql("lake", [("a", "INTEGER")], "overlay", shape)).fetchall()
    assert sorted(rows) == [(1,), (1,), (2,)]


UTC = datetime.UTC
EXACT = [
    ("BOOLEAN", pa.bool_(), True),
    ("FLOAT", pa.float32(), 1.5),
    ("DECIMAL(38,9)", pa.decimal128(38, 9), decimal.Decimal("12345678901234567890.123456789")),
    ("DATE", pa.date32(), datetime.date(1969, 12, 31)),
    ("TIME", pa.time64("us"), datetime.time(23, 59, 59, 999_999)),
    ("TIMESTAMP", pa.timestamp("us"), datetime.datetime(1700, 1, 1, 0, 0, 0, 1)),  # noqa: DTZ001 - it has none
    ("TIMESTAMP WITH TIME ZONE", pa.timestamp("us", tz="UTC"), datetime.datetime(2026, 1, 1, tzinfo=UTC)),
    ("UUID", pa.string(), "6f1ed002-ab5c-4d7b-9e1c-000000000001"),
    ("BLOB", pa.binary(), b"\x00\xff"),
    ("BLOB", pa.binary(2), b"\x00\xff"),
    ("VARCHAR", pa.string(), "a\x00é"),
    ("STRUCT(a INTEGER, b VARCHAR)", pa.struct([("a", pa.int32()), ("b", pa.string())]), {"a": 1, "b": "x"}),
    ("INTEGER[]", pa.list_(pa.field("element", pa.int32())), [1, None]),
    ("MAP(VARCHAR, BIGINT)", pa.map_(pa.string(), pa.int64()), [("k", 1)]),
]


@pytest.mark.parametrize(("sql_type", "arrow_type", "value"), EXACT)
def test_values_of_each_type(
    connection: duckdb.DuckDBPyConnection, sql_type: str, arrow_type: pa.DataType, value: object
) -> None:
    """A value of the overlay is the same value as in the table."""
    connection.execute(f"CREATE OR REPLACE TABLE lake (id BIGINT, v {sql_type})")
    connection.register(
        "overlay",
        pa.table(
            [[1, 2], pa.array([value, None], arrow_type), [False, False]], names=["v0", "v1", "is_deleted"]
        ),
    )
    shape = OverlayShape(("id", "v"), ("id",), (), is_truncated=False)
    columns = [("id", "BIGINT"), ("v", sql_type)]
    connection.execute(f"INSERT INTO lake {overlay_sql('lake', columns, 'overlay', shape)}")
    found = connection.execute("SELECT id, v FROM lake ORDER BY id")
    assert [str(column[1]) for column in found.description or ()] == ["BIGINT", sql_type]
    expected: Any = uuid.UUID(str(value)) if sql_type == "UUID" else value
    expected = dict(expected) if sql_type.startswith("MAP") else expected
    assert found.fetchall() == [(1, expected), (2, None)]
