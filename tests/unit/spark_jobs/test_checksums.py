"""Checksums do not depend on the order of rows, and differ when a value does."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.tables.checksums import (
    Checksum,
    checksums,
    column_digests,
    columns_that_differ,
    differing,
    key_digests,
    row_hashes,
    texts,
)

text = st.none() | st.text(max_size=5)
rows_of_text = st.lists(st.tuples(st.integers(0, 50), text, text), max_size=20)
Rows = list[tuple[int, str | None, str | None]]


def arrays(rows: Rows) -> list[pa.Array]:
    names = (pa.int64(), pa.string(), pa.string())
    columns = list(zip(*rows, strict=True)) if rows else [(), (), ()]
    return [pa.array(column, type_) for column, type_ in zip(columns, names, strict=True)]


def sums(rows: Rows) -> dict[str, Checksum]:
    columns = arrays(rows)
    return checksums(key_digests(columns[:1]), row_hashes(columns))


@given(rows_of_text, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(rows: Rows, random: Any) -> None:
    other = list(rows)
    random.shuffle(other)
    assert sums(rows) == sums(other)


@given(rows_of_text, rows_of_text)
def test_sets_of_rows_are_equal_only_if_their_checksums_are(one: Rows, other: Rows) -> None:
    assert (sorted(one, key=repr) == sorted(other, key=repr)) == (not differing(sums(one), sums(other)))


@given(rows_of_text.filter(bool), st.data())
def test_a_row_that_is_there_twice_is_seen(rows: Rows, data: st.DataObject) -> None:
    twice = data.draw(st.sampled_from(rows))
    assert len(differing(sums(rows), sums([*rows, twice]))) == 1
    assert differing(sums(rows), sums([*rows, twice, twice]))  # a pair does not cancel itself out


@given(st.lists(text, min_size=2, max_size=4), st.lists(text, min_size=2, max_size=4))
def test_no_two_rows_have_the_same_hash(one: list[str | None], other: list[str | None]) -> None:
    if len(one) == len(other):
        hashes = [row_hashes([pa.array([v], pa.string()) for v in row]) for row in (one, other)]
        assert (one == other) == (hashes[0] == hashes[1])


@given(st.lists(text, min_size=3, max_size=3), st.lists(text, min_size=3, max_size=3))
def test_columns_that_differ_are_named(one: list[str | None], other: list[str | None]) -> None:
    digests = [column_digests([pa.array([v], pa.string()) for v in row])[0] for row in (one, other)]
    expected = [name for name, a, b in zip("xyz", one, other, strict=True) if a != b]
    assert columns_that_differ(digests[0], digests[1], "xyz") == expected


UTC = dt.UTC
CASES = [
    (pa.bool_(), [True, False], ["true", "false"]),
    (pa.int64(), [-(2**63), 0], ["-9223372036854775808", "0"]),
    (pa.float32(), [0.5], ["5.0000000000000000e-01"]),
    (pa.float64(), [0.1, -0.0, 1e300], ["1.0000000000000001e-01", "0.0000000000000000e+00",
                                        "1.0000000000000001e+300"]),
    (pa.float64(), [float("inf"), float("-inf"), float("nan")], ["Infinity", "-Infinity", "NaN"]),
    (pa.decimal128(38, 10), [Decimal("0E-10"), Decimal("-1.5")], ["0.0000000000", "-1.5000000000"]),
    (pa.date32(), [dt.date(1969, 12, 31)], ["-1"]),
    (pa.time64("us"), [dt.time(0, 0, 1, 5)], ["1000005"]),
    (pa.timestamp("us"), [1_000_000], ["1000000"]),
    (pa.timestamp("us", tz="UTC"), [dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)], ["1000000"]),
    (pa.binary(), [b"\x00\xff"], ["00ff"]),
    (pa.binary(2), [b"\x00\xff"], ["00ff"]),
    (pa.large_string(), ["ü"], ["ü"]),
    (pa.list_(pa.int64()), [[1, None]], ["[1, null]"]),
]  # fmt: skip


@pytest.mark.parametrize(("type_", "values", "expected"), CASES)
def test_texts(type_: pa.DataType, values: list[Any], expected: list[str]) -> None:
    assert texts(pa.array([*values, None], type_)).to_pylist() == [*expected, None]


def test_a_uuid_has_its_usual_text() -> None:
    value = uuid.UUID("6f9619ff-8b86-d011-b42d-00cf4fc964ff")
    column = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([value.bytes], pa.binary(16)))
    assert texts(column).to_pylist() == [str(value)]
