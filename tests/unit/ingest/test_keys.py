"""Where the key of a table comes from."""

from __future__ import annotations

from typing import Any

from ingest.change import Change
from ingest.identity import is_append_only, key_of_table, with_row_ids

T = ("ns", "t")
SCHEMA = {
    "fields": [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}],
    "identifier-field-ids": [2],
}


def row(**more: Any) -> Change:
    return Change(0, T, more.pop("operation", "insert"), **more)


def test_best_first() -> None:
    said = [row(key=("k",), after={"k": 1, "id": 1}, row_id="1")]
    assert key_of_table(("x",), SCHEMA, said) == ("x",)
    assert key_of_table(None, SCHEMA, said) == ("b",)
    assert key_of_table(None, None, said) == ("k",)


def test_a_table_without_identifier_fields_has_no_key_whatever_producers_say() -> None:
    assert key_of_table(None, {"fields": []}, [row(key=("k",))]) == ()


def test_the_name_of_a_row_is_its_id_where_that_is_in_the_row() -> None:
    named = [row(row_id="7", after={"id": 7}), row(operation="delete", row_id="8")]
    assert key_of_table(None, None, named) == ("id",)
    assert key_of_table(None, None, [row(row_id="7", after={"id": 9})]) == ("_cdc_row_id",)
    assert key_of_table(None, None, [row(row_id="7", after={"x": 1})]) == ("_cdc_row_id",)


def test_a_column_id_is_the_key_of_a_change_stream_but_not_of_plain_rows() -> None:
    assert key_of_table(None, None, [row(after={"id": 1}, position="1")]) == ("id",)
    assert key_of_table(None, None, [row(after={"x": 1}, position="1")]) == ()
    assert key_of_table(None, None, [row(after={"id": 1})]) == ("id",)
    assert key_of_table(None, None, [row(after={"id": 1}, key=())]) == ()
    assert key_of_table(None, None, [row(operation="truncate")]) == ()


def test_row_ids_become_a_column() -> None:
    changes = [row(row_id="7", after={"x": 1}), row(operation="delete", row_id="8"), row(after={})]
    with_row_ids(changes)
    assert changes[0].after == {"x": 1, "_cdc_row_id": "7"}
    assert changes[1].before == {"_cdc_row_id": "8"}
    assert changes[2].after == {}


def test_plain_rows_are_only_appended() -> None:
    assert is_append_only([row(after={"x": 1}, key=())])
    assert not is_append_only([row(operation="update", after={"x": 1}, key=())])
    assert not is_append_only([row(after={"x": 1})])
