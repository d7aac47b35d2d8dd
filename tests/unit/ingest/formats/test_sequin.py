"""Sequin's messages."""

from __future__ import annotations

import orjson

from ingest.change import RequestContext, position_of
from ingest.formats import sequin
from tests.unit.ingest.formats.recorded import changed, parse, sample, without

ORDERS = ("shop", "orders")


def test_the_operations() -> None:
    insert, update, delete, read = parse(sequin, sample("sequin", "changes")).changes
    assert [change.operation for change in (insert, update, delete, read)] == [
        "insert",
        "update",
        "delete",
        "read",
    ]
    assert {change.table for change in (insert, update, delete, read)} == {ORDERS}
    assert (insert.before, insert.after) == (None, {"id": 7, "status": "new", "total": 12.5, "note": None})
    assert delete.after is None
    assert delete.before == {"id": 8, "status": None, "total": None, "note": None}
    assert read.after == {"id": 1, "status": "old", "total": 1.0, "note": "x"}


def test_an_unchanged_large_value_is_left_out() -> None:
    update = parse(sequin, sample("sequin", "changes")).changes[1]
    assert update.after == {"id": 7, "status": "paid", "total": 12.5}
    assert update.before == {"id": 7, "status": "new", "total": 12.5}
    assert update.unchanged == ("note",)  # any other column that the row lacks was dropped


def test_the_placeholder_as_a_true_value_stays() -> None:
    event = changed(sample("sequin", "changes")[1], "changes", to={"note": "before"})
    after = parse(sequin, [event]).changes[0].after
    assert after is not None
    assert after["note"] == "unchanged_toast"


def test_an_update_without_old_values_has_no_before() -> None:
    event = changed(sample("sequin", "changes")[1], "changes", to=None)
    assert parse(sequin, [event]).changes[0].before is None


def test_position_transaction_and_identity() -> None:
    insert, update, delete, read = parse(sequin, sample("sequin", "changes")).changes
    assert insert.position == position_of(301989888, 0)
    assert insert.position < update.position < delete.position
    assert update.transaction == delete.transaction == "301990000"
    assert not delete.transaction_ends
    assert (read.position, read.transaction) == ("", None)
    assert insert.identity == "MzAxOTg5ODg4OjA="
    assert insert.source == "sequin:shop-prod"
    assert insert.time_ms == 1794736800250


def test_the_request_wins() -> None:
    context = RequestContext(table=("lake", "o"), source="mine")
    change = parse(sequin, sample("sequin", "changes"), context).changes[0]
    assert (change.table, change.source) == (("lake", "o"), "mine")


def test_without_a_schema_the_namespace_is_the_default() -> None:
    event = without(sample("sequin", "changes")[0], "metadata", "table_schema")
    assert parse(sequin, [event], RequestContext(namespace=("a", "b"))).changes[0].table == (
        "a",
        "b",
        "orders",
    )


def test_what_is_refused() -> None:
    good = sample("sequin", "changes")[0]
    events = [
        changed(good, "action", to="upsert"),
        changed(good, "record", to=[1]),
        without(good, "metadata", "table_name"),
        changed(good, "metadata", "table_name", to="a\u0000b"),
    ]
    rejects = parse(sequin, events).rejects
    assert [refused.code for refused in rejects] == ["unknown-operation", "no-row", "no-table", "bad-table"]
    assert [refused.table for refused in rejects] == [ORDERS, ORDERS, None, None]
    assert all(
        refused.original == orjson.dumps(event) for refused, event in zip(rejects, events, strict=True)
    )
    assert "insert, update, delete and read" in rejects[0].reason


def test_recognises() -> None:
    assert all(sequin.recognises(event) for event in sample("sequin", "changes"))
    assert not sequin.recognises({"record": {}, "action": "insert"})
    assert not sequin.recognises({"record": {}, "action": "insert", "metadata": None})
