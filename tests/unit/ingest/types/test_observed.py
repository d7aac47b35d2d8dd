"""What a batch shows of its columns."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ingest.change import Change, Declared
from ingest.types.iceberg import distinct, observe_columns
from tests.unit.ingest.types.changes import declared, delete, insert, truncate, update

ROWS = st.dictionaries(st.sampled_from(["id", "a", "b"]), st.none() | st.integers(0, 3))
WHOLE = st.builds(lambda row: {"id": 1} | row, ROWS)
TYPES = [None, declared({"a": "int"}), declared({"a": "int"}), declared({"b": "unknown", "id": "long"})]


def changes_of(rows: st.SearchStrategy[dict[str, Any]], types: list[Declared | None]) -> Any:
    return st.lists(
        st.builds(
            lambda operation, before, after, type_: Change(
                0, ("t",), operation, before=before, after=after, declared=type_
            ),
            st.sampled_from(["insert", "update", "delete", "truncate"]),
            st.none() | rows,
            st.none() | rows,
            st.sampled_from(types),
        )
    )


BATCHES = changes_of(ROWS, TYPES) | changes_of(WHOLE, TYPES) | changes_of(WHOLE, [None])


def staged_of(change: Change, key: list[str]) -> dict[str, Any]:
    """By the book: of a delete its key, of a partial row the key that `before` has."""
    before, after = change.before or {}, change.after or {}
    if change.operation == "delete":
        known = change.before if change.before is not None else after
        return {name: known[name] for name in key if name in known}
    return after | {name: before[name] for name in key if name in before and name not in after}


@given(BATCHES, st.sampled_from([["id"], ["id", "a"], []]))
def test_names_and_values_are_those_of_the_rows_one_by_one(changes: list[Change], key: list[str]) -> None:
    seen = observe_columns(changes, key, "_cdc_row_id")
    rows = [(one, staged_of(one, key)) for one in changes if one.operation != "truncate"]
    types = [one.declared for one in changes if one.declared is not None]
    named = [name for one in types for name, type_ in one.columns.items() if type_ != "unknown"]
    names = dict.fromkeys([*named, *(name for _, row in rows for name in row)])
    assert list(seen.names) == list(names)
    for name in ("id", "a", "b", "other"):
        expected = [row[name] for one, row in rows if one.declared is None and name in row]
        if types and name not in named:
            typed = [one.after or {} for one in changes if one.declared is not None]
            expected += [row[name] for row in typed if name in row]
        assert seen.undeclared(name) == (expected if name in names else [])


def test_a_column_that_first_appears_late_is_seen() -> None:
    rows = [insert({"id": number}) for number in range(500)]
    assert list(observe_columns([*rows, update({"id": 1, "new": 2})], ["id"], "r").names) == ["id", "new"]
    assert list(observe_columns([delete({"id": 1, "gone": 2}), truncate(), *rows], ["id"], "r").names) == [
        "id"
    ]


@given(st.lists(st.sampled_from(TYPES)))
def test_equal_declarations_are_one(given_: list[Declared | None]) -> None:
    different, places = distinct([insert({}, declared=one) for one in given_])
    assert [different[place] for place in places] == given_
    assert len({str(one) for one in different}) == len(different) == len({str(one) for one in given_})
    assert list(dict.fromkeys(places)) == list(range(len(different)))
