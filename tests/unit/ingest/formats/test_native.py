"""The native format."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from ingest.change import RequestContext, position_of
from ingest.formats import detect, native
from ingest.formats.detect import parse_events
from tests.unit.ingest.formats.recorded import changed, parse, sample, without

HERE = RequestContext()
SOURCE = RequestContext(source="do-1")
EVENT = sample("native", "events")[1]


def test_recorded_events() -> None:
    parsed = parse(native, sample("native", "events"), SOURCE)
    first, second, third, fourth = parsed.changes
    assert (first.table, first.operation, first.row_id) == (("shop", "orders"), "insert", "o-1")
    assert first.after == {"id": 1, "total": 9007199254740993}
    assert (first.source, first.number, first.identity) == ("do-1", 1, "")
    assert first.position == position_of(1)
    assert first.time_ms == 1763280000001
    assert (second.before, second.after) == ({"id": 1}, {"id": 1, "total": 7})
    assert (second.transaction, second.transaction_ends, second.key) == ("t-1", False, None)
    assert (third.operation, third.before, third.after) == ("delete", {"id": 1}, None)
    assert (third.transaction, third.transaction_ends, third.key) == ("t-1", True, ("id",))
    assert (fourth.after, fourth.key, fourth.transaction) == ({"id": 4}, ("id",), "12")


def test_without_a_source_the_content_is_the_identity() -> None:
    (first, second, other) = parse(native, [EVENT, EVENT, changed(EVENT, "after", to={"id": 2})]).changes
    assert (first.source, first.position, first.number) == ("", "", None)
    assert first.identity == second.identity != other.identity
    assert len(first.identity) == 32


@pytest.mark.parametrize("field", ["sequence", "timestamp", "rowId", "table"])
def test_each_field_is_part_of_the_identity(field: str) -> None:
    value: Any = "other" if isinstance(EVENT[field], str) else EVENT[field] + 1
    first, second = parse(native, [EVENT, changed(EVENT, field, to=value)]).changes
    assert first.identity != second.identity


@pytest.mark.parametrize(
    ("table", "context", "expected"),
    [
        ("a.b.c", HERE, ("a", "b", "c")),
        ("t", HERE, ("default", "t")),
        ("t", RequestContext(namespace=("x", "y")), ("x", "y", "t")),
        ("a.b", RequestContext(table=("p", "q")), ("p", "q")),
        (None, RequestContext(table=("p", "q")), ("p", "q")),
        (["x"], RequestContext(table=("p", "q")), ("p", "q")),
    ],
)
def test_table(table: object, context: RequestContext, expected: tuple[str, ...]) -> None:
    assert parse(native, [changed(EVENT, "table", to=table)], context).changes[0].table == expected


@pytest.mark.parametrize("word", ["INSERT", "insert", "UPDATE", "update"])
def test_operations_in_both_cases(word: str) -> None:
    (change,) = parse(native, [changed(EVENT, "operation", to=word)]).changes
    assert change.operation == word.lower()


def test_truncate_needs_no_row() -> None:
    event = {"sequence": 1, "timestamp": 2, "operation": "TRUNCATE", "table": "t"}
    (change,) = parse(native, [event]).changes
    assert (change.operation, change.before, change.after, change.row_id) == ("truncate", None, None, None)


def test_a_delete_needs_no_row_where_the_row_id_is_the_key() -> None:
    (change,) = parse(native, [{**without(EVENT, "before"), "operation": "DELETE"}]).changes
    assert (change.before, change.after, change.row_id) == (None, None, "o-2")


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("sequence", None, "bad-sequence"),
        ("sequence", "1", "bad-sequence"),
        ("sequence", 1.5, "bad-sequence"),
        ("sequence", True, "bad-sequence"),
        ("sequence", -1, "bad-sequence"),
        ("sequence", 2**63, "bad-sequence"),
        ("timestamp", "2026", "bad-timestamp"),
        ("timestamp", None, "bad-timestamp"),
        ("timestamp", 10**16, "bad-timestamp"),
        ("operation", "UPSERT", "no-operation"),
        ("operation", None, "no-operation"),
        ("operation", ["INSERT"], "no-operation"),
        ("table", "", "no-table"),
        ("table", None, "no-table"),
        ("table", 7, "bad-table"),
        ("table", "a..b", "bad-table"),
        ("table", "a.\x00", "bad-table"),
        ("rowId", 7, "bad-row-id"),
        ("rowId", None, "bad-row-id"),
        ("after", None, "no-after"),
        ("after", {}, "no-after"),
        ("after", "x", "bad-row"),
        ("before", "x", "bad-row"),
        ("metadata", "x", "bad-metadata"),
        ("primaryKey", "id", "bad-key"),
        ("primaryKey", [1], "bad-key"),
    ],
)
def test_rejects(field: str, value: object, code: str) -> None:
    event = changed(EVENT, field, to=value)
    parsed = parse(native, [EVENT, event, EVENT], SOURCE)
    assert [change.index for change in parsed.changes] == [0, 2]
    (reject,) = parsed.rejects
    assert (reject.index, reject.code, orjson.loads(reject.original)) == (1, code, event)
    assert reject.source == "do-1"
    if field not in ("table", "sequence"):
        assert reject.table == ("shop", "orders")
        assert (reject.number, reject.position) == (2, position_of(2))


def test_a_delete_by_key_needs_the_key() -> None:
    event = {**without(EVENT, "before"), "operation": "DELETE", "primaryKey": ["id"]}
    assert parse(native, [event]).rejects[0].code == "no-before"


def test_the_key_of_the_request_wins() -> None:
    event = {**EVENT, "primaryKey": ["id"]}
    assert parse(native, [event], RequestContext(key=("a", "b"))).changes[0].key == ("a", "b")


def test_large_integers_at_any_depth() -> None:
    event = changed(EVENT, "after", to={"a": {"b": ["__bigint__:-123456789012345678901", "__bigint__:x"]}})
    for parsed in (
        parse(native, [event]),
        detect.parse(orjson.dumps(event), HERE),
        parse_events([event], HERE),
    ):
        assert parsed.changes[0].after == {"a": {"b": [-123456789012345678901, "__bigint__:x"]}}


@pytest.mark.parametrize(
    ("event", "is_native"),
    [
        (EVENT, True),
        (without(EVENT, "sequence"), True),
        (without(EVENT, "operation"), True),
        (without(without(EVENT, "rowId"), "sequence"), False),
        ({"sequence": 1, "operation": "x"}, False),
        ([EVENT], False),
    ],
)
def test_recognises(event: object, is_native: bool) -> None:
    assert native.recognises(event) is is_native
