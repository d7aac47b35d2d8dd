"""Which changes a subscriber gets."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    ListType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)

from catalog.errors import Invalid
from query.feed.filters import filter_of, predicate

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "status", StringType()),
    NestedField(3, "at", TimestamptzType()),
    NestedField(4, "price", DecimalType(10, 2)),
    NestedField(5, "is_open", BooleanType()),
    NestedField(6, "tags", ListType(7, StringType())),
    NestedField(8, "day", DateType()),
    NestedField(9, "rate", DoubleType()),
)
ROW = {
    "id": 5,
    "status": "new",
    "at": "2026-11-15T12:00:00.000000Z",
    "price": "1.60",
    "is_open": True,
    "tags": ["x"],
    "day": "2026-11-15",
    "rate": 0.5,
}


@pytest.mark.parametrize(
    ("where", "holds"),
    [
        ("id = 5", True),
        ("id > 5", False),
        ("id in (1, 5)", True),
        ("status = 'new' and id < 9", True),
        ("status like 'n%'", True),
        ("not status = 'new'", False),
        ("at >= '2026-11-15T12:00:00+00:00'", True),
        ("at < '2026-11-15T12:00:00+00:00'", False),
        ("price > 1.59", True),
        ("price > 1.60", False),
        ("is_open = true", True),
        ("day = '2026-11-15'", True),
        ("rate < 0.75", True),
    ],
)
def test_predicates_compare_values_of_the_columns_types(where: str, holds: bool) -> None:
    found = predicate(where, SCHEMA)
    assert found(ROW) is holds
    assert found(None) is False


@pytest.mark.parametrize("row", [{}, {"id": None}, {"id": "not a number"}, {"id": {"a": 1}}, {"id": [5]}])
def test_a_value_that_is_missing_or_of_another_type_equals_nothing(row: dict[str, Any]) -> None:
    assert predicate("id = 5", SCHEMA)(row) is False
    assert predicate("id is null", SCHEMA)(row) is True


@pytest.mark.parametrize("where", ["id =", "nothing = 1", "id = 'x'", "read_csv('x')", "id = 1; drop"])
def test_what_is_no_predicate_is_refused(where: str) -> None:
    with pytest.raises(Invalid, match="where"):
        predicate(where, SCHEMA)


@pytest.mark.parametrize(
    ("tables", "name", "matches"),
    [
        ([], "shop.orders", True),
        (["shop.orders"], "shop.orders", True),
        (["shop.orders"], "shop.orders2", False),
        (["shop.*"], "shop.orders", True),
        (["shop.*"], "shop.eu.orders", False),
        (["shop.*.orders"], "shop.eu.orders", True),
        (["a.b,shop.ord*"], "shop.orders", True),
        (["sh?p.orders"], "shop.orders", False),
        (["shop.[a-z]*"], "shop.orders", False),
    ],
)
def test_names_and_patterns_of_tables(tables: list[str], name: str, matches: bool) -> None:
    assert filter_of(tables, None).matches_table(tuple(name.split("."))) is matches


def test_a_name_with_dots_is_written_with_its_levels_apart() -> None:
    found = filter_of(["shop\x1fa.b"], None)
    assert found.names == (("shop", "a.b"),)
    assert found.matches_table(("shop", "a.b"))


@pytest.mark.parametrize(
    "given",
    [
        {"tables": ["orders"]},
        {"tables": ["shop."]},
        {"tables": ["shop.orders__changes"]},
        {"tables": [f"a.t{n}" for n in range(101)]},
        {"operations": ["upsert"]},
    ],
)
def test_what_is_refused(given: dict[str, list[str]]) -> None:
    with pytest.raises(Invalid, match=next(iter(given))):
        filter_of(given.get("tables"), given.get("operations"))


def test_columns_are_left_out() -> None:
    wanted = filter_of(None, ["INSERT"], None, ["id,status", "gone"])
    assert wanted.shown(ROW) == {"id": 5, "status": "new"}
    assert wanted.shown(None) is None
    assert wanted.matches_operation("insert")
    assert not wanted.matches_operation("delete")
