"""Records of AWS DMS."""

from __future__ import annotations

from ingest.change import position_of
from ingest.formats import dms
from tests.unit.ingest.formats.recorded import changed, parse, sample, without


def test_the_operations() -> None:
    load, insert, update, delete = parse(dms, sample("dms", "changes")).changes
    assert [change.operation for change in (load, insert, update, delete)] == [
        "read",
        "insert",
        "update",
        "delete",
    ]
    assert {change.table for change in (load, insert, update, delete)} == {("shop", "orders")}
    assert load.after == {"id": 1, "status": "old"}
    assert (insert.before, insert.after) == (None, {"id": 7, "status": "new"})
    assert (delete.before, delete.after) == ({"id": 7, "status": "paid"}, None)
    assert {change.source for change in (load, insert, update, delete)} == {"dms"}


def test_a_column_of_the_before_image_that_is_gone_is_null() -> None:
    update = parse(dms, sample("dms", "changes")).changes[2]
    assert update.after == {"id": 7, "status": "paid", "note": None}
    assert update.before == {"id": 7, "status": "new", "note": "x"}


def test_a_delete_that_has_only_a_before_image() -> None:
    event = {**without(sample("dms", "changes")[3], "data"), "before-image": {"id": 7}}
    assert parse(dms, [event]).changes[0].before == {"id": 7}


def test_position_transaction_identity_and_time() -> None:
    changes = parse(dms, sample("dms", "changes")).changes
    load, insert, update, _ = changes
    assert insert.position == position_of(1794736800970360)
    assert [change.position for change in changes] == sorted(change.position for change in changes)
    assert (load.transaction, insert.transaction) == (None, "87978110091475")
    assert insert.time_ms == 1794736800000
    assert update.time_ms == 1794736801970
    assert len({change.identity for change in changes}) == 4


def test_a_restarted_task_sends_the_same_record_later() -> None:
    event = sample("dms", "changes")[1]
    later = changed(event, "metadata", "timestamp", to="2026-11-15T11:00:00.000000Z")
    one, two = parse(dms, [event, later]).changes
    assert one.identity == two.identity
    assert one.position < two.position


def test_without_a_time_there_is_no_identity() -> None:
    event = without(sample("dms", "changes")[0], "metadata", "timestamp")
    assert parse(dms, [event]).changes[0].identity == ""


def test_control_records_are_ignored() -> None:
    assert list(parse(dms, sample("dms", "control")).ignored.values()) == [
        "control record: 'create-table'",
        "control record: 'create-table'",
        "control record: 'drop-table'",
        "a table of DMS itself",
    ]


def test_what_is_refused() -> None:
    good = sample("dms", "changes")[1]
    events = [
        changed(good, "metadata", "operation", to="merge"),
        without(good, "data"),
        without(good, "metadata", "table-name"),
    ]
    rejects = parse(dms, events).rejects
    assert [refused.code for refused in rejects] == ["unknown-operation", "no-row", "no-table"]


def test_recognises() -> None:
    for name in ("changes", "control"):
        assert all(dms.recognises(event) for event in sample("dms", name))
    assert not any(dms.recognises(event) for event in sample("sequin", "changes"))
