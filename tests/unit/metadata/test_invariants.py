"""`violations` finds each way to be unsound; `completed` fills what old writers left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from catalog.metadata.commit import apply
from catalog.metadata.document import Metadata, with_defaults
from catalog.metadata.invariants import violations
from catalog.metadata.view_invariants import view_violations
from tests.harness.documents import (
    LOCATION,
    NOW_MS,
    SCHEMA,
    TABLE_UUID,
    append,
    appended,
    commit,
    encryption_key,
    partition_field,
    set_ref,
    sort_field,
    statistics,
    table,
)

SOUND = commit(
    appended(
        table(
            3,
            partition_spec={"fields": [partition_field(3, "day", "at_day")]},
            write_order={"order-id": 1, "fields": [sort_field(2)]},
        ),
        3,
    ),
    set_ref(1, "old", "tag"),
    {"action": "set-statistics", "statistics": statistics(1)},
    {"action": "add-encryption-key", "encryption-key": encryption_key()},
)


def with_(key: str, value: Any) -> Callable[[Metadata], Metadata]:
    return lambda metadata: metadata | {key: value}


def entry(key: str, place: int, **more: Any) -> Callable[[Metadata], Metadata]:
    more = {name.replace("_", "-"): value for name, value in more.items()}

    def change(metadata: Metadata) -> Metadata:
        entries = list(metadata[key])
        entries[place] = entries[place] | more
        return metadata | {key: entries}

    return change


def twice(key: str) -> Callable[[Metadata], Metadata]:
    return lambda metadata: metadata | {key: [*metadata[key], metadata[key][-1]]}


@pytest.mark.parametrize(
    ("change", "violation"),
    [
        (with_("format-version", 4), "format-version must be an integer from 1 to 3"),
        (with_("table-uuid", "x"), "table-uuid must be a UUID"),
        (with_("location", None), "location is missing"),
        (with_("last-updated-ms", -1), "last-updated-ms must be"),
        (with_("properties", {"a": 1}), "properties.a must be a string"),
        (with_("snapshots", {}), "snapshots must be an array"),
        (with_("refs", []), "refs must be an object"),
        (with_("next-row-id", None), "next-row-id is missing"),
        (with_("last-sequence-number", None), "last-sequence-number is missing"),
        (with_("x", 2**70), "x must fit into 64 bits"),
        (entry("schemas", 0, fields=[{"id": 1}]), "schemas[0].fields[0].name is missing"),
        (entry("snapshots", 1, manifest_list=None), "snapshots[1].manifest-list is missing"),
        (entry("snapshots", 1, summary={"a": 1}), "snapshots[1].summary.a must be a string"),
        (entry("partition-specs", 0, spec_id=None), "partition-specs[0].spec-id is missing"),
        (entry("sort-orders", 0, order_id="1"), "sort-orders[0].order-id must be"),
        (entry("metadata-log", 0, metadata_file=1), "metadata-log[0].metadata-file must be a string"),
        (with_("refs", {"main": 1}), "refs.main must be an object"),
        (with_("refs", {"main": {"snapshot-id": 3, "type": "bush"}}), "refs.main.type must be one of"),
        (twice("schemas"), "schemas holds a schema-id more than once"),
        (twice("partition-specs"), "partition-specs holds a spec-id more than once"),
        (twice("sort-orders"), "sort-orders holds a order-id more than once"),
        (twice("snapshots"), "snapshots holds a snapshot-id more than once"),
        (twice("statistics"), "statistics holds a snapshot-id more than once"),
        (twice("encryption-keys"), "encryption-keys holds a key-id more than once"),
        (with_("current-schema-id", 5), "current-schema-id 5 is not in schemas"),
        (with_("default-spec-id", 5), "default-spec-id 5 is not in partition-specs"),
        (with_("default-sort-order-id", 5), "default-sort-order-id 5 is not in sort-orders"),
        (with_("last-column-id", 2), "last-column-id 2 is below field id 3"),
        (with_("last-partition-id", 999), "last-partition-id 999 is below partition field id 1000"),
        (with_("last-sequence-number", 2), "snapshot 3 has a sequence number above last-sequence-number 2"),
        (with_("next-row-id", 8), "snapshot 3 has row ids above next-row-id 8"),
        (with_("current-snapshot-id", 9), "current-snapshot-id 9 does not exist"),
        (with_("current-snapshot-id", 2), "current-snapshot-id 2 is not where main points to"),
        (with_("refs", {"main": {"snapshot-id": 3, "type": "tag"}}), "main is not a branch"),
        (entry("snapshots", 0, snapshot_id=77), "tag old points to snapshot 1, which does not exist"),
        (entry("snapshot-log", 0, snapshot_id=77), "snapshot-log names snapshot 77, which does not exist"),
        (entry("snapshot-log", 2, snapshot_id=1), "snapshot-log does not end with the current snapshot 3"),
        (entry("snapshot-log", 0, timestamp_ms=NOW_MS * 2), "snapshot-log goes back in time"),
        (entry("metadata-log", 0, timestamp_ms=NOW_MS * 2), "metadata-log goes back in time"),
        (with_("last-updated-ms", 5), "last-updated-ms 5 is before the last entry of snapshot-log"),
        (
            entry("schemas", 0, fields=SCHEMA["fields"][:2]),
            "Cannot find source column for partition field: at_day day(3)",
        ),
    ],
)
def test_an_unsound_document_is_found_out(change: Callable[[Metadata], Metadata], violation: str) -> None:
    assert violations(SOUND) == []
    found = violations(change(SOUND))
    assert any(violation in sentence for sentence in found), found


@pytest.mark.parametrize("nonsense", [None, 5, "x", [], {}])
def test_nonsense_is_unsound(nonsense: object) -> None:
    assert violations(nonsense)
    assert view_violations(nonsense)


def test_v1_must_be_in_step_with_itself() -> None:
    made = table(1, partition_spec={"fields": [partition_field(1, "identity", "id")]})
    assert violations(made) == []
    assert violations(made | {"schema": None}) == ["schema is missing or malformed"]
    other = made["schema"] | {"fields": made["schema"]["fields"][:1], "identifier-field-ids": []}
    assert violations(made | {"schema": other}) == ["schema is not the current schema"]
    assert violations(made | {"partition-spec": []}) == ["partition-spec is not the default partition spec"]


OLD_V1: Metadata = {
    "format-version": 1,
    "location": LOCATION,
    "last-updated-ms": NOW_MS,
    "last-column-id": 3,
    "schema": {"type": "struct", "fields": SCHEMA["fields"]},
    "partition-spec": [partition_field(3, "day", "at_day")],
    "properties": {"owner": "me"},
    "current-snapshot-id": 7,
    "snapshots": [{"snapshot-id": 7, "timestamp-ms": NOW_MS, "manifests": ["a.avro"]}],
}


def test_an_old_document_is_completed_as_readers_do_it() -> None:
    made = with_defaults(OLD_V1, table_uuid=TABLE_UUID)
    assert violations(made) == []
    assert made["schemas"] == [OLD_V1["schema"] | {"schema-id": 0}]
    assert made["partition-specs"] == [
        {"spec-id": 0, "fields": [partition_field(3, "day", "at_day", field_id=1000)]}
    ]
    assert made["last-partition-id"] == 1000
    assert made["sort-orders"] == [{"order-id": 0, "fields": []}]
    assert made["refs"] == {"main": {"snapshot-id": 7, "type": "branch"}}
    assert made["table-uuid"] == TABLE_UUID
    assert with_defaults(made) is made
    assert append(made, 8)["current-snapshot-id"] == 8


def test_apply_completes_its_base_but_does_not_count_that_as_a_change() -> None:
    old = OLD_V1 | {"table-uuid": TABLE_UUID}
    assert apply(old, [{"type": "assert-default-spec-id", "default-spec-id": 0}], [], now_ms=NOW_MS) is old
    after = apply(
        old,
        [],
        [{"action": "set-properties", "updates": {"a": "b"}}],
        now_ms=NOW_MS + 5,
        metadata_location="x",
    )
    assert violations(after) == []
    assert after["metadata-log"] == [{"timestamp-ms": NOW_MS, "metadata-file": "x"}]


def test_a_null_current_snapshot_is_none() -> None:
    made = with_defaults(table(3) | {"current-snapshot-id": None})
    assert violations(made) == []
    assert append(made, 1)["current-snapshot-id"] == 1
