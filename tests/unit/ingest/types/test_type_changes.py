"""To which type a column is converted, and when it is split."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.change import Change, Declared
from ingest.types.schema_plan import SchemaPlan, plan
from ingest.types.type_changes import TypeChangeRules, conversion

TYPES = ["boolean", "int", "long", "float", "double", "decimal(9,2)", "decimal(30,4)", "decimal(38,0)"]
TYPES += ["date", "timestamp", "timestamptz", "string", "uuid"]


@pytest.mark.parametrize(
    ("current", "declared", "types"),
    [
        ("long", "double", ["double", "string"]),
        ("long", "string", ["string"]),
        ("long", "decimal(9,2)", ["decimal(21,2)", "string"]),
        ("string", "long", ["long", "string"]),
        ("double", "decimal(9,2)", ["decimal(9,2)", "double"]),
        ("double", "decimal(30,4)", ["decimal(30,4)", "string"]),
        ("timestamp", "date", ["date", "timestamp"]),
        ("date", "timestamptz", ["timestamptz", "string"]),
        ("boolean", "long", ["long", "string"]),
        ("long", "boolean", ["boolean", "string"]),
        ("uuid", "string", ["string"]),
        ("double", "long", []),  # its values fit
        ("int", "long", []),  # Iceberg widens it
        ("string", "time", []),  # a time is kept as text
        ("binary", "string", None),
        ("string", {"type": "list", "element": "long"}, None),
    ],
)
def test_types_to_try(current: str, declared: object, types: list[str] | None) -> None:
    assert conversion(current, declared, ()) == types


@given(st.sampled_from(TYPES), st.lists(st.sampled_from(TYPES), max_size=20))
def test_a_column_does_not_go_back_and_forth(first: str, declared: list[str]) -> None:
    """However often the source changes its mind, and whichever values fit, conversions come to an end."""
    current, tried, rounds = first, set[str](), 0
    for wanted in declared * 10:
        types = conversion(current, wanted, tried)
        if types:
            rounds += 1
            tried |= {types[0]}
            current = types[0]
    assert rounds <= 3 * len(TYPES)
    assert not any(conversion(current, wanted, tried) for wanted in declared)


def planned(rules: TypeChangeRules, changes: list[Change], type_: object = "long") -> SchemaPlan:
    fields = [
        {"id": 1, "name": "id", "required": True, "type": "long"},
        {"id": 2, "name": "n", "required": False, "type": type_},
    ]
    schema = {"type": "struct", "schema-id": 0, "fields": fields, "identifier-field-ids": [1]}
    return plan(
        schema, changes, policy="evolve", key=["id"], extra=[], last_column_id=2, type_changes=lambda: rules
    )


def change(value: object, type_: Any = None) -> Change:
    declared = Declared({"id": "long", "n": type_}) if type_ else None
    return Change(0, ("s", "t"), "insert", after={"id": 1, "n": value}, declared=declared)


def test_numbers_without_a_type() -> None:
    convert = TypeChangeRules("convert", follows_source=True)
    assert planned(convert, [change(2.0)]).conversions == {}
    assert planned(convert, [change(2.5)]).conversions["n"].to == ("double", "string")
    for value in (2**70, "text", True, [1]):  # dead letters: no source says that the column has another type
        assert planned(convert, [change(value)]).conversions == {}
    for rules in (TypeChangeRules("reject", follows_source=True), TypeChangeRules("convert")):
        assert planned(rules, [change(2.5)]).conversions == {}


def test_a_table_that_its_owner_made_changes_only_for_values_that_do_not_fit() -> None:
    owners, followers = TypeChangeRules("convert"), TypeChangeRules("convert", follows_source=True)
    assert planned(owners, [change("12", "string")]).conversions == {}
    assert planned(owners, [change("x", "string")]).conversions["n"].to == ("string",)
    assert planned(followers, [change("12", "string")]).conversions["n"].to == ("string",)


def test_a_batch_with_two_types_gets_one_that_holds_both() -> None:
    rules = TypeChangeRules("convert", follows_source=True)
    both = [change("a", "string"), change(5, "long")]
    assert planned(rules, both, "string").conversions == {}
    assert planned(rules, both, "long").conversions["n"].to == ("string",)


def test_a_whole_number_is_not_rounded_in_a_column_of_doubles() -> None:
    rules = TypeChangeRules("convert", follows_source=True)
    assert planned(rules, [change(2**53, "long")], "double").conversions == {}
    assert planned(rules, [change(2**53 + 1, "long")], "double").conversions["n"].to == ("string",)


def test_a_column_of_lists_can_stay() -> None:
    rules = TypeChangeRules("convert", follows_source=True)
    known = {"type": "list", "element-id": 3, "element": "string", "element-required": False}
    declared = {"type": "list", "element": "string"}
    assert planned(rules, [change(["a"], declared)], known).conversions == {}


def test_split_renames_the_old_column() -> None:
    rules = TypeChangeRules("split", follows_source=True)
    found = planned(rules, [change("x", "string")])
    assert found.schema is not None
    assert [(each["id"], each["name"], each["type"]) for each in found.schema["fields"]] == [
        (1, "id", "long"),
        (2, "n__long", "long"),
        (3, "n", "string"),
    ]
    assert found.split == ["n"]


def test_a_column_of_a_partition_is_split() -> None:
    rules = TypeChangeRules("convert", follows_source=True, fixed_ids=frozenset({2}))
    assert planned(rules, [change("x", "string")]).split == ["n"]
