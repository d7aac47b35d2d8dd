"""Records for the Kafka REST proxy, with the events of other producers in them."""

from __future__ import annotations

import base64
from typing import Any

import orjson
import pytest

from ingest.change import RequestContext
from ingest.formats import kafka_rest
from tests.unit.ingest.formats.recorded import changed, parse, sample

TOPIC = RequestContext(topic="srv.public.orders")


def test_version_2_with_debezium() -> None:
    parsed = parse(kafka_rest, sample("kafka_rest", "version2"), TOPIC)
    create, delete, lone = parsed.changes
    assert [(change.index, change.operation) for change in parsed.changes] == [
        (0, "insert"),
        (1, "delete"),
        (3, "delete"),
    ]
    assert {change.key for change in parsed.changes} == {("id",)}
    assert {change.table for change in parsed.changes} == {("public", "orders")}
    assert create.after == {"id": 7, "status": "new"}
    assert create.source == delete.source
    assert (lone.before, lone.source) == ({"id": 9}, "kafka:srv.public.orders")
    assert parsed.ignored == {2: "tombstone"}


def test_version_3() -> None:
    parsed = parse(kafka_rest, sample("kafka_rest", "version3"), TOPIC)
    assert [change.after for change in parsed.changes[:3]] == [{"id": 7}, {"id": 8}, {"id": 9}]
    assert [change.key for change in parsed.changes] == [("id",), None, ("id",), ("id",)]
    assert (parsed.changes[3].operation, parsed.changes[3].before) == ("delete", {"id": 7})


def test_a_tombstone_of_another_key_is_a_delete() -> None:
    events = sample("kafka_rest", "version2")
    delete, tombstone = events[1], changed(events[2], "key", "id", to=8)
    parsed = parse(kafka_rest, [delete, tombstone], TOPIC)
    assert [change.before for change in parsed.changes] == [{"id": 7}, {"id": 8}]


def test_a_tombstone_after_the_row_came_back_is_a_delete() -> None:
    _, delete, tombstone, _ = sample("kafka_rest", "version2")
    create = changed(sample("kafka_rest", "version2")[0], "key", to={"id": 7})
    parsed = parse(kafka_rest, [delete, tombstone, create, tombstone, tombstone], TOPIC)
    assert [change.operation for change in parsed.changes] == ["delete", "insert", "delete"]
    assert parsed.ignored == {1: "tombstone", 4: "tombstone"}


def test_a_key_adds_what_the_value_left_out() -> None:
    event: Any = sample("kafka_rest", "version2")[1]
    delete = changed(event, "value", "before", to={"status": "paid"})
    assert parse(kafka_rest, [delete], TOPIC).changes[0].before == {"id": 7, "status": "paid"}


def test_the_key_of_the_value_wins() -> None:
    canal = sample("canal", "changes")[2]
    change = parse(kafka_rest, [{"key": {"other": 1}, "value": canal}], TOPIC).changes[0]
    assert change.key == ("id",)
    assert change.table == ("shop", "orders")


def test_rows_belong_to_the_topic() -> None:
    events = [{"key": {"id": 1}, "value": {"id": 1, "a": "x"}}, {"value": {"id": 2, "a": "y"}}]
    first, second = parse(kafka_rest, events, TOPIC).changes
    assert first.table == second.table == ("public", "orders")
    assert (first.operation, first.after, first.key) == ("insert", {"id": 1, "a": "x"}, ("id",))
    assert not second.key


def test_a_topic_without_dots_is_a_table_of_the_default_namespace() -> None:
    change = parse(kafka_rest, [{"value": {"id": 1}}], RequestContext(topic="orders")).changes[0]
    assert change.table == ("default", "orders")


def test_the_path_wins_over_the_topic() -> None:
    context = RequestContext(topic="a.b", table=("lake", "t"))
    parsed = parse(kafka_rest, [{"value": {"id": 1}}, {"key": {"id": 2}, "value": None}], context)
    assert {change.table for change in parsed.changes} == {("lake", "t")}


