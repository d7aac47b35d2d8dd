"""Debezium's envelope."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from ingest.change import RequestContext, TransactionBegin, TransactionEnd, position_of
from ingest.formats import debezium, detect
from ingest.formats.debezium_position import NOT_DELETE
from ingest.identity import plain_identity
from tests.unit.ingest.formats.recorded import changed, parse, sample, without

HERE = RequestContext()
BEGIN, INSERT, UPDATE, DELETE, TRUNCATE, END = sample("debezium", "postgres_transaction")
SNAPSHOT = sample("debezium", "postgres_snapshot")
TOAST = sample("debezium", "postgres_toast")[0]
(MONGODB,) = sample("debezium", "mongodb")


def test_a_transaction() -> None:
    parsed = parse(debezium, [BEGIN, INSERT, UPDATE, DELETE, TRUNCATE, END])
    insert, update, delete, truncate = parsed.changes
    assert parsed.ignored == {0: "transaction begin"}
    assert parsed.ends == [TransactionEnd(5, "shop", "771", 4)]
    assert {change.transaction for change in parsed.changes} == {"771"}
    assert {change.source for change in parsed.changes} == {"shop"}
    assert (insert.table, insert.operation, insert.before) == (("inventory", "customers"), "insert", None)
    assert insert.after == {"id": 1004, "first_name": "Anne", "email": "annek@noanswer.org"}
    assert insert.time_ms == 1763283601123
    assert insert.position == position_of(34520000, 34521104, NOT_DELETE + 1)
    assert (update.operation, update.before) == ("update", None)
    assert (delete.operation, delete.after) == ("delete", None)
    assert delete.before == {"id": 1004, "first_name": "", "email": ""}
    assert (truncate.operation, truncate.before, truncate.after) == ("truncate", None, None)
    assert truncate.table == ("inventory", "visits")
    positions = [change.position for change in parsed.changes]
    assert positions == sorted(set(positions))
    assert len({change.identity for change in parsed.changes}) == 4
    assert all(change.key is None and not change.transaction_ends for change in parsed.changes)


def test_the_end_of_a_transaction_that_comes_alone() -> None:
    assert parse(debezium, [END]).ends == [TransactionEnd(0, "", "771", 4)]
    assert parse(debezium, [END], RequestContext(source="s")).ends == [TransactionEnd(0, "s", "771", 4)]
    assert parse(debezium, [END, INSERT]).ends[0].source == "shop"
    assert parse(debezium, [BEGIN]).begins == [TransactionBegin(0, "", "771")]
    assert parse(debezium, [BEGIN, INSERT]).begins == [TransactionBegin(0, "shop", "771")]
    assert parse(debezium, [BEGIN]).ignored == {0: "transaction begin"}
    assert parse(debezium, [changed(END, "id", to=None)]).ignored


def test_request_overrides() -> None:
    (change,) = parse(debezium, [INSERT], RequestContext(table=("a", "b"), source="s", key=("id",))).changes
    assert (change.table, change.source, change.key) == (("a", "b"), "s", ("id",))


def test_records_that_change_no_row() -> None:
    parsed = parse(debezium, sample("debezium", "others"))
    assert parsed.ignored == {0: "heartbeat", 1: "message", 2: "schema change", 3: "signal", 4: "tombstone"}


def test_commit_order_is_not_lsn_order() -> None:
    """A transaction that began earlier and committed later: its LSNs are lower, its positions higher."""
    early = changed(changed(INSERT, "source", "lsn", to=100), "source", "sequence", to='["90","100"]')
    late = changed(changed(INSERT, "source", "lsn", to=95), "source", "sequence", to='["110","95"]')
    first, second = parse(debezium, [early, late]).changes
    assert first.position < second.position


@pytest.mark.parametrize("sequence", [None, '[null,"7"]', "nonsense", "[]", "{}", 7])
def test_without_the_last_commit_the_lsn_stands_in(sequence: object) -> None:
    (change,) = parse(debezium, [changed(INSERT, "source", "sequence", to=sequence)]).changes
    assert change.position == position_of(34521104, 34521104, NOT_DELETE + 1)


def test_identity_outlives_a_restart_inside_the_transaction() -> None:
    """Debezium counts what is left of the transaction from 1 again; its place and its content stay."""
    (first,) = parse(debezium, [changed(INSERT, "transaction", "total_order", to=4)]).changes
    (again,) = parse(debezium, [changed(INSERT, "transaction", "total_order", to=1)]).changes
    (other,) = parse(debezium, [changed(INSERT, "after", "id", to=5)]).changes
    assert plain_identity(first.identity) == plain_identity(again.identity) != plain_identity(other.identity)


def test_the_insert_of_a_new_key_is_behind_its_delete_even_if_it_is_counted_anew() -> None:
    delete, insert = sample("debezium", "postgres_key_change")
    late = changed(insert, "transaction", "total_order", to=1)
    first, second = parse(debezium, [changed(delete, "transaction", "total_order", to=5), late]).changes
    assert first.position < second.position


def test_equal_rows_of_a_table_without_a_key_are_told_apart_by_their_number() -> None:
    """Also without a schema, when each comes in a request of its own."""
    counted = [changed(INSERT, "transaction", "total_order", to=n) for n in (1, 2, 1)]
    first, second, again = (parse(debezium, [one]).changes[0] for one in counted)
    assert first.identity == again.identity != second.identity


def test_equal_rows_of_a_first_load_are_told_apart_by_the_time_of_their_record() -> None:
    rows = [changed(SNAPSHOT[0], "ts_ns", to=n) for n in (1, 2, 1)]
    first, second, again = (parse(debezium, [one]).changes[0] for one in rows)
    assert first.identity == again.identity != second.identity
    assert plain_identity(first.identity) == plain_identity(second.identity)


def test_identity_with_transaction_metadata_rests_on_place_and_content() -> None:
    first, again, other = parse(
        debezium,
        [
            INSERT,
            changed(changed(INSERT, "ts_ms", to=1), "source", "sequence", to=None),
            changed(INSERT, "transaction", "total_order", to=9),
        ],
    ).changes
    assert first.identity == again.identity != other.identity


def test_identity_without_transaction_metadata_tells_rows_of_one_lsn_apart() -> None:
    """COPY gives all its rows one LSN; what is sent again has the same content."""
    bare = changed(INSERT, "transaction", to=None)
    first, other, again = parse(debezium, [bare, changed(bare, "after", "id", to=5), bare]).changes
    assert first.identity == again.identity != other.identity
    assert first.position == other.position
    assert first.transaction is None


def test_a_key_change_is_two_events_of_one_place() -> None:
    events = sample("debezium", "postgres_key_change")
    for batch in (events, [changed(event, "transaction", to=None) for event in events]):
        delete, insert = parse(debezium, batch).changes
        assert delete.identity != insert.identity
        assert delete.position <= insert.position
        assert insert.after == {"id": 8}


def test_rows_of_a_first_load() -> None:
    parsed = parse(debezium, SNAPSHOT)
    assert {change.operation for change in parsed.changes} == {"read"}
    assert {change.position for change in parsed.changes} == {position_of(34498000, 34498000, 0)}
    identities = [change.identity for change in parsed.changes]
    assert len(set(identities)) == 4  # a row that is there twice is two rows
    assert [change.identity for change in parse(debezium, SNAPSHOT).changes] == identities


def test_unchanged_large_values_are_left_out() -> None:
    (change,) = parse(debezium, [TOAST]).changes
    assert change.after == {"id": 7, "title": "new"}


def test_mysql() -> None:
    parsed = parse(debezium, sample("debezium", "mysql"))
    (change,) = parsed.changes
    assert change.table == ("inventory", "products")
    assert change.position == position_of(3, 484, 1)
    assert change.transaction == "24bc7850-2c16-11e6-a073-0242ac110002:8"  # all of it: no second half differs
    assert parsed.ends[0].transaction == change.transaction
    later = changed(sample("debezium", "mysql")[0], "source", "file", to="mysql-bin.1000000")
    assert parse(debezium, [later]).changes[0].position > change.position
    (again,) = parse(debezium, [changed(sample("debezium", "mysql")[0], "ts_ms", to=0)]).changes
    assert again.identity == change.identity


def test_sql_server() -> None:
    (change,) = parse(debezium, sample("debezium", "sqlserver")).changes
    assert change.table == ("dbo", "customers")
    assert change.position == position_of("00000027:00000758:0005", "00000027:00000758:0003", 2)


def test_oracle() -> None:
    (change,) = parse(debezium, sample("debezium", "oracle")).changes
    assert change.table == ("DEBEZIUM", "CUSTOMERS")
    assert change.position == position_of(2122190, "001234.00012345.0124", 1)
    several = changed(sample("debezium", "oracle")[0], "source", "commit_scn", to="2122195:1,2122199:2")
    assert parse(debezium, [several]).changes[0].position > change.position


def test_mongodb() -> None:
    (change,) = parse(debezium, [MONGODB]).changes
    assert change.table == ("inventory", "customers")
    assert change.key == ("_id",)
    assert change.position == position_of(1763283605000, 31)
    assert change.after == {
        "_id": "63a364ad8835b568e786e262",
        "visits": 9007199254740993,
        "since": 1763283605000,
        "name": "Anne",
        "tags": [3],
    }


@pytest.mark.parametrize(
    ("connector", "position"),
    [("vitess", position_of(1763283601123456000)), ("postgresql", "")],
)
def test_a_source_without_a_log_position(connector: str, position: str) -> None:
    """A time must not stand among log positions: it would sort behind all of them for ever."""
    event = changed(
        without(without(INSERT, "source", "lsn"), "source", "sequence"), "source", "connector", to=connector
    )
    (change,) = parse(debezium, [event]).changes
    assert change.position == position
    assert change.identity


def test_time_falls_back_to_the_records_own() -> None:
    (change,) = parse(debezium, [without(INSERT, "source", "ts_ms")]).changes
    assert change.time_ms == 1763283601512


def test_an_impossible_time_does_not_cost_the_change() -> None:
    (change,) = detect.parse(orjson.dumps(changed(INSERT, "source", "ts_ms", to=10**17)), HERE).changes
    assert change.time_ms is None


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (changed(DELETE, "before", to=None), "no-before"),
        (changed(DELETE, "before", to={}), "no-before"),
        (changed(INSERT, "after", to=None), "no-after"),
        (changed(INSERT, "after", to=[1]), "bad-row"),
        (changed(INSERT, "after", to="[1]"), "bad-row"),
        (changed(INSERT, "after", to="x"), "bad-row"),
        (changed(UPDATE, "before", to=7), "bad-row"),
        (changed(INSERT, "op", to="x"), "no-operation"),
        (changed(INSERT, "op", to=["c"]), "no-operation"),
        (changed(INSERT, "op", to=None), "no-operation"),
        (changed(INSERT, "source", "table", to=None), "no-table"),
        (changed(INSERT, "source", "table", to=7), "bad-table"),
        (changed(INSERT, "source", "schema", to={"a": 1}), "bad-table"),
        (changed(INSERT, "source", to=None), "no-table"),
        ({"schema": {}, "payload": 7}, "no-table"),
        (7, "no-table"),
    ],
)
def test_rejects(event: Any, code: str) -> None:
    parsed = parse(debezium, [INSERT, event, INSERT])
    assert [change.index for change in parsed.changes] == [0, 2]
    (reject,) = parsed.rejects
    assert (reject.index, reject.code, orjson.loads(reject.original)) == (1, code, event)
    if code in ("no-before", "no-after", "bad-row", "no-operation"):
        assert (reject.table, reject.source) == (("inventory", "customers"), "shop")
        assert reject.position


def test_without_schema_or_database_the_namespace_is_the_requests() -> None:
    event = changed(changed(INSERT, "source", "schema", to=None), "source", "db", to=None)
    assert parse(debezium, [event], RequestContext(namespace=("n",))).changes[0].table == ("n", "customers")


def test_single_array_and_lines_read_the_same() -> None:
    expected = detect.parse(orjson.dumps([INSERT, UPDATE]), HERE).changes
    lines = detect.parse(orjson.dumps(INSERT) + b"\n" + orjson.dumps(UPDATE), HERE)
    assert (lines.format, lines.changes) == ("debezium", expected)
    assert detect.parse(orjson.dumps(INSERT), HERE).changes == expected[:1]


@pytest.mark.parametrize(
    ("event", "is_debezium"),
    [
        (INSERT, True),
        (BEGIN, True),
        ({"schema": {}, "payload": INSERT}, True),
        ({"op": "c", "source": {"table_name": "t"}, "after": {}}, False),  # CockroachDB
        ({"status": "END", "id": 7, "total": 12}, False),
        ({"op": "c"}, False),
        ({"schema": {}, "payload": None}, False),
        (None, False),
    ],
)
def test_recognises(event: object, is_debezium: bool) -> None:
    assert debezium.recognises(event) is is_debezium
