"""CloudEvents: Debezium's, and others."""

from __future__ import annotations

import orjson

from ingest.change import RequestContext, position_of
from ingest.formats import cloudevents, detect
from ingest.formats.debezium_position import NOT_DELETE
from tests.unit.ingest.formats.recorded import changed, parse, sample, without

FIRST, SECOND, THIRD = sample("cloudevents", "debezium")
PLAIN, NATIVE = sample("cloudevents", "plain")
PATH = RequestContext(table=("lake", "orders"))


def test_debezium() -> None:
    parsed = parse(cloudevents, [FIRST, SECOND, THIRD])
    first, second, third = parsed.changes
    assert (first.table, first.operation) == (("inventory", "customers"), "insert")
    assert first.after == {"id": 1004, "first_name": "Anne", "email": "annek@noanswer.org"}
    assert (first.source, first.transaction, first.time_ms) == ("shop", "771", 1763283601123)
    assert first.position == position_of(34520000, 34521104, NOT_DELETE + 1)
    assert (third.operation, third.before, third.after) == (
        "delete",
        {"id": 1004, "first_name": "", "email": ""},
        None,
    )
    assert first.position < second.position < third.position


def test_one_id_is_not_one_event() -> None:
    assert FIRST["id"] == SECOND["id"]
    first, second = parse(cloudevents, [FIRST, SECOND]).changes
    assert first.identity != second.identity


def test_the_same_event_has_one_identity_in_both_formats() -> None:
    """Whoever changes the format of a connector must not get its last events twice."""
    event = sample("debezium", "postgres_transaction")[1]
    (enveloped,) = detect.parse(orjson.dumps(event), RequestContext()).changes
    (change,) = parse(cloudevents, [FIRST]).changes
    assert (change.identity, change.position) == (enveloped.identity, enveloped.position)


def test_names_that_differ_in_case_only_are_two() -> None:
    event = changed(changed(FIRST, "iodebeziumtxId", to="5"), "iodebeziumtxid", to=None)
    assert parse(cloudevents, [event]).changes[0].transaction is None


def test_schema() -> None:
    (change,) = parse(cloudevents, sample("cloudevents", "with_schema")).changes
    assert change.after == {"id": 1, "born": 19782}
    assert change.declared is not None
    assert change.declared.columns == {"id": "int", "born": "date"}
    assert change.declared.encodings == {"born": "days"}
    assert change.declared.required == {"id"}


def test_data_may_be_the_row() -> None:
    row = {"id": 1}
    first, second = parse(
        cloudevents, [changed(FIRST, "data", to=row), changed(THIRD, "data", to=row)]
    ).changes
    assert (first.before, first.after) == (None, row)
    assert (second.before, second.after) == (row, None)


def test_other_connectors_attributes_have_no_underscores() -> None:
    event = {
        name: value for name, value in FIRST.items() if name not in ("iodebeziumlsn", "iodebeziumsequence")
    }
    event |= {
        "iodebeziumconnector": "sqlserver",
        "iodebeziumcommitlsn": "00000027:00000758:0005",
        "iodebeziumchangelsn": "00000027:00000758:0003",
        "iodebeziumeventserialno": "2",
    }
    (change,) = parse(cloudevents, [event]).changes
    assert change.position == position_of("00000027:00000758:0005", "00000027:00000758:0003", 2)


def test_a_row_of_another_producer() -> None:
    (change,) = parse(cloudevents, [PLAIN], PATH).changes
    assert (change.table, change.operation, change.after) == (("lake", "orders"), "insert", PLAIN["data"])
    assert (change.source, change.identity) == ("/shop/web", "/shop/web/a-1")


def test_an_event_inside_an_event() -> None:
    (change,) = parse(cloudevents, [NATIVE]).changes
    assert (change.table, change.operation, change.identity) == (
        ("shop", "orders"),
        "delete",
        "/shop/web/a-2",
    )
    (numbered,) = parse(cloudevents, [NATIVE], RequestContext(source="s")).changes
    assert (numbered.number, numbered.identity) == (7, "")


def test_rejects() -> None:
    events = [
        PLAIN,
        {**without(PLAIN, "data"), "data_base64": "AAAA"},
        without(FIRST, "iodebeziumtable"),
        changed(THIRD, "data", "before", to=None),
        changed(FIRST, "data", to=None),
        changed(NATIVE, "data", "rowId", to=1),
        7,
    ]
    parsed = parse(cloudevents, events)
    assert [(reject.index, reject.code) for reject in parsed.rejects] == [
        (0, "no-table"),
        (1, "binary"),
        (2, "no-table"),
        (3, "no-before"),
        (4, "no-after"),
        (5, "bad-row-id"),
        (6, "not-object"),
    ]
    assert [orjson.loads(reject.original) for reject in parsed.rejects] == events


def test_batch() -> None:
    parsed = detect.parse(
        orjson.dumps([FIRST, SECOND]), RequestContext(content_type="application/cloudevents-batch+json")
    )
    assert (parsed.format, len(parsed.changes)) == ("cloudevents", 2)
