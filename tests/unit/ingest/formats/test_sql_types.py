"""The two maps from SQL types to Iceberg types."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.formats.sql_types import from_jdbc, from_mysql, from_postgres


@pytest.mark.parametrize(
    ("text", "iceberg"),
    [
        ("tinyint(1)", "int"),
        ("tinyint(3) unsigned", "int"),
        ("mediumint unsigned", "int"),
        ("int", "int"),
        ("INT(10) UNSIGNED ZEROFILL", "long"),
        ("int(10) zerofill", "long"),
        ("bigint(20)", "long"),
        ("bigint unsigned", "decimal(20,0)"),
        ("decimal(10,2)", "decimal(10,2)"),
        ("decimal(10, 2) unsigned", "decimal(10,2)"),
        ("decimal(12)", "decimal(12,0)"),
        ("numeric", "decimal(10,0)"),
        ("decimal(65,30)", "string"),
        ("float(7,3)", "float"),
        ("double unsigned", "double"),
        ("double precision", "double"),
        ("bit", "int"),
        ("bit(10)", "int"),
        ("bit(33)", "long"),
        ("bit(64)", "decimal(20,0)"),
        ("year(4)", "int"),
        ("date", "date"),
        ("time(3)", "time"),
        ("datetime(6)", "timestamp"),
        ("timestamp", "timestamp"),
        ("char(2)", "string"),
        ("varchar(255)", "string"),
        ("longtext", "string"),
        ("enum('a','b)')", "string"),
        ("set('x','y')", "string"),
        ("json", "string"),
        ("binary(16)", "binary"),
        ("varbinary(16)", "binary"),
        ("mediumblob", "binary"),
        ("geometry", None),
        ("decimal(a,b)", None),
        ("", None),
        (None, None),
        (7, None),
    ],
)
def test_mysql(text: object, iceberg: str | None) -> None:
    assert from_mysql(text) == iceberg


@pytest.mark.parametrize(
    ("text", "iceberg"),
    [
        ("smallint", "int"),
        ("integer", "int"),
        ("int4", "int"),
        ("bigint", "long"),
        ("oid", "long"),
        ("real", "float"),
        ("double precision", "double"),
        ("boolean", "boolean"),
        ("numeric(10,2)", "decimal(10,2)"),
        ("numeric(5)", "decimal(5,0)"),
        ("numeric(3,5)", "decimal(5,5)"),
        ("numeric(2,-3)", "decimal(5,0)"),
        ("numeric(50,10)", "string"),
        ("numeric", None),
        ("text", "string"),
        ("character varying(30)", "string"),
        ("character(2)", "string"),
        ('"char"', "string"),
        ("jsonb", "string"),
        ("uuid", "uuid"),
        ("bytea", "binary"),
        ("date", "date"),
        ("time without time zone", "time"),
        ("time(3) without time zone", "time"),
        ("time with time zone", "string"),
        ("timestamp without time zone", "timestamp"),
        ("timestamp(3) with time zone", "timestamptz"),
        ("timestamptz", "timestamptz"),
        ("interval day to second(3)", "string"),
        ("integer[]", "string"),
        ("numeric(10,2)[]", "string"),
        ("bit(3)", "string"),
        ("mood", None),
        ('"My Type"', None),
        (None, None),
    ],
)
def test_postgres(text: object, iceberg: str | None) -> None:
    assert from_postgres(text) == iceberg


@pytest.mark.parametrize(
    ("code", "iceberg"), [(4, "long"), (-5, "long"), (12, "string"), (93, "timestamp"), (2004, "binary")]
)
def test_jdbc(code: int, iceberg: str) -> None:
    assert from_jdbc(code) == iceberg


@pytest.mark.parametrize("code", [3, 1111, None, "12", []])
def test_jdbc_that_says_too_little(code: object) -> None:
    assert from_jdbc(code) is None


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    for read in (from_mysql, from_postgres):
        assert read(text) is None or isinstance(read(text), str)
        read(f"decimal({text})")
        read(f"bit({text})")
