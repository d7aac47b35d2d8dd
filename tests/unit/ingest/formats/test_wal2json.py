"""wal2json, format versions 1 and 2."""

from __future__ import annotations

import orjson
import pytest

from ingest.change import TransactionEnd, position_of
from ingest.formats import wal2json
from tests.unit.ingest.formats.recorded import changed, parse, sample, without

END_1 = 0x16_B374D848
END_2 = 0x16_B374D930
ORDERS = ("shop", "orders")


def test_version_1_is_one_transaction() -> None:
    parsed = parse(wal2json, sample("wal2json", "version1"))
    insert, update, delete, truncate = parsed.changes
    assert [change.operation for change in parsed.changes] == ["insert", "update", "delete", "truncate"]
    assert [change.index for change in parsed.changes] == [0, 0, 0, 0]
    assert [change.table for change in parsed.changes] == [
        ORDERS,
        ORDERS,
        ("shop", "payments"),
        ("shop", "carts"),
    ]
    assert {change.transaction for change in parsed.changes} == {"590"}
    assert [change.transaction_ends for change in parsed.changes] == [False, False, False, True]
    assert insert.position == position_of(END_1, 0)
    assert [change.position for change in parsed.changes] == sorted(c.position for c in parsed.changes)
    assert insert.after == {
        "id": 7,
        "note": "x",
        "total": 12.5,
        "photo": "00ff41",
        "at": "2026-11-15 10:00:00+00",
    }
    assert (update.before, update.after) == ({"id": 8}, {"id": 9, "total": 1.0})
    assert (delete.before, delete.after) == ({"id": 3, "part": 1}, None)
    assert (truncate.before, truncate.after) == (None, None)
    assert insert.time_ms == 1794736800250
    assert parsed.ignored == {1: "a transaction without changes", 2: "logical message"}


def test_version_1_types_and_keys() -> None:
    insert, update, delete, truncate = parse(wal2json, sample("wal2json", "version1")).changes
    assert insert.declared is not None
    assert insert.declared.columns == {
        "id": "long",
        "note": "string",
        "total": "decimal(10,2)",
        "photo": "binary",
        "at": "timestamptz",
    }
    assert insert.declared.encodings == {"photo": "hex"}
    assert (insert.key, update.key) == (("id",), ("id",))
    assert delete.key is None  # two columns may be the key, or the whole row
    assert truncate.key is None


def test_version_1_identity() -> None:
    parsed = parse(wal2json, sample("wal2json", "version1")[:1])
    identities = [change.identity for change in parsed.changes]
    assert len(set(identities)) == 4
    again = parse(wal2json, sample("wal2json", "version1")[:1])
    assert [change.identity for change in again.changes] == identities


def test_version_1_without_options() -> None:
    event = {"change": sample("wal2json", "version1")[0]["change"]}
    changes = parse(wal2json, [event]).changes
    assert {change.identity for change in changes} == {""}
    assert {change.position for change in changes} == {""}
    assert len({change.transaction for change in changes}) == 1
    assert changes[0].transaction
    assert changes[-1].transaction_ends


def test_version_1_named_by_its_end() -> None:
    event = without(sample("wal2json", "version1")[0], "xid")
    assert parse(wal2json, [event]).changes[0].transaction == "16b374d848"


def test_version_1_one_bad_change_does_not_hurt_the_others() -> None:
    event = changed(sample("wal2json", "version1")[0], "change", 4, to={"kind": "insert", "table": "t"})
    parsed = parse(wal2json, [event])
    assert len(parsed.changes) == 3
    assert parsed.changes[-1].transaction_ends
    (refused,) = parsed.rejects
    assert refused.code == "no-row"
    alone = orjson.loads(refused.original)
    assert alone == {**event, "change": [{"kind": "insert", "table": "t"}]}


