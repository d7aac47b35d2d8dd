"""A commit as a whole: no-ops, clocks, the metadata log, staged creates, upgrades, limits, replays."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from catalog.errors import CommitFailed, Invalid
from catalog.metadata.commit import apply, is_replay
from catalog.metadata.document import Metadata
from catalog.metadata.invariants import violations
from catalog.metadata.tables import with_refs_only
from catalog.metadata.validation import JSON_DEPTH_MAX, UPDATES_MAX
from tests.harness.documents import (
    LOCATION,
    NOW_MS,
    SCHEMA,
    TABLE_UUID,
    add_snapshot,
    append,
    appended,
    commit,
    encryption_key,
    partition_field,
    partition_statistics,
    set_ref,
    snapshot,
    sort_field,
    staged,
    statistics,
    table,
)

CREATE = [{"type": "assert-create"}]


def properties(**updates: str) -> dict[str, Any]:
    return {"action": "set-properties", "updates": updates}


# ── nothing changed ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "updates",
    [
        [],
        [{"action": "assign-uuid", "uuid": TABLE_UUID.upper()}],
        [{"action": "upgrade-format-version", "format-version": 2}],
        [{"action": "set-location", "location": f"{LOCATION}/"}],
        [{"action": "set-properties", "updates": {}}],
        [{"action": "set-properties", "updates": {"write.parquet.compression-codec": "zstd"}}],
        [{"action": "remove-properties", "removals": ["never-set"]}],
        [properties(a="b"), {"action": "remove-properties", "removals": ["a"]}],
        [{"action": "remove-statistics", "snapshot-id": 5}],
        [{"action": "remove-partition-statistics", "snapshot-id": 5}],
        [{"action": "remove-encryption-key", "key-id": "k"}],
        [{"action": "remove-snapshots", "snapshot-ids": []}],
    ],
)
def test_a_commit_without_effect_returns_the_document_itself(updates: list[dict[str, Any]]) -> None:
    base = table()
    assert apply(base, [], updates, now_ms=NOW_MS + 9, metadata_location="file:///m.json") is base


def test_repeating_a_creation_like_duckdb_changes_nothing() -> None:
    base = table(2, partition_spec={"fields": [partition_field(1, "bucket[4]", "b")]})
    repeated: list[dict[str, Any]] = [
        {"action": "assign-uuid", "uuid": TABLE_UUID},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": base["schemas"][0], "last-column-id": 3},
        {"action": "add-spec", "spec": base["partition-specs"][0]},
        {"action": "set-default-spec", "spec-id": 0},
        {"action": "add-sort-order", "sort-order": base["sort-orders"][0]},
        {"action": "set-default-sort-order", "sort-order-id": 0},
        {"action": "set-current-schema", "schema-id": 0},
    ]
    assert commit(base, *repeated) is base


# ── copies ────────────────────────────────────────────────────────────────────────────────────────


def test_the_base_and_the_request_are_never_changed_and_untouched_parts_are_shared() -> None:
    base = appended(table(3), 3)
    new = add_snapshot(snapshot(base, 9, parent=3, parent_snapshot_id=None))
    updates = [
        properties(a="b"),
        new,
        set_ref(9),
        {"action": "set-statistics", "statistics": statistics(9)},
        {"action": "add-encryption-key", "encryption-key": encryption_key()},
        {"action": "add-spec", "spec": {"fields": [partition_field(1, "identity", "id")]}},
        {"action": "add-sort-order", "sort-order": {"order-id": 1, "fields": [sort_field(1)]}},
        {"action": "remove-snapshots", "snapshot-ids": [1]},
    ]
    before, asked = copy.deepcopy(base), copy.deepcopy(updates)
    after = commit(base, *updates)
    assert base == before
    assert updates == asked
    assert after["schemas"] is base["schemas"]
    assert after["snapshots"][0] is base["snapshots"][1]


# ── clocks and the metadata log ───────────────────────────────────────────────────────────────────


def test_without_a_snapshot_the_update_time_is_now() -> None:
    base = appended(table(), 1)
    assert apply(base, [], [properties(a="b")], now_ms=NOW_MS + 700)["last-updated-ms"] == NOW_MS + 700
    earlier = apply(base, [], [properties(a="b")], now_ms=NOW_MS + 100)
    assert earlier["last-updated-ms"] == NOW_MS + 100 < base["last-updated-ms"]


def test_the_metadata_log_gets_the_last_file_with_its_own_time() -> None:
    base = table()
    first = apply(base, [], [properties(a="b")], now_ms=NOW_MS + 1, metadata_location="file:///0.json")
    second = apply(first, [], [properties(a="c")], now_ms=NOW_MS + 2, metadata_location="file:///1.json")
    assert second["metadata-log"] == [
        {"timestamp-ms": NOW_MS, "metadata-file": "file:///0.json"},
        {"timestamp-ms": NOW_MS + 1, "metadata-file": "file:///1.json"},
    ]
    assert apply(second, [], [properties(a="d")], now_ms=NOW_MS + 3)["metadata-log"] == second["metadata-log"]


@pytest.mark.parametrize(("value", "kept"), [("3", 3), ("0", 1), ("-5", 1), ("many", 7), ("100", 7)])
def test_the_metadata_log_is_trimmed_by_the_new_properties(value: str, kept: int) -> None:
    made = appended(table(), 6)
    after = commit(
        made, {"action": "set-properties", "updates": {"write.metadata.previous-versions-max": value}}
    )
    assert len(after["metadata-log"]) == kept
    assert after["metadata-log"][-1]["timestamp-ms"] == made["last-updated-ms"]


def test_a_hundred_previous_files_are_kept_by_default() -> None:
    assert len(appended(table(), 103)["metadata-log"]) == 100


# ── properties, location, uuid, version ───────────────────────────────────────────────────────────


def test_properties_are_set_and_removed() -> None:
    made = commit(table(), properties(a="1", b="2"), {"action": "remove-properties", "removals": ["a", "x"]})
    assert made["properties"] == {"write.parquet.compression-codec": "zstd", "b": "2"}
    old = commit(made, {"action": "set-properties", "updated": {"c": "3"}})
    assert "c" in old["properties"]
    assert "c" not in commit(old, {"action": "remove-properties", "removed": ["c"]})["properties"]


def test_reserved_properties_are_not_kept_and_the_version_upgrades() -> None:
    made = commit(
        table(), {"action": "set-properties", "updates": {"format-version": "3", "uuid": "x", "a": "b"}}
    )
    assert made["format-version"] == 3
    assert made["properties"] == {"write.parquet.compression-codec": "zstd", "a": "b"}
    with pytest.raises(Invalid, match="Cannot downgrade v3 table to v2"):
        commit(made, {"action": "set-properties", "updates": {"format-version": "2"}})


def test_upgrades() -> None:
    one = appended(table(1), 2)
    two = commit(one, {"action": "upgrade-format-version", "format-version": 2})
    assert "schema" not in two
    assert "partition-spec" not in two
    assert two["last-sequence-number"] == 0
    three = commit(append(two, 3), {"action": "upgrade-format-version", "format-version": 3})
    assert three["next-row-id"] == 0
    assert three["snapshots"][:2] == one["snapshots"]
    assert append(three, 4)["last-sequence-number"] == 2
    assert "current-snapshot-id" not in commit(
        table(1), {"action": "upgrade-format-version", "format-version": 3}
    )


@pytest.mark.parametrize(
    ("update", "message"),
    [
        ({"action": "upgrade-format-version", "format-version": 1}, "Cannot downgrade v2 table to v1"),
        (
            {"action": "upgrade-format-version", "format-version": 4},
            "unsupported format version: v4 (supported: v3)",
        ),
        ({"action": "upgrade-format-version", "format-version": "3"}, "format-version must be an integer"),
        ({"action": "assign-uuid", "uuid": "00000000-0000-4000-8000-000000000000"}, "Cannot reassign uuid"),
        ({"action": "assign-uuid", "uuid": "me"}, "uuid must be a UUID, not 'me'"),
        ({"action": "set-location", "location": ""}, "location must not be empty"),
        ({"action": "set-properties", "updates": {"a": None}}, "updates.a must be a string, not null"),
        ({"action": "set-properties"}, "updated is missing"),
        ({"action": "remove-properties", "removals": "a"}, "removals must be an array"),
        ({"action": "remove-properties", "removals": [1]}, "removals[0] must be a string"),
    ],
)
def test_a_wrong_top_level_update_is_refused_with_a_reason(update: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid) as refused:
        commit(table(), update)
    assert message in refused.value.message
    assert refused.value.message.startswith(f"Invalid update 0 ({update['action']}): ")


# ── statistics and encryption keys ────────────────────────────────────────────────────────────────


def test_statistics_are_replaced_for_each_snapshot() -> None:
    made = commit(
        appended(table(), 2), *({"action": "set-statistics", "statistics": statistics(i)} for i in (1, 2))
    )
    newer = statistics(1) | {"statistics-path": "newer", "x": 1}
    made = commit(made, {"action": "set-statistics", "snapshot-id": 77, "statistics": newer})
    assert made["statistics"] == [newer, statistics(2)]
    made = commit(made, {"action": "remove-statistics", "snapshot-id": 1})
    assert made["statistics"] == [statistics(2)]
    for path in ("a", "b"):
        file = partition_statistics(1) | {"statistics-path": path}
        made = commit(made, {"action": "set-partition-statistics", "partition-statistics": file})
    assert [file["statistics-path"] for file in made["partition-statistics"]] == ["b"]
    gone = commit(made, {"action": "remove-partition-statistics", "snapshot-id": 1})
    assert gone["partition-statistics"] == []


def test_encryption_keys_need_v3_and_are_added_once() -> None:
    key = encryption_key(properties=None, x=1)
    add = {"action": "add-encryption-key", "encryption-key": key}
    made = commit(table(3), add)
    assert made["encryption-keys"] == [{k: v for k, v in key.items() if k != "properties"}]
    assert (
        commit(made, {"action": "add-encryption-key", "encryption-key": key | {"encrypted-by-id": "z"}})
        is made
    )
    gone = commit(made, {"action": "remove-encryption-key", "key-id": "k1"})
    assert "encryption-keys" not in gone
    assert commit(made, {"action": "remove-encryption-key", "key-id": "k1"}, add)["encryption-keys"]
    with pytest.raises(Invalid, match="not supported until v3"):
        commit(table(2), add)


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (
            {"action": "set-statistics", "statistics": statistics(1) | {"file-size-in-bytes": -1}},
            "file-size-in-bytes",
        ),
        (
            {"action": "set-statistics", "statistics": statistics(1) | {"blob-metadata": [{}]}},
            "blob-metadata[0].type",
        ),
        (
            {"action": "set-partition-statistics", "partition-statistics": []},
            "partition-statistics must be an object",
        ),
        ({"action": "remove-statistics", "snapshot-id": "1"}, "snapshot-id must be an integer"),
        (
            {"action": "add-encryption-key", "encryption-key": {"key-id": "k"}},
            "encrypted-key-metadata is missing",
        ),
        (
            {
                "action": "add-encryption-key",
                "encryption-key": encryption_key() | {"encrypted-key-metadata": "é?"},
            },
            "encrypted-key-metadata must be base64",
        ),
        ({"action": "remove-encryption-key"}, "key-id is missing"),
    ],
)
def test_a_wrong_file_or_key_is_refused_with_a_reason(update: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid) as refused:
        commit(table(3), update)
    assert message in refused.value.message


# ── staged creates ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_staged_create_makes_what_the_staged_answer_showed(version: int) -> None:
    begun = table(version, partition_spec={"fields": [partition_field(1, "bucket[4]", "b")]})
    made = staged(version, base=begun)
    assert made == begun | {"last-updated-ms": NOW_MS + 2_000}
    assert made["metadata-log"] == []
    assert violations(made) == []


def test_a_staged_create_with_data() -> None:
    made = staged(2, add_snapshot(snapshot(table(), 1)), set_ref(1))
    assert made["current-snapshot-id"] == 1
    assert made["last-updated-ms"] == made["snapshots"][0]["timestamp-ms"]


def test_a_staged_create_with_a_sort_order_has_that_one_only() -> None:
    begun = table(2, write_order={"order-id": 1, "fields": [sort_field(1)]})
    assert staged(2, base=begun)["sort-orders"] == begun["sort-orders"]


def test_a_staged_create_begins_at_v2_and_keeps_no_reserved_property() -> None:
    made = apply(
        None,
        CREATE,
        [
            {"action": "assign-uuid", "uuid": TABLE_UUID},
            {"action": "add-schema", "schema": SCHEMA},
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-spec", "spec": {"fields": []}},
            {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
            {"action": "set-location", "location": LOCATION},
            {"action": "set-properties", "updates": {"format-version": "1", "a": "b"}},
        ],
        now_ms=NOW_MS,
    )
    assert made["format-version"] == 2
    assert made["properties"] == {"a": "b"}
    assert (made["default-spec-id"], made["default-sort-order-id"]) == (0, 0)


@pytest.mark.parametrize(
    ("left_out", "message"),
    [
        ("assign-uuid", "assign-uuid is missing"),
        ("set-location", "set-location is missing"),
        ("add-schema", "a schema must be added first"),
        ("add-spec", "add-spec is missing"),
        ("add-sort-order", "add-sort-order is missing"),
    ],
)
def test_a_staged_create_must_be_complete(left_out: str, message: str) -> None:
    updates: list[dict[str, Any]] = [
        {"action": "assign-uuid", "uuid": TABLE_UUID},
        {"action": "add-schema", "schema": SCHEMA},
        {"action": "add-spec", "spec": {"fields": [partition_field(1, "identity", "id")]}},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-location", "location": LOCATION},
    ]
    with pytest.raises(Invalid, match=message):
        apply(None, CREATE, [u for u in updates if u["action"] != left_out], now_ms=NOW_MS)


def test_a_staged_create_of_an_unknown_version_is_refused() -> None:
    for version in (0, 4, True, "2", None):
        with pytest.raises(Invalid, match="Unsupported format version"):
            apply(
                None, CREATE, [{"action": "upgrade-format-version", "format-version": version}], now_ms=NOW_MS
            )


def test_a_snapshot_needs_a_laid_out_table() -> None:
    with pytest.raises(Invalid, match="before a schema is added"):
        apply(None, CREATE, [add_snapshot(snapshot(table(), 1))], now_ms=NOW_MS)


# ── shapes and limits of a request ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("updates", "message"),
    [
        (None, "updates must be an array"),
        ([1], "Invalid update 0: must be an object"),
        ([properties(a="b"), {}], "Invalid update 1.action is missing"),
        ([{"action": "add-view-version"}], "cannot apply 'add-view-version' to a table"),
        ([properties()] * (UPDATES_MAX + 1), "updates"),
        (
            [{"action": "set-properties", "updates": {}, "x": [2**70]}],
            "(set-properties): x[0] must fit into 64 bits",
        ),
    ],
)
def test_a_malformed_request_is_refused_with_a_reason(updates: Any, message: str) -> None:
    with pytest.raises(Invalid) as refused:
        apply(table(), [], updates, now_ms=NOW_MS)
    assert message in refused.value.message


def test_what_could_not_be_written_is_refused() -> None:
    deep: Any = 1
    for _ in range(JSON_DEPTH_MAX + 1):
        deep = [deep]
    made = table()
    with pytest.raises(Invalid, match="levels deep"):
        commit(made, add_snapshot(snapshot(made, 1, x=deep)))


def test_a_version_that_is_not_known_is_not_touched() -> None:
    with pytest.raises(Invalid, match="Unsupported format version: v4"):
        apply(table() | {"format-version": 4}, [], [], now_ms=NOW_MS)


# ── replays ───────────────────────────────────────────────────────────────────────────────────────


def _append(metadata: Metadata, id_: int) -> list[dict[str, Any]]:
    return [add_snapshot(snapshot(metadata, id_)), set_ref(id_)]


def test_a_landed_commit_is_a_replay_and_a_new_one_is_not() -> None:
    base = appended(table(), 2)
    updates = _append(base, 3)
    assert not is_replay(base, [], updates)
    after = commit(base, *updates)
    assert is_replay(after, [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 2}], updates)
    assert not is_replay(after, [], [*updates, *_append(after, 4)])
    assert not is_replay(None, [], updates)


def test_the_same_snapshot_id_with_other_files_is_no_replay() -> None:
    after = appended(table(), 1)
    assert not is_replay(after, [], [add_snapshot(after["snapshots"][0] | {"manifest-list": "other"})])


def test_a_commit_without_snapshots_is_never_a_replay() -> None:
    assert not is_replay(table(), [], [properties(a="b")])
    assert not is_replay(table(), [], [])


def test_a_landed_create_is_a_replay_by_its_uuid() -> None:
    made = staged(2, *_append(table(), 1))
    uuid = {"action": "assign-uuid", "uuid": TABLE_UUID.upper()}
    assert is_replay(made, CREATE, [uuid])
    assert is_replay(made, CREATE, [uuid, *_append(table(), 1)])
    assert not is_replay(made, CREATE, [uuid, *_append(table(), 2)])
    assert not is_replay(
        made, CREATE, [{"action": "assign-uuid", "uuid": "00000000-0000-4000-8000-000000000000"}]
    )
    assert not is_replay(made, CREATE, [])


def test_a_conflict_leaves_a_class_that_says_so() -> None:
    base = appended(table(), 2)
    with pytest.raises(CommitFailed) as refused:
        commit(base, add_snapshot(snapshot(base, 3, parent=2, sequence_number=1)))
    assert refused.value.status == 409


# ── the short form ────────────────────────────────────────────────────────────────────────────────


def test_refs_only_hides_what_no_reference_points_to() -> None:
    made = commit(appended(table(), 4), set_ref(2, "old", "tag"))
    for id_ in (1, 2, 99):
        made = commit(
            made,
            {"action": "set-statistics", "statistics": statistics(id_)},
            {"action": "set-partition-statistics", "partition-statistics": partition_statistics(id_)},
        )
    short = with_refs_only(made)
    assert [entry["snapshot-id"] for entry in short["snapshots"]] == [2, 4]
    assert [entry["snapshot-id"] for entry in short["statistics"]] == [2, 99]
    assert [entry["snapshot-id"] for entry in short["partition-statistics"]] == [2, 99]
    assert short["snapshot-log"] is made["snapshot-log"]
    assert len(made["snapshots"]) == 4
    assert with_refs_only(short) is short