@pytest.mark.parametrize(
    ("key", "names", "before"),
    [
        (7, ("id",), {"id": 7}),
        ("7", ("id",), {"id": "7"}),
        (["eu", 7], ("region", "id"), {"region": "eu", "id": 7}),
        ('{"id": 7}', None, {"id": 7}),
    ],
)
def test_bare_keys_are_named_by_the_request(
    key: object, names: tuple[str, ...] | None, before: dict[str, object]
) -> None:
    context = RequestContext(topic="shop.orders", key=names)
    change = parse(kafka_rest, [{"key": key, "value": None}], context).changes[0]
    assert (change.operation, change.before, change.key) == ("delete", before, tuple(before))


def test_several_producers_in_one_request_keep_their_order() -> None:
    events = [
        {"key": {"id": 7}, "value": sample("supabase", "changes")[0]},
        {"key": {"id": 7}, "value": sample("hasura", "changes")[1]},
        {"key": {"id": 7}, "value": sample("supabase", "changes")[2]},
    ]
    assert [change.operation for change in parse(kafka_rest, events).changes] == [
        "insert",
        "update",
        "delete",
    ]


def test_binary_by_content_type() -> None:
    value = base64.b64encode(orjson.dumps(sample("supabase", "changes")[0])).decode()
    key = base64.b64encode(b'{"id": 7}').decode()
    context = RequestContext(content_type="application/vnd.kafka.binary.v2+json")
    change = parse(kafka_rest, [{"key": key, "value": value}], context).changes[0]
    assert (change.after, change.key) == ({"id": 7, "status": "new"}, ("id",))


def test_an_empty_record_is_ignored() -> None:
    assert parse(kafka_rest, [{"value": None}], TOPIC).ignored == {0: "tombstone"}


@pytest.mark.parametrize(
    ("event", "context", "code"),
    [
        ({"key": 7, "value": None}, TOPIC, "no-key"),
        ({"key": {"id": 7}, "value": None}, RequestContext(), "no-table"),
        ({"key": {"id": 7}, "value": None}, RequestContext(topic="a\u0000.b"), "bad-table"),
        ({"value": {"id": 7}}, RequestContext(), "no-table"),
        ({"value": [1]}, TOPIC, "not-object"),
        ({"value": "{"}, TOPIC, "not-json"),
        ({"value": {"type": "BINARY", "data": "###"}}, TOPIC, "not-json"),
        ({"value": {"type": "BINARY", "data": "é"}}, TOPIC, "not-json"),
        ({"value": "NaN"}, TOPIC, "not-json"),
        ({"value": {"value": {"id": 1}}}, TOPIC, "nested"),
        (7, TOPIC, "not-object"),
    ],
)
def test_what_is_refused(event: object, context: RequestContext, code: str) -> None:
    parsed = parse(kafka_rest, [event], context)
    assert [refused.code for refused in parsed.rejects] == [code]
    assert parsed.changes == []


def test_a_reject_keeps_the_key() -> None:
    record = {"key": {"id": 7}, "value": {"type": "MERGE", "table": "t", "record": {}, "old_record": {}}}
    (refused,) = parse(kafka_rest, [record]).rejects
    assert orjson.loads(refused.original) == record


def test_refused_records_do_not_disturb_the_order() -> None:
    good = sample("kafka_rest", "version2")
    parsed = parse(kafka_rest, [good[0], {"value": "{"}, good[1]], TOPIC)
    assert [change.index for change in parsed.changes] == [0, 2]


def test_recognises() -> None:
    for name in ("version2", "version3"):
        assert all(kafka_rest.recognises(event) for event in sample("kafka_rest", name))
    assert kafka_rest.recognises({"value": {"id": 1}})
    assert kafka_rest.recognises({"value": "AA==", "partition": 0})
    assert not kafka_rest.recognises({"key": "k", "value": "v"})
    assert not kafka_rest.recognises({"key": "k", "value": None})
    assert not kafka_rest.recognises({"value": {}, "id": 1})
