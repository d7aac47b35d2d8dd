"""The comparison with a source that changes meanwhile. Both sides are tables in DuckDB."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pytest

from calve.verification import comparison
from calve.verification.columns import Column, text_of, why_not_compared
from calve.verification.comparison import Report, Tables, compare
from calve.verification.statements import Statements

Rows = dict[int, str | None]
ID, NAME = Column("id", "long"), Column("name", "string")
STATEMENTS = Statements(["t"], [ID], [ID, NAME], "duckdb")


class Side:
    def __init__(self, rows: Rows, position: int = 0) -> None:
        self._rows = rows
        self.position = position
        self.position_text = str(position)

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with duckdb.connect() as connection:
            connection.execute("CREATE TABLE t (id BIGINT, name VARCHAR)")
            if self._rows:
                connection.executemany("INSERT INTO t VALUES (?, ?)", list(self._rows.items()))
            return connection.execute(statement).fetchall()


class Clock:
    """Passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(comparison, "time", clock)
    return clock


def compared(
    source: Callable[[], Rows], lake: Callable[[], Rows], watermarks: Callable[[], list[str]] = list
) -> Report:
    @contextlib.contextmanager
    def snapshot() -> Iterator[Side]:
        yield Side(source(), position=100)

    tables = Tables(snapshot, lambda: (Side(lake()), 7), watermarks, STATEMENTS, STATEMENTS)
    return compare(tables, Report("t", "t"), wait_s=5)


def mark(position: int) -> str:
    return f"{position:016x}/{position:016x}/{0:016x}"


ROWS: Rows = {number: f"row {number}" for number in range(50)}


@pytest.mark.usefixtures("clock")
def test_differences_are_named_by_key_and_column() -> None:
    other = {**ROWS, 3: "other", 99: "new"}
    del other[4]
    report = compared(lambda: ROWS, lambda: other, lambda: [mark(100)])
    assert (report.state, report.differences, report.is_passed) == ("differs", 3, True)
    assert sorted((one.kind, one.key["id"], *one.columns) for one in report.keys) == [
        ("changed", "3", "name"),
        ("missing", "4"),
        ("unexpected", "99"),
    ]


def test_a_lake_that_catches_up_is_equal(clock: Clock) -> None:
    report = compared(lambda: ROWS, lambda: ROWS if clock.now_s > 2 else {1: "row 1"})
    assert (report.state, report.differences) == ("equal", 0)


def test_the_comparison_waits_until_the_position_is_passed(clock: Clock) -> None:
    report = compared(
        lambda: ROWS,
        lambda: ROWS if clock.now_s >= 3 else {},
        lambda: [mark(100 if clock.now_s >= 3 else 50)],
    )
    assert (report.state, report.is_passed) == ("equal", True)


def test_a_row_that_keeps_changing_is_not_judged(clock: Clock) -> None:
    versions = iter(range(10**6))
    report = compared(lambda: {**ROWS, 1: f"version {next(versions)}"}, lambda: {**ROWS, 1: "older"})
    assert (report.state, report.unsettled, report.differences) == ("equal", 1, 0)
    assert clock.now_s >= 5


def test_a_difference_is_found_beside_rows_that_keep_changing(clock: Clock) -> None:
    versions = iter(range(10**6))
    lake = {**ROWS, 1: "older", 2: "wrong"}
    report = compared(lambda: {**ROWS, 1: f"version {next(versions)}"}, lambda: lake)
    assert (report.state, report.unsettled) == ("differs", 1)
    assert [one.key["id"] for one in report.keys] == ["2"]
    assert clock.now_s >= 5


@pytest.mark.parametrize(
    ("type_", "source_type", "is_compared"),
    [
        ("long", "int4", True),
        ("string", "bpchar", True),
        ("double", "float4", True),
        ("timestamp", "timestamptz", False),
        ("long", "interval", False),
        ("list", "_text", False),
        ("string", "", False),
    ],
)
def test_columns_without_a_common_text_are_left_out(type_: str, source_type: str, is_compared: bool) -> None:
    column = Column("c", type_, source_type)
    assert (why_not_compared(column, "postgresql") is None) == is_compared


def test_names_are_quoted() -> None:
    assert text_of(Column('a"b', "string"), "postgresql") == '"a""b"::text'
    assert text_of(Column("a`b", "long"), "mysql") == "CAST(`a``b` AS CHAR)"
    assert text_of(Column("c", "double"), "mysql") is None
