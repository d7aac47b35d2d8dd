"""Staging: changes as the table that a worker reads, and the changes that cannot be staged."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.change import Change, Declared
from ingest.staging.arrow_table import arrow_table
from ingest.types.schema_plan import ROW_ID, Column, SchemaPlan
from tests.unit.ingest.types.changes import declared, delete, insert, planned, truncate, update

RESERVED = [
    ("_calve_seq", pa.int64()),
    ("_calve_operation", pa.string()),
    ("_calve_source_timestamp", pa.timestamp("us", tz="UTC")),
    ("_calve_source", pa.string()),
    ("_calve_position", pa.string()),
    ("_calve_transaction", pa.string()),
    ("_calve_event_id", pa.string()),
    ("_calve_before", pa.string()),
    ("_calve_absent", pa.list_(pa.string())),
]


def staged(
    changes: Sequence[Change], key: Sequence[str] = ("id",), plan: SchemaPlan | None = None, **rest: Any
) -> tuple[pa.Table, dict[int, str]]:
    """The table after a trip through a file."""
    found = plan or planned(changes, key=key)
    table, rejects = arrow_table(changes, found, key, **rest)
    table.validate(full=True)
    file = io.BytesIO()
    pq.write_table(table, file)
    again = pq.read_table(io.BytesIO(file.getvalue()))
    assert again.schema.names == table.schema.names
    assert again.to_pylist() == table.to_pylist()
    assert table["_calve_seq"].to_pylist() == list(range(table.num_rows))
    assert table.num_rows + len(rejects) == len(changes)
    return table, rejects


def columns(table: pa.Table, *names: str) -> list[tuple[Any, ...]]:
    return list(zip(*(table[name].to_pylist() for name in names), strict=True))


def test_the_reserved_columns_stand_after_the_row() -> None:
    table, rejects = staged([insert({"id": 1, "name": "Ada"})])
    assert not rejects
    assert table.schema.names[:2] == ["id", "name"]
    assert [(field.name, field.type) for field in table.schema][2:] == RESERVED


def test_the_facts_of_a_change() -> None:
    change = update(
        {"id": 1},
        before={"id": 1, "big": 2**70},
        source="pg",
        position="0a/0b",
        transaction="77",
        identity="e-1",
        time_ms=1709210096789,
    )
    table, _ = staged([change])
    row = table.to_pylist()[0]
    assert row["_calve_operation"] == "update"
    assert row["_calve_source_timestamp"] == datetime(2024, 2, 29, 12, 34, 56, 789000, UTC)
    assert (row["_calve_source"], row["_calve_position"]) == ("pg", "0a/0b")
    assert (row["_calve_transaction"], row["_calve_event_id"]) == ("77", "e-1")
    assert row["_calve_before"] == '{"id":1,"big":1180591620717411303424}'
    assert row["_calve_absent"] is None


def test_an_event_is_named_by_identity_number_or_fallback() -> None:
    changes = [
        insert({"id": 1}, identity="x", number=4, source="s"),
        insert({"id": 2}, number=5, source="s"),
        insert({"id": 3}),
    ]
    table, _ = staged(changes, fallback_ids=["a", "b", "c"])
    assert table["_calve_event_id"].to_pylist() == ["x", "s:5", "c"]
    table, _ = staged(changes)
    assert table["_calve_event_id"].to_pylist() == ["x", "s:5", None]


def test_a_clock_beyond_all_time_says_nothing() -> None:
    table, rejects = staged([insert({"id": 1}, time_ms=2**62), insert({"id": 2}, time_ms=-1)])
    assert not rejects
    assert table["_calve_source_timestamp"].cast(pa.int64()).to_pylist() == [None, -1000]


def test_facts_that_are_not_unicode_do_not_stop_a_change() -> None:
    table, rejects = staged([insert({"id": 1}, source="\ud800")])
    assert not rejects
    assert table["_calve_source"].to_pylist() == ["\\ud800"]


def test_deletes_carry_their_key_alone() -> None:
    changes = [
        insert({"id": 1, "name": "a"}),
        delete({"id": 2, "name": "b"}),
        Change(0, ("t",), "delete", after={"id": 3, "name": "c"}),
    ]
    table, rejects = staged(changes)
    assert not rejects
    assert columns(table, "id", "name", "_calve_operation") == [
        (1, "a", "insert"),
        (2, None, "delete"),
        (3, None, "delete"),
    ]
    assert table["_calve_before"].to_pylist() == [None, '{"id":2,"name":"b"}', None]


def test_a_truncate_carries_nothing_and_needs_no_key() -> None:
    table, rejects = staged([insert({"id": 1}), truncate(), insert({"id": 2})])
    assert not rejects
    assert columns(table, "id", "_calve_operation") == [(1, "insert"), (None, "truncate"), (2, "insert")]


def test_missing_columns_of_inserts_are_null_those_of_updates_absent() -> None:
    changes = [
        insert({"id": 1, "a": 1, "b": 2}),
        insert({"id": 2}),
        update({"id": 3, "a": None}),
        update({"id": 4}),
        update({"id": 5, "a": 1, "b": 2}),
        Change(0, ("t",), "read", after={"id": 6}),
        delete({"id": 7}),
    ]
    table, _ = staged(changes)
    assert table["_calve_absent"].to_pylist() == [None, None, ["b"], ["a", "b"], None, None, None]


def test_a_whole_row_keeps_only_what_its_producer_says() -> None:
    changes = [
        insert({"id": 1, "a": 1, "b": 2}),
        update({"id": 1}, unchanged=()),
        update({"id": 1}, unchanged=("b",)),
        update({"id": 1}),
    ]
    table, _ = staged(changes)
    assert table["_calve_absent"].to_pylist() == [None, None, ["b"], ["a", "b"]]


def test_a_moved_key_makes_an_insert_partial() -> None:
    changes = [insert({"id": 1, "a": 1}), insert({"id": 2}), insert({"id": 3})]
    table, _ = staged(changes, partial_inserts={1})
    assert table["_calve_absent"].to_pylist() == [None, ["a"], None]


def test_roots_are_typed_like_the_key() -> None:
    types = declared({"id": "decimal(9,2)", "at": "timestamp", "x": "int"}, id="decimal-base64", at="ms")
    changes = [insert({"id": "MDk=", "at": 0, "x": n}, declared=types) for n in range(3)]
    roots = {1: {"id": "z8c=", "at": 1}, 2: {"id": "MDk=", "at": 2}}
    table, rejects = staged(changes, ["id", "at"], roots=roots)
    assert not rejects
    assert table.schema.names[-2:] == ["_calve_root_id", "_calve_root_at"]
    assert table["_calve_root_id"].to_pylist() == [None, Decimal("-123.45"), Decimal("123.45")]
    assert table["_calve_root_at"].cast(pa.int64()).to_pylist() == [None, 1000, 2000]


def test_without_roots_there_are_no_such_columns() -> None:
    table, _ = staged([insert({"id": 1})])
    assert not [name for name in table.schema.names if name.startswith("_calve_root")]


def test_a_key_that_is_null_or_missing_is_a_reject() -> None:
    changes = [
        insert({"id": None, "v": 1}),
        insert({"v": 2}),
        delete(None),
        delete({"v": 3}),
        insert({"id": 5, "v": 4}),
        update({"id": None}, before={"id": 6}),
    ]
    table, rejects = staged(changes)
    assert table["id"].to_pylist() == [5]
    assert sorted(rejects) == [0, 1, 2, 3, 5]
    assert all(reason.startswith("null key") for reason in rejects.values())


def test_part_of_a_key_is_not_enough() -> None:
    changes = [insert({"a": 1, "b": 2}), insert({"a": 1}), insert({"b": 1})]
    table, rejects = staged(changes, ["a", "b"])
    assert table.num_rows == 1
    assert sorted(rejects) == [1, 2]


def test_a_key_column_that_was_refused_says_why() -> None:
    _, rejects = staged([insert({"_pos": 1})], ["_pos"])
    assert "Iceberg" in rejects[0]


def test_without_key_nothing_is_asked_for() -> None:
    table, rejects = staged([insert({"v": 1}), insert({})], [])
    assert not rejects
    assert table["v"].to_pylist() == [1, None]


def test_the_key_of_a_partial_update_comes_from_before() -> None:
    table, rejects = staged([insert({"id": 1, "v": 1}), update({"v": 2}, before={"id": 1})])
    assert not rejects
    assert table["id"].to_pylist() == [1, 1]
    assert table["_calve_absent"].to_pylist() == [None, None]


def test_the_name_of_a_row_stands_in_for_its_key() -> None:
    changes = [
        insert({"id": 1, "v": 1}, row_id="1"),
        update({"v": 2}, row_id="1"),
        delete(None, row_id="7"),
        delete({"v": 2}, row_id="nine"),
    ]
    table, rejects = staged(changes)
    assert table["id"].to_pylist() == [1, 1, 7]
    assert list(rejects) == [3]


def test_rows_that_are_known_by_name_only() -> None:
    changes = [
        insert({"v": 1}, row_id="r-1"),
        update({ROW_ID: "ignored", "v": 2}, row_id="r-2"),
        delete(None, row_id="r-1"),
        insert({ROW_ID: "r-3"}),
        insert({"v": 3}),
        truncate(),
    ]
    table, rejects = staged(changes, [ROW_ID])
    assert table[ROW_ID].to_pylist() == ["r-1", "r-2", "r-1", "r-3", None]
    assert list(rejects) == [4]


def test_a_value_that_does_not_fit_is_a_reject_with_its_reason() -> None:
    types = declared({"id": "int", "age": "int"})
    rows: list[dict[str, Any]] = [
        {"id": 1, "age": 5},
        {"id": 2, "age": "old"},
        {"id": "x"},
        {"id": 2**31, "age": 1},
    ]
    table, rejects = staged([insert(row, declared=types) for row in rows])
    assert columns(table, "id", "age") == [(1, 5)]
    assert rejects == {
        1: "column \"age\": 'old' does not fit int: not a number",
        2: "column \"id\": 'x' does not fit int: not a number",
        3: 'column "id": 2147483648 does not fit int: out of range',
    }


def test_null_in_a_column_that_the_table_requires() -> None:
    plan = SchemaPlan([Column("id", "long", required=True), Column("v", "long", required=True)], None)
    changes = [
        insert({"id": 1, "v": 1}),
        insert({"id": 2, "v": None}),
        insert({"id": 3}),
        update({"id": 4}),
        update({"id": 5, "v": None}),
        delete({"id": 6}),
        truncate(),
    ]
    table, rejects = staged(changes, plan=plan)
    assert table["id"].to_pylist() == [1, 4, 6, None]
    assert sorted(rejects) == [1, 2, 4]


def test_each_change_is_read_as_it_declares_itself() -> None:
    """A schema change in the middle of a batch: unit, scale and type differ from row to row."""
    first = declared({"id": "int", "p": "decimal(9,2)", "at": "timestamp"}, p="decimal-base64", at="ms")
    second = declared({"id": "long", "p": "decimal(12,3)", "at": "timestamp"}, p="decimal-base64", at="us")
    changes = [
        insert({"id": 1, "p": "MDk=", "at": 1}, declared=first),
        insert({"id": 2, "p": "MDk=", "at": 1000}, declared=second),
        insert({"id": 3, "p": "1.5", "at": "1970-01-01T00:00:00.001Z"}),
        insert({"id": 4, "p": "MDk=", "at": 1}, declared=first),
        insert({"id": 5, "p": 2, "at": 1}),  # without a unit
        insert({"id": 2**40, "p": "bad!", "at": 1}, declared=second),
    ]
    table, rejects = staged(changes)
    assert table.schema.field("id").type == pa.int64()
    assert table.schema.field("p").type == pa.decimal128(12, 3)
    assert table["id"].to_pylist() == [1, 2, 3, 4]
    assert table["p"].to_pylist() == [
        Decimal("123.450"),
        Decimal("12.345"),
        Decimal("1.500"),
        Decimal("123.450"),
    ]
    assert table["at"].cast(pa.int64()).to_pylist() == [1000] * 4
    assert sorted(rejects) == [4, 5]


def test_equal_declarations_need_not_be_one_object() -> None:
    changes = [
        insert({"id": n, "d": n}, declared=declared({"id": "int", "d": "date"}, d="days")) for n in range(3)
    ]
    table, rejects = staged(changes)
    assert not rejects
    assert table["d"].to_pylist() == [date(1970, 1, 1), date(1970, 1, 2), date(1970, 1, 3)]


def test_what_was_before_and_cannot_be_written() -> None:
    _, rejects = staged([update({"id": 1}, before={"id": 1, "x": "\ud800"})])
    assert "before" in rejects[0]


def test_no_changes() -> None:
    plan = planned([insert({"id": 1})])
    table, rejects = staged([], plan=plan)
    assert (table.num_rows, rejects) == (0, {})
    assert table.schema.names[0] == "id"


@pytest.mark.parametrize("count", [1, 500])
def test_many_and_strange_columns(count: int) -> None:
    row: dict[str, Any] = {"id": 1, "a.b": 1, "Ä ö": 2, "ID": 3} | {f"c{n}": n for n in range(count)}
    table, rejects = staged([insert(row), update({"id": 1})])
    assert not rejects
    assert table.num_columns == len(row) + len(RESERVED)
    assert len(table["_calve_absent"].to_pylist()[1]) == len(row) - 1


VALUES = (
    st.none()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4)
    | st.booleans()
    | st.lists(st.integers(), max_size=2)
)
ROWS = st.dictionaries(st.sampled_from(["id", "a", "b", "A", "_pos"]), VALUES, max_size=4)
TYPES = st.sampled_from(
    ["int", "long", "string", "decimal(9,2)", "timestamptz", "date", "boolean", "double", "time"]
)
DECLARED = st.none() | st.builds(
    lambda types, unit: Declared(types, dict(zip(types, [unit] * len(types), strict=True))),
    st.dictionaries(st.sampled_from(["id", "a", "b"]), TYPES, max_size=3),
    st.sampled_from(["us", "days", "decimal-base64", "base64"]),
)
CHANGES = st.builds(
    lambda operation, before, after, types, row_id: Change(
        0, ("t",), operation, before=before, after=after, declared=types, row_id=row_id, number=1
    ),
    st.sampled_from(["insert", "update", "delete", "read", "truncate"]),
    st.none() | ROWS,
    st.none() | ROWS,
    DECLARED,
    st.none() | st.text(max_size=2),
)


@settings(deadline=None)
@given(st.lists(CHANGES, max_size=6), st.sampled_from([["id"], ["id", "a"], [], [ROW_ID]]))
def test_every_change_is_staged_or_rejected(changes: list[Change], key: list[str]) -> None:
    plan = planned(changes, key=key)
    table, rejects = arrow_table(changes, plan, key)
    kept = [change for row, change in enumerate(changes) if row not in rejects]
    assert table["_calve_operation"].to_pylist() == [change.operation for change in kept]
    assert table["_calve_seq"].to_pylist() == list(range(len(kept)))
    texts = table["_calve_before"].to_pylist()
    assert [None if text is None else json.loads(text) for text in texts] == [c.before for c in kept]
    for name in key:
        # Not the values: a date may be beyond Python's calendar.
        nulls = table[name].is_null().to_pylist() if name in table.schema.names else []
        for change, is_null in zip(kept, nulls, strict=bool(nulls)):
            assert is_null == (change.operation == "truncate")
    assert all(reason and reason.encode() for reason in rejects.values())


@settings(deadline=None)
@given(st.lists(CHANGES, min_size=1, max_size=5), st.data())
def test_a_change_does_not_depend_on_its_neighbours(changes: list[Change], data: st.DataObject) -> None:
    plan = planned(changes)
    together, rejects = arrow_table(changes, plan, ["id"])
    row = data.draw(st.integers(0, len(changes) - 1))
    alone, reasons = arrow_table([changes[row]], plan, ["id"])
    assert rejects.get(row) == reasons.get(0)
    if row not in rejects:
        place = row - sum(other < row for other in rejects)
        one = together.drop_columns(["_calve_seq"]).slice(place, 1)
        assert one.equals(alone.drop_columns(["_calve_seq"]))


@settings(deadline=None)
@given(st.lists(CHANGES, max_size=6), st.sampled_from([["id"], []]), st.sets(st.integers(0, 5)))
def test_absent_is_what_the_row_of_an_update_or_moved_insert_does_not_mention(
    changes: list[Change], key: list[str], moved: set[int]
) -> None:
    plan = planned(changes, key=key)
    table, rejects = arrow_table(changes, plan, key, partial_inserts=moved)
    names = [column.name for column in plan.columns if column.name not in key]
    expected = []
    for row, change in enumerate(changes):
        keeps = change.operation == "update" or (change.operation == "insert" and row in moved)
        missing = [name for name in names if name not in (change.after or {})]
        if row not in rejects:
            expected.append((missing or None) if keeps else None)
    assert table["_calve_absent"].to_pylist() == expected
