"""New tables from create requests."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.errors import Invalid
from catalog.metadata.invariants import violations
from catalog.metadata.schemas import index_schema
from catalog.metadata.tables import new_table
from tests.harness.documents import (
    LOCATION,
    NESTED,
    NOW_MS,
    SCHEMA,
    TABLE_UUID,
    field,
    partition_field,
    sort_field,
    struct,
    table,
)
from tests.harness.strategies import schemas, sort_orders, specs


def test_a_new_table_has_every_key_that_clients_need() -> None:
    made = table()
    assert made == {
        "format-version": 2,
        "table-uuid": TABLE_UUID,
        "location": LOCATION,
        "last-sequence-number": 0,
        "last-updated-ms": NOW_MS,
        "last-column-id": 3,
        "current-schema-id": 0,
        "schemas": [SCHEMA | {"schema-id": 0}],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {"write.parquet.compression-codec": "zstd"},
        "current-snapshot-id": -1,
        "refs": {},
        "snapshots": [],
        "statistics": [],
        "partition-statistics": [],
        "snapshot-log": [],
        "metadata-log": [],
    }


def test_v1_has_the_fields_of_old_readers_and_no_sequence_number() -> None:
    made = table(1, partition_spec={"fields": [partition_field(1, "bucket[4]", "b")]})
    assert made["schema"] == made["schemas"][0]
    assert made["partition-spec"] == made["partition-specs"][0]["fields"]
    assert made["current-snapshot-id"] == -1
    assert "last-sequence-number" not in made


def test_v3_counts_rows_and_leaves_out_a_current_snapshot() -> None:
    made = table(3)
    assert made["next-row-id"] == 0
    assert "current-snapshot-id" not in made
    assert "next-row-id" not in table(2)


def test_ids_are_given_to_the_top_level_first() -> None:
    made = table(2, NESTED)
    index = index_schema(made["schemas"][0])
    assert index.ids_by_name == {
        "id": 1,
        "place": 2,
        "tags": 3,
        "sizes": 4,
        "place.lat": 5,
        "place.lon": 6,
        "tags.element": 7,
        "sizes.key": 8,
        "sizes.value": 9,
        "sizes.value.width": 10,
    }
    assert made["last-column-id"] == 10
    assert made["schemas"][0]["fields"][2]["doc"] == "all of them"


def test_identifiers_spec_and_order_follow_the_new_ids() -> None:
    schema = struct(
        field(70, "a", "string"),
        field(5, "key", struct(field(90, "id", "long", required=True)), required=True),
        **{"identifier-field-ids": [90]},
    )
    made = table(
        2,
        schema,
        partition_spec={"spec-id": 4, "fields": [partition_field(90, "bucket[8]", "b", field_id=1234)]},
        write_order={"order-id": 4, "fields": [sort_field(70, direction="desc")]},
    )
    assert made["schemas"][0]["identifier-field-ids"] == [3]
    assert made["partition-specs"] == [
        {"spec-id": 0, "fields": [partition_field(3, "bucket[8]", "b", field_id=1000)]}
    ]
    assert made["last-partition-id"] == 1000
    assert made["sort-orders"] == [{"order-id": 1, "fields": [sort_field(1, direction="desc")]}]
    assert made["default-sort-order-id"] == 1


def test_docs_defaults_and_unknown_fields_are_kept() -> None:
    column = field(9, "n", "int", doc="🧊", **{"initial-default": 1, "write-default": 2, "x": {"y": None}})
    made = table(3, struct(column, **{"x-schema": 1}), partition_spec={"fields": [], "x-spec": 1})
    assert made["schemas"][0]["fields"] == [column | {"id": 1}]
    assert made["schemas"][0]["x-schema"] == 1
    assert made["partition-specs"][0]["x-spec"] == 1


def test_null_defaults_are_dropped_because_java_cannot_read_them() -> None:
    inner = struct(field(2, "x", "int", **{"write-default": None}))
    made = table(2, struct(field(1, "n", inner, **{"initial-default": None})))
    column = made["schemas"][0]["fields"][0]
    assert "initial-default" not in column
    assert "write-default" not in column["type"]["fields"][0]


def test_transforms_are_kept_also_unknown_ones_and_several_sources() -> None:
    several = {"source-ids": [2, 1], "transform": "bucketV2[4]", "name": "both"}
    made = table(3, partition_spec={"fields": [several, partition_field(1, "zorder[4]", "z")]})
    fields = made["partition-specs"][0]["fields"]
    assert fields[0] == {"source-ids": [2, 1], "transform": "bucketV2[4]", "name": "both", "field-id": 1000}
    assert fields[1]["transform"] == "zorder[4]"


def test_null_parts_of_the_request_mean_absent() -> None:
    request = {"schema": SCHEMA, "partition-spec": None, "write-order": None, "properties": None}
    made = new_table(request, location=LOCATION, table_uuid=TABLE_UUID, now_ms=NOW_MS)
    assert made == table()


def test_properties_that_steer_are_not_kept_and_the_codec_can_be_chosen() -> None:
    reserved = {"uuid": "x", "snapshot-count": "1", "current-schema": "{}", "default-sort-order": "[]"}
    made = table(2, properties={"a": "b", "write.parquet.compression-codec": "gzip", **reserved})
    assert made["properties"] == {"write.parquet.compression-codec": "gzip", "a": "b"}


def test_the_location_loses_its_last_slash() -> None:
    made = new_table({"schema": SCHEMA}, location=f"{LOCATION}//", table_uuid=TABLE_UUID, now_ms=NOW_MS)
    assert made["location"] == LOCATION


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({}, "schema is missing"),
        ({"schema": []}, "schema must be an object"),
        ({"schema": {"fields": []}}, "schema.type must be"),
        ({"schema": struct(field(1, "v", "variant"))}, "variant is not supported until v3"),
        ({"schema": SCHEMA, "partition-spec": []}, "partition-spec must be an object"),
        ({"schema": SCHEMA, "write-order": 1}, "write-order must be an object"),
        (
            {"schema": SCHEMA, "partition-spec": {"fields": [partition_field(9, "identity", "x")]}},
            "partition-spec.fields[0]: cannot find source column 9",
        ),
        ({"schema": SCHEMA, "properties": {"format-version": "4"}}, "Unsupported format version: v4"),
        ({"schema": SCHEMA, "properties": {"format-version": "two"}}, "must have integer value"),
        ({"schema": SCHEMA, "properties": {"a": 1}}, "properties.a must be a string"),
        ({"schema": SCHEMA, "properties": {"commit.retry.num-retries": "x"}}, "must have integer value"),
        ({"schema": SCHEMA, "properties": {"commit.retry.num-retries": "-1"}}, "non negative"),
        ({"schema": SCHEMA, "properties": {"encryption.key-id": "k"}}, "Invalid properties for v2"),
        ({"schema": SCHEMA, "x": [float("inf")]}, "x[0] must be a finite number"),
    ],
)
def test_a_wrong_request_is_refused_with_a_reason(request_: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid) as refused:
        new_table(request_, location=LOCATION, table_uuid=TABLE_UUID, now_ms=NOW_MS)
    assert message in refused.value.message


@settings(max_examples=80, deadline=None)
@given(data=st.data(), version=st.sampled_from((1, 2, 3)))
def test_any_valid_request_makes_a_sound_table_with_the_same_columns(
    data: st.DataObject, version: int
) -> None:
    schema = data.draw(schemas(version))
    made = table(
        version,
        schema,
        partition_spec=data.draw(specs(schema)),
        write_order=data.draw(sort_orders(schema)),
    )
    before, after = index_schema(schema), index_schema(made["schemas"][0])
    assert violations(made) == []
    assert sorted(after.by_id) == list(range(1, len(before.by_id) + 1))
    assert list(after.ids_by_name) == list(before.ids_by_name)
    for name, id_ in before.ids_by_name.items():
        assert after.by_id[after.ids_by_name[name]].type == before.by_id[id_].type
