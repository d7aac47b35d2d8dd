"""Hasura's event triggers."""

from __future__ import annotations

from ingest.change import position_of
from ingest.formats import hasura
from tests.unit.ingest.formats.recorded import changed, parse, sample, without


def test_the_operations() -> None:
    insert, update, delete, manual = parse(hasura, sample("hasura", "changes")).changes
    assert [change.operation for change in (insert, update, delete, manual)] == [
        "insert",
        "update",
        "delete",
        "update",
    ]
    assert {change.table for change in (insert, update, delete, manual)} == {("public", "orders")}
    assert (insert.before, insert.after) == (None, {"id": 7, "status": "new"})
    assert (update.before, update.after) == ({"id": 7, "status": "new"}, {"id": 7, "status": "paid"})
    assert (delete.before, delete.after) == ({"id": 7, "status": "paid"}, None)
    assert (manual.before, manual.after) == (None, {"id": 8, "status": "new"})
    assert (update.unchanged, manual.unchanged) == ((), ())  # rows are whole


def test_position_and_identity() -> None:
    changes = parse(hasura, sample("hasura", "changes")).changes
    assert changes[0].position == position_of(1794736800250001)
    assert [change.position for change in changes] == sorted(change.position for change in changes)
    assert changes[0].time_ms == 1794736800250
    assert changes[0].identity == "5f1d6b0a-8f6e-4c1c-9c3e-1e6a52f6f0a1"
    assert changes[0].source == "hasura"


def test_without_id_and_time() -> None:
    event = without(without(sample("hasura", "changes")[0], "id"), "created_at")
    change = parse(hasura, [event]).changes[0]
    assert (change.identity, change.position, change.time_ms) == ("", "", None)


def test_what_is_refused() -> None:
    insert, _, delete, _ = sample("hasura", "changes")
    events = [
        changed(insert, "event", "op", to="MERGE"),
        changed(insert, "event", "data", to=None),
        changed(delete, "event", "data", "old", to=None),
        changed(insert, "table", to="orders"),
    ]
    rejects = parse(hasura, events).rejects
    assert [refused.code for refused in rejects] == ["unknown-operation", "no-row", "no-row", "no-table"]


def test_recognises() -> None:
    assert all(hasura.recognises(event) for event in sample("hasura", "changes"))
    assert not hasura.recognises({"event": {"op": "INSERT"}, "table": "t"})
