"""Canal's messages, and those of its relatives."""

from __future__ import annotations

import orjson

from ingest.change import position_of
from ingest.formats import canal
from tests.unit.ingest.formats.recorded import changed, parse, sample, without

ORDERS = ("shop", "orders")


def test_many_rows_in_a_message() -> None:
    parsed = parse(canal, sample("canal", "changes"))
    assert [(change.index, change.operation) for change in parsed.changes] == [
        (0, "insert"),
        (0, "insert"),
        (1, "update"),
        (1, "update"),
        (2, "delete"),
        (3, "truncate"),
    ]
    assert {change.table for change in parsed.changes} == {ORDERS}
    assert [change.key for change in parsed.changes] == [("id",)] * 5 + [None]
    assert parsed.changes[0].time_ms == 1763200800000


def test_values_stay_text_and_types_are_declared() -> None:
    first, second = parse(canal, sample("canal", "changes")[:1]).changes
    assert first.after == {
        "id": "18446744073709551615",
        "total": "12.50",
        "at": "2026-11-15 10:00:00.250000",
        "paid": "1",
        "photo": "AP9B",  # the bytes 0, 255 and 65
        "extra": '{"a": 1}',
    }
    assert second.after is not None
    assert second.after["photo"] is None
    assert first.declared is not None
    assert first.declared.columns == {
        "id": "decimal(20,0)",
        "total": "decimal(10,2)",
        "at": "timestamp",
        "paid": "int",
        "photo": "binary",
        "extra": "string",
    }
    assert first.declared.encodings == {"photo": "base64"}


def test_old_values_belong_to_their_row() -> None:
    first, second = parse(canal, sample("canal", "changes")[1:2]).changes
    assert first.before == {"id": "7", "status": "new", "total": "1.00"}
    assert second.before == {"id": "8", "status": None, "total": "2.00"}
    assert second.after == {"id": "9", "status": "paid", "total": "2.00"}


def test_a_delete_with_jdbc_types_alone() -> None:
    delete = parse(canal, sample("canal", "changes")[2:3]).changes[0]
    assert (delete.before, delete.after) == ({"id": "7", "status": "paid"}, None)
    assert delete.declared is not None
    assert delete.declared.columns == {"id": "long", "status": "string"}


def test_bytes_that_are_not_bytes_are_kept_as_text() -> None:
    event = changed(sample("canal", "changes")[0], "data", 0, "photo", to="€")
    after = parse(canal, [event]).changes[0].after
    assert after is not None
    assert after["photo"] == "4oKs"


def test_messages_of_one_batch_share_an_id_and_differ() -> None:
    parsed = parse(canal, sample("canal", "changes"))
    identities = [change.identity for change in parsed.changes]
    assert len(set(identities)) == len(identities)
    assert "" not in identities
    assert [change.identity for change in parse(canal, sample("canal", "changes")).changes] == identities


def test_equal_messages_in_one_request_are_two() -> None:
    event = sample("canal", "changes")[2]
    one, two = parse(canal, [event, event]).changes
    assert one.identity != two.identity


def test_without_a_number_or_a_time_a_message_has_no_identity() -> None:
    bare = sample("canal", "relatives")[2]
    assert parse(canal, [bare]).changes[0].identity == ""


def test_relatives() -> None:
    ticdc, drs, flink = parse(canal, sample("canal", "relatives")).changes
    assert ticdc.position == position_of(429918007904436226)
    assert ticdc.identity
    assert (drs.operation, drs.time_ms) == ("read", 1763200700000)
    assert (flink.operation, flink.before, flink.declared) == ("delete", {"id": "1"}, None)


def test_ddl_and_the_like_are_ignored() -> None:
    assert list(parse(canal, sample("canal", "ignored")).ignored.values()) == [
        "DDL",
        "DDL",
        "heartbeat",
        "watermark",
    ]


def test_a_message_without_rows_is_ignored() -> None:
    event = changed(sample("canal", "changes")[0], "data", to=[])
    assert parse(canal, [event]).ignored == {0: "a message without rows"}


def test_one_bad_row_does_not_hurt_the_others() -> None:
    event = changed(sample("canal", "changes")[1], "data", 0, to="oops")
    parsed = parse(canal, [event])
    assert [change.after for change in parsed.changes] == [{"id": "9", "status": "paid", "total": "2.00"}]
    (refused,) = parsed.rejects
    assert (refused.code, refused.table) == ("no-row", ORDERS)
    alone = orjson.loads(refused.original)
    assert (alone["data"], alone["old"]) == (["oops"], [{"status": "new"}])


def test_what_is_refused() -> None:
    good = sample("canal", "changes")[0]
    events = [changed(good, "type", to="MERGE"), without(good, "table"), 7]
    assert [refused.code for refused in parse(canal, events).rejects] == [
        "unknown-operation",
        "no-table",
        "not-object",
    ]


def test_recognises() -> None:
    for name in ("changes", "ignored", "relatives"):
        assert all(canal.recognises(event) for event in sample("canal", name))
    assert not any(canal.recognises(event) for event in sample("maxwell", "transaction"))
    assert not canal.recognises({"type": "INSERT", "record": {}})
