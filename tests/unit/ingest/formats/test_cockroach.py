"""CockroachDB's changefeeds, in the wrapped and the enriched envelope."""

from __future__ import annotations

import pytest

from ingest.change import RequestContext, position_of
from ingest.formats import cockroach
from tests.unit.ingest.formats.recorded import changed, parse, sample, without


def test_wrapped() -> None:
    parsed = parse(cockroach, sample("cockroach", "wrapped"), RequestContext(key=("id",)))
    unknown, update, insert, delete = parsed.changes
    # Without `before` nobody knows whether the row was there: an update holds in both cases.
    assert [change.operation for change in parsed.changes] == ["update", "update", "insert", "delete"]
    assert unknown.before is None
    assert (update.before, update.after) == ({"id": 7, "status": "new"}, {"id": 7, "status": "paid"})
    assert (insert.before, insert.after) == (None, {"id": 8, "status": "new"})
    assert (delete.before, delete.after) == ({"id": 7, "status": "paid"}, None)
    assert (unknown.table, insert.table) == (("default", "orders"), ("public", "orders"))
    assert {change.key for change in parsed.changes} == {("id",)}
    assert parsed.ignored == {4: "resolved timestamp"}


def test_position_identity_and_time() -> None:
    first, second, third, fourth = parse(cockroach, sample("cockroach", "wrapped")).changes
    assert first.position == position_of(1763200800250000000, 1)
    assert first.position < second.position < fourth.position
    assert first.time_ms == 1763200800250
    assert second.position == third.position
    assert len({change.identity for change in (first, second, third, fourth)}) == 4
    assert first.source == "cockroach"


def test_without_updated_there_is_neither_position_nor_identity() -> None:
    event = without(sample("cockroach", "wrapped")[0], "updated")
    change = parse(cockroach, [event]).changes[0]
    assert (change.position, change.time_ms, change.identity) == ("", None, "")


def test_a_delete_is_named_by_the_key_of_the_request() -> None:
    delete = parse(cockroach, sample("cockroach", "deletes"), RequestContext(key=("region", "id"))).changes[0]
    assert (delete.before, delete.key) == ({"region": "eu", "id": 7}, ("region", "id"))


@pytest.mark.parametrize("key", [None, ("id",)])
def test_a_delete_without_names_is_refused(key: tuple[str, ...] | None) -> None:
    (refused,) = parse(cockroach, sample("cockroach", "deletes"), RequestContext(key=key)).rejects
    assert (refused.code, refused.table) == ("no-key", ("default", "orders"))
    assert "?key=" in refused.reason
    assert "enriched" in refused.reason


def test_enriched() -> None:
    parsed = parse(cockroach, sample("cockroach", "enriched"))
    create, update, delete, bare = parsed.changes
    assert [change.operation for change in parsed.changes] == ["insert", "update", "delete", "insert"]
    assert create.table == ("public", "orders")
    assert create.key == update.key == delete.key == ("id",)
    assert delete.before == {"id": 7}
    assert create.source == "cockroach:b7d4bf91-3164-42eb-9c7e-0b32a10d1653"
    assert create.position == position_of(1763200800250000000, 0)
    assert create.position < update.position < delete.position
    assert (bare.table, bare.position, bare.key) == (("default", "orders"), "", None)


def test_enriched_types() -> None:
    create = parse(cockroach, sample("cockroach", "enriched")[:1]).changes[0]
    assert create.declared is not None
    assert create.declared.columns == {
        "id": "long",
        "price": "decimal(10,2)",
        "photo": "binary",
        "extra": "string",
        "ok": "boolean",
    }
    assert create.declared.encodings == {"photo": "hex"}
    assert create.after is not None
    assert create.after["photo"] == "00ff41"
    assert create.after["extra"] == '{"a":[1]}'
    assert create.after["at"] == "2026-11-15T10:00:00.25"


@pytest.mark.parametrize(
    ("field", "iceberg"),
    [
        ({"type": "float64"}, "double"),
        ({"type": "string"}, "string"),
        ({"type": "string", "name": "date"}, "date"),
        ({"type": "string", "name": "time"}, None),
        ({"type": "struct", "name": "geometry"}, "string"),
        ({"type": "array", "items": {"type": "int64"}}, None),
        ({"type": "float64", "name": "decimal", "parameters": {"precision": "0", "scale": "0"}}, None),
        ({"type": "float64", "name": "decimal", "parameters": {"precision": "60", "scale": "2"}}, "string"),
    ],
)
def test_single_types(field: dict[str, object], iceberg: str | None) -> None:
    path = ("schema", "fields", 1, "fields")
    event = changed(sample("cockroach", "enriched")[0], *path, to=[{"field": "price", **field}])
    declared = parse(cockroach, [event]).changes[0].declared
    assert (declared.columns if declared else {}) == ({"price": iceberg} if iceberg else {})


def test_primary_keys_name_a_list_of_values() -> None:
    event = changed(sample("cockroach", "enriched")[2], "key", to=[7])
    assert parse(cockroach, [event]).changes[0].before == {"id": 7}


def test_the_bare_envelope_is_refused() -> None:
    parsed = parse(cockroach, sample("cockroach", "bare"))
    assert [refused.code for refused in parsed.rejects] == ["bare-envelope"]
    assert parsed.ignored == {1: "resolved timestamp"}


def test_what_is_refused() -> None:
    good = sample("cockroach", "wrapped")[0]
    events = [changed(good, "after", to=3), without(good, "after"), without(good, "topic")]
    assert [refused.code for refused in parse(cockroach, events).rejects] == ["no-row", "no-row", "no-table"]


def test_recognises() -> None:
    for name in ("wrapped", "deletes", "enriched", "bare"):
        assert all(cockroach.recognises(event) for event in sample("cockroach", name))
    debezium = sample("kafka_rest", "version2")[0]["value"]
    assert not cockroach.recognises(debezium)
    assert not cockroach.recognises({"payload": debezium, "schema": {}})
    assert not cockroach.recognises({"after": {"id": 1}})
    assert not cockroach.recognises({"resolved": True, "id": 1})