def test_version_2() -> None:
    parsed = parse(wal2json, sample("wal2json", "version2"))
    insert, update, delete, truncate = parsed.changes
    assert [change.operation for change in parsed.changes] == ["insert", "update", "delete", "truncate"]
    assert insert.after == {"id": 10, "note": None, "tags": "{1,2}"}
    assert update.after == {"id": 10, "tags": "{3}"}  # note was not touched and keeps its value
    assert (update.before, delete.before) == ({"id": 10}, {"id": 10})
    assert {change.transaction for change in parsed.changes} == {"591"}
    assert parsed.ends == [TransactionEnd(6, "wal2json", "591")]
    assert insert.position == position_of(END_2, 0)
    assert truncate.position == position_of(END_2, 3)
    assert [change.key for change in parsed.changes] == [("id",), ("id",), ("id",), None]
    assert insert.declared is not None
    assert insert.declared.columns == {"id": "long", "note": "string", "tags": "string"}
    assert parsed.ignored == {0: "begin of a transaction", 3: "logical message"}
    assert insert.time_ms == 1794736801500
    assert len({change.identity for change in parsed.changes}) == 4


def test_version_2_rows_without_their_begin_have_no_position() -> None:
    insert = parse(wal2json, sample("wal2json", "version2")[1:]).changes[0]
    assert insert.position == ""
    assert insert.transaction == "591"
    assert insert.identity


def test_version_2_without_options() -> None:
    parsed = parse(wal2json, sample("wal2json", "version2_bare"))
    assert {change.identity for change in parsed.changes} == {""}
    assert {change.transaction for change in parsed.changes} == {None}
    assert parsed.ends == []


def test_version_2_named_by_the_end_of_the_transaction() -> None:
    events = [without(event, "xid") for event in sample("wal2json", "version2")]
    parsed = parse(wal2json, events)
    assert {change.transaction for change in parsed.changes} == {f"{END_2:x}"}
    assert parsed.ends == [TransactionEnd(6, "wal2json", f"{END_2:x}")]


def test_equal_rows_of_one_copy_are_two() -> None:
    """In one request and over two; a request that is sent again has the same content."""
    row, other = (without(event, "pk") for event in sample("wal2json", "version2")[1:3])
    requests = [[row, row], [row, other], [row, row]]
    first, second, again = (parse(wal2json, request).changes for request in requests)
    assert len({change.identity for change in (*first, second[0])}) == 3
    assert [change.identity for change in again] == [change.identity for change in first]


def test_a_full_replica_identity_is_no_key() -> None:
    update, delete = parse(wal2json, sample("wal2json", "full_identity")).changes
    assert (update.key, delete.key) == (None, None)
    assert (update.before, update.after) == ({"a": 1, "b": 2}, {"a": 1, "b": 3})


def test_a_delete_learns_the_key_from_the_columns_of_its_table() -> None:
    update, delete = sample("wal2json", "full_identity")
    wider = changed(update, "columns", to=[*update["columns"], {"name": "c", "type": "text", "value": "x"}])
    assert [change.key for change in parse(wal2json, [wider, delete]).changes] == [("a", "b"), ("a", "b")]


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ({"action": "X", "schema": "s", "table": "t"}, "unknown-operation"),
        ({"action": "I", "schema": "s", "table": "t"}, "no-row"),
        ({"action": "I", "schema": "s", "table": "t", "columns": [{"name": "a"}]}, "no-row"),
        ({"action": "D", "schema": "s", "table": "t"}, "no-key"),
        ({"action": "T", "schema": "s"}, "no-table"),
        ({"action": "T", "schema": 7, "table": "t"}, "bad-table"),
        ({"change": ["x"]}, "not-object"),
        ({"change": [{"kind": "insert", "columnnames": ["a"], "columnvalues": [1, 2]}]}, "no-row"),
        ("x", "not-object"),
    ],
)
def test_what_is_refused(event: object, code: str) -> None:
    parsed = parse(wal2json, [event])
    assert [refused.code for refused in parsed.rejects] == [code]
    assert parsed.changes == []


def test_recognises() -> None:
    for name in ("version1", "version2", "version2_bare", "full_identity"):
        assert all(wal2json.recognises(event) for event in sample("wal2json", name))
    assert not wal2json.recognises({"change": [{"id": 1}]})
    assert not wal2json.recognises({"action": "insert", "table": "t"})
    assert not wal2json.recognises({"action": "I"})
