"""Names and values in statements."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from spark_jobs.sql_text import (
    Limit,
    limit_between,
    limit_listing,
    literal,
    quoted,
    same_key,
    text_literal,
    within,
)


def test_names_are_quoted() -> None:
    assert quoted("a", "b c", "d`e.f") == "`a`.`b c`.`d``e.f`"
    assert same_key("t", "b", ["x", "y"]) == "t.`x` = b.`x` AND t.`y` = b.`y`"
    assert within("t", "x", Limit("1", "2")) == "t.`x` BETWEEN 1 AND 2"
    assert within("t", "x", Limit("1", "5", ("1", "5"))) == "t.`x` IN (1, 5)"


def test_text_goes_by_its_bytes() -> None:
    assert text_literal("a'\\é") == "CAST(X'61275cc3a9' AS STRING)"
    assert text_literal("") == "CAST(X'' AS STRING)"


@pytest.mark.parametrize(
    ("value", "type_", "text"),
    [
        (-5, pa.int64(), "CAST(-5 AS BIGINT)"),
        (5, pa.int32(), "CAST(5 AS INT)"),
        (Decimal("1E+3"), pa.decimal128(10, 2), "CAST('1000' AS DECIMAL(10, 2))"),
        (Decimal("-0.01"), pa.decimal128(10, 2), "CAST('-0.01' AS DECIMAL(10, 2))"),
        (dt.date(1, 1, 1), pa.date32(), "DATE'0001-01-01'"),
        (
            dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC).replace(tzinfo=None),
            pa.timestamp("us"),
            "TIMESTAMP_NTZ'2026-01-02 03:04:05.000006'",
        ),
        (
            dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
            pa.timestamp("us", tz="UTC"),
            "TIMESTAMP'2026-01-02 00:00:00+00:00'",
        ),
        (b"x", pa.binary(), None),
        (1.5, pa.float64(), None),
    ],
)
def test_values_have_the_type_of_their_column(value: Any, type_: pa.DataType, text: str | None) -> None:
    assert literal(value, type_) == text


def test_limits() -> None:
    assert limit_between(1, 9, pa.int32()) == Limit("CAST(1 AS INT)", "CAST(9 AS INT)")
    assert limit_between(b"a", b"b", pa.binary()) is None
    assert limit_listing(["a", "b"], pa.string()) == Limit(
        "CAST(X'61' AS STRING)", "CAST(X'62' AS STRING)", ("CAST(X'61' AS STRING)", "CAST(X'62' AS STRING)")
    )
    assert limit_listing([b"a"], pa.binary()) is None
