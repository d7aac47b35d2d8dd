"""Maxwell's rows."""

from __future__ import annotations

import pytest

from ingest.change import position_of
from ingest.formats import maxwell
from tests.unit.ingest.formats.recorded import changed, parse, sample, without


def test_a_transaction() -> None:
    insert, update, delete = parse(maxwell, sample("maxwell", "transaction")).changes
    assert [change.operation for change in (insert, update, delete)] == ["insert", "update", "delete"]
    assert (insert.table, delete.table) == (("shop", "orders"), ("shop", "payments"))
    assert insert.after == {"id": 7, "status": "new", "tags": ["a", "b"], "photo": "AAEC"}
    assert update.after == {"id": 7, "status": "paid"}
    assert update.before == {"id": 7, "status": "new"}
    assert (delete.before, delete.after) == ({"id": 3, "part": 1, "amount": "9.90"}, None)
    assert (insert.key, delete.key) == (("id",), ("id", "part"))
    assert {change.transaction for change in (insert, update, delete)} == {"4711"}
    assert [change.transaction_ends for change in (insert, update, delete)] == [False, False, True]
    assert insert.time_ms == 1763200800000
    assert insert.source == "maxwell:11"


def test_positions_follow_the_binlog_and_the_last_row_is_last() -> None:
    events = sample("maxwell", "transaction")
    insert, update, delete = parse(maxwell, events).changes
    assert insert.position == position_of(9, 1204, 0)
    assert insert.position < update.position < delete.position
    same = changed(events[2], "position", to="mysql-bin.000009:1204")
    assert parse(maxwell, [same]).changes[0].position > update.position


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("bin.1000000:5", position_of(1000000, 5, 0)),
        ("odd:name:5", position_of("odd:name", 5, 0)),
        ("bin.000001", ""),
        (":5", ""),
        (None, ""),
        (5, ""),
    ],
)
def test_odd_positions(text: object, position: str) -> None:
    event = changed(sample("maxwell", "transaction")[0], "position", to=text)
    assert parse(maxwell, [event]).changes[0].position == position


def test_rows_of_one_binlog_event_are_told_apart() -> None:
    identities = [change.identity for change in parse(maxwell, sample("maxwell", "transaction")).changes]
    assert len(set(identities)) == 3
    assert "" not in identities


def test_equal_rows_without_an_offset_are_never_taken_for_one() -> None:
    first, second, last = parse(maxwell, sample("maxwell", "default_settings")).changes
    assert (first.identity, second.identity) == ("", "")
    assert last.identity
    assert last.transaction_ends


def test_with_a_key_the_position_and_the_row_are_enough() -> None:
    event = without(sample("maxwell", "transaction")[0], "xoffset")
    other = changed(event, "data", "id", to=8)
    one, again, second = parse(maxwell, [event, event, other]).changes
    assert one.identity == again.identity
    assert one.identity != second.identity


def test_a_restarted_server_counts_again() -> None:
    event = sample("maxwell", "transaction")[0]
    later = changed(event, "ts", to=1763200900)
    one, two = parse(maxwell, [event, later]).changes
    assert one.identity != two.identity


def test_a_column_that_became_null_and_was_left_out() -> None:
    event = changed(sample("maxwell", "transaction")[1], "data", to={"id": 7})
    update = parse(maxwell, [event]).changes[0]
    assert update.after == {"id": 7, "status": None}
    assert update.before == {"id": 7, "status": "new"}


def test_a_bootstrap() -> None:
    parsed = parse(maxwell, sample("maxwell", "bootstrap"))
    assert [(change.operation, change.after, change.identity) for change in parsed.changes] == [
        ("read", {"id": 1, "status": "old"}, "")
    ]
    assert parsed.ignored == {0: "start of a bootstrap", 2: "end of a bootstrap"}


def test_ddl_is_ignored() -> None:
    assert set(parse(maxwell, sample("maxwell", "ddl")).ignored.values()) == {"DDL"}


def test_a_commit_without_a_transaction_id_ends_nothing() -> None:
    event = without(sample("maxwell", "transaction")[2], "xid")
    change = parse(maxwell, [event]).changes[0]
    assert (change.transaction, change.transaction_ends) == (None, False)


def test_what_is_refused() -> None:
    good = sample("maxwell", "transaction")[0]
    events = [
        changed(good, "type", to="replace"),
        changed(good, "data", to=None),
        {**without(good, "data"), "encrypted": {"iv": "x", "bytes": "y"}},
        without(good, "table"),
    ]
    rejects = parse(maxwell, events).rejects
    assert [refused.code for refused in rejects] == ["unknown-operation", "no-row", "encrypted", "no-table"]
    assert rejects[2].source == "maxwell:11"


def test_recognises() -> None:
    for name in ("transaction", "bootstrap", "ddl", "default_settings"):
        assert all(maxwell.recognises(event) for event in sample("maxwell", name))
    assert not any(maxwell.recognises(event) for event in sample("canal", "changes"))
