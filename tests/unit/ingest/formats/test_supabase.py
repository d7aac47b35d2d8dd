"""Supabase's webhooks."""

from __future__ import annotations

from ingest.formats import supabase
from tests.unit.ingest.formats.recorded import changed, parse, sample, without


def test_the_operations() -> None:
    insert, update, delete = parse(supabase, sample("supabase", "changes")).changes
    assert [change.operation for change in (insert, update, delete)] == ["insert", "update", "delete"]
    assert {change.table for change in (insert, update, delete)} == {("public", "orders")}
    assert (insert.before, insert.after) == (None, {"id": 7, "status": "new"})
    assert (update.before, update.after) == ({"id": 7, "status": "new"}, {"id": 7, "status": "paid"})
    assert (delete.before, delete.after) == ({"id": 7, "status": "paid"}, None)
    assert {change.source for change in (insert, update, delete)} == {"supabase"}
    assert update.unchanged == ()  # the row is whole


def test_arrival_is_the_order_and_nothing_is_a_repetition() -> None:
    change = parse(supabase, sample("supabase", "changes")).changes[0]
    assert (change.position, change.identity) == ("", "")


def test_what_is_refused() -> None:
    insert, update, delete = sample("supabase", "changes")
    events = [
        changed(insert, "type", to="TRUNCATE"),
        changed(update, "record", to=None),
        changed(delete, "old_record", to=None),
        without(insert, "table"),
    ]
    rejects = parse(supabase, events).rejects
    assert [refused.code for refused in rejects] == ["unknown-operation", "no-row", "no-row", "no-table"]
    assert "old_record" in rejects[2].reason


def test_recognises() -> None:
    assert all(supabase.recognises(event) for event in sample("supabase", "changes"))
    assert not any(supabase.recognises(event) for event in sample("canal", "changes"))
    assert not supabase.recognises({"type": "INSERT", "table": "t", "record": {}})
