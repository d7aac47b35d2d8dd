"""add-snapshot, remove-snapshots, references and the snapshot log."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.errors import CommitFailed, Invalid
from catalog.metadata.commit import apply
from catalog.metadata.document import Metadata
from catalog.metadata.snapshots import collapse_logs
from catalog.metadata.validation import CLOCK_SKEW_MS_MAX, LONG_MAX
from tests.harness.documents import (
    NOW_MS,
    add_snapshot,
    append,
    appended,
    commit,
    partition_statistics,
    set_ref,
    snapshot,
    statistics,
    table,
)


def log(metadata: Metadata) -> list[int]:
    return [entry["snapshot-id"] for entry in metadata["snapshot-log"]]


def snapshot_ids(metadata: Metadata) -> list[int]:
    return [entry["snapshot-id"] for entry in metadata["snapshots"]]


def remove(*ids: int) -> dict[str, Any]:
    return {"action": "remove-snapshots", "snapshot-ids": list(ids)}


def test_an_append_is_logged_with_its_own_time() -> None:
    base = table()
    made = commit(base, add_snapshot(snapshot(base, 1)), set_ref(1))
    assert made["current-snapshot-id"] == 1
    assert made["refs"] == {"main": {"type": "branch", "snapshot-id": 1}}
    assert made["last-sequence-number"] == 1
    assert made["snapshot-log"] == [{"timestamp-ms": NOW_MS + 500, "snapshot-id": 1}]
    assert made["last-updated-ms"] == NOW_MS + 500


def test_a_rollback_is_logged_with_the_time_of_the_request() -> None:
    made = appended(table(), 2)
    back = apply(made, [], [set_ref(1)], now_ms=NOW_MS + 60_000)
    assert back["snapshot-log"][-1] == {"timestamp-ms": NOW_MS + 60_000, "snapshot-id": 1}
    assert back["last-updated-ms"] == NOW_MS + 60_000
    assert back["current-snapshot-id"] == 1


def test_of_several_snapshots_in_one_request_only_the_last_is_logged() -> None:
    made = appended(table(), 1)
    first = snapshot(made, 2, parent=1)
    second = snapshot(made, 3, parent=2, sequence_number=first["sequence-number"] + 1)
    for updates in (
        [add_snapshot(first), set_ref(2), add_snapshot(second), set_ref(3)],
        [add_snapshot(first), add_snapshot(second), set_ref(3)],
    ):
        after = commit(made, *updates)
        assert log(after) == [1, 3]
        assert snapshot_ids(after) == [1, 2, 3]
        assert after["last-sequence-number"] == 3


def test_an_added_snapshot_that_is_rolled_back_at_once_is_not_logged() -> None:
    made = appended(table(), 2)
    after = commit(made, add_snapshot(snapshot(made, 3, parent=2)), set_ref(3), set_ref(1))
    assert log(after) == [1, 2, 1]


def test_a_snapshot_on_a_side_branch_is_not_logged() -> None:
    made = append(appended(table(), 1), 2, "audit")
    assert log(made) == [1]
    assert made["current-snapshot-id"] == 1
    assert made["refs"]["audit"]["snapshot-id"] == 2


@pytest.mark.parametrize("version", [2, 3])
def test_a_stale_sequence_number_is_a_conflict(version: int) -> None:
    made = appended(table(version), 2)
    with pytest.raises(CommitFailed) as refused:
        commit(made, add_snapshot(snapshot(made, 3, parent=2, sequence_number=2)))
    assert refused.value.message == (
        "Validation failed, please retry: "
        "Cannot add snapshot with sequence number 2 older than last sequence number 2"
    )


def test_without_a_parent_a_stale_sequence_number_is_taken_and_the_last_one_stays() -> None:
    made = appended(table(), 3)
    after = commit(made, add_snapshot(snapshot(made, 9, sequence_number=2)), set_ref(9))
    assert after["last-sequence-number"] == 3
    null_parent = snapshot(made, 10, sequence_number=1, parent_snapshot_id=None)
    assert "parent-snapshot-id" not in commit(made, add_snapshot(null_parent))["snapshots"][-1]


def test_v1_has_no_sequence_numbers() -> None:
    made = table(1)
    after = commit(made, add_snapshot(snapshot(made, 1, sequence_number=0)), set_ref(1))
    assert "sequence-number" not in after["snapshots"][0]
    assert "last-sequence-number" not in after
    with pytest.raises(Invalid, match="Sequence number must be 0 in v1: 4"):
        commit(made, add_snapshot(snapshot(made, 1, sequence_number=4)))


def test_v1_may_embed_its_manifests() -> None:
    made = table(1)
    embedded = snapshot(made, 1, manifests=["a.avro"], manifest_list=None, summary=None)
    embedded.pop("summary")
    assert commit(made, add_snapshot(embedded))["snapshots"][0]["manifests"] == ["a.avro"]


def test_v3_row_ids_are_given_once() -> None:
    made = append(table(3), 1, rows=5)
    assert made["next-row-id"] == 5
    made = append(made, 2, "audit", rows=7)
    assert made["next-row-id"] == 12
    with pytest.raises(CommitFailed, match="first-row-id is behind table next-row-id: 11 < 12"):
        commit(made, add_snapshot(snapshot(made, 3, parent=1, first_row_id=11)))
    gap = commit(made, add_snapshot(snapshot(made, 3, parent=1, first_row_id=20, rows=2)))
    assert gap["next-row-id"] == 22


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"first_row_id": None}, "first-row-id is null"),
        ({"added_rows": None}, "added-rows is missing"),
        ({"first_row_id": -1}, "snapshot.first-row-id must be an integer"),
        ({"added_rows": -1}, "snapshot.added-rows must be an integer"),
        ({"first_row_id": LONG_MAX, "added_rows": 2}, "beyond the highest row id"),
    ],
)
def test_v3_rows_must_be_told(more: dict[str, Any], message: str) -> None:
    made = table(3)
    with pytest.raises(Invalid) as refused:
        commit(made, add_snapshot(snapshot(made, 1, **more)))
    assert message in refused.value.message


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"snapshot_id": None}, "snapshot.snapshot-id is missing"),
        ({"snapshot_id": True}, "snapshot.snapshot-id must be an integer"),
        ({"snapshot_id": -5}, "snapshot.snapshot-id must be an integer"),
        ({"snapshot_id": 2**63}, "snapshot.snapshot-id must fit into 64 bits"),
        ({"snapshot_id": 1}, "Snapshot already exists for id: 1"),
        ({"timestamp_ms": "now"}, "snapshot.timestamp-ms must be an integer"),
        ({"timestamp_ms": NOW_MS + 10**9}, "ahead of the server's clock"),
        ({"manifest_list": None}, "snapshot.manifest-list is missing"),
        ({"manifest_list": ""}, "snapshot.manifest-list must not be empty"),
        ({"summary": None}, "snapshot.summary is missing"),
        ({"summary": {"operation": "explode"}}, "snapshot.summary.operation must be one of"),
        ({"summary": {"operation": "append", "n": 1}}, "snapshot.summary.n must be a string"),
        ({"sequence_number": None}, "snapshot.sequence-number is missing"),
        ({"parent_snapshot_id": "1"}, "snapshot.parent-snapshot-id must be an integer"),
        ({"schema_id": "0"}, "snapshot.schema-id must be an integer"),
        ({"key_id": 5}, "snapshot.key-id must be a string"),
        ({"first_row_id": 1}, "snapshot.added-rows is missing"),
    ],
)
def test_a_wrong_snapshot_is_refused_with_a_reason(more: dict[str, Any], message: str) -> None:
    made = appended(table(), 1)
    with pytest.raises(Invalid) as refused:
        commit(made, add_snapshot(snapshot(made, 2, parent=1, **more)))
    assert message in refused.value.message


def test_unknown_fields_of_a_snapshot_survive() -> None:
    made = append(table(), 1, x_unknown={"a": [None]}, key_id="k")
    assert made["snapshots"][0]["x-unknown"] == {"a": [None]}
    assert made["snapshots"][0]["key-id"] == "k"


def test_removing_snapshots_removes_what_hung_on_them_and_nothing_else() -> None:
    made = commit(appended(table(), 4), set_ref(2, "old", "tag"), set_ref(4, "new", "tag"))
    for id_ in (2, 4):
        made = commit(
            made,
            {"action": "set-statistics", "statistics": statistics(id_)},
            {"action": "set-partition-statistics", "partition-statistics": partition_statistics(id_)},
        )
    after = commit(made, remove(2, 999))
    assert snapshot_ids(after) == [1, 3, 4]
    assert log(after) == [3, 4]
    assert set(after["refs"]) == {"main", "new"}
    assert [file["snapshot-id"] for file in after["statistics"]] == [4]
    assert [file["snapshot-id"] for file in after["partition-statistics"]] == [4]
    assert after["snapshots"][1]["parent-snapshot-id"] == 2
    assert commit(after, remove(2, -1)) is after


def test_removing_the_current_snapshot_leaves_none() -> None:
    after = commit(appended(table(), 2), remove(2))
    assert after["current-snapshot-id"] == -1
    assert after["refs"] == {}
    assert log(after) == []
    assert "current-snapshot-id" not in commit(appended(table(3), 1), remove(1))


def test_a_snapshot_can_be_added_and_removed_in_one_request() -> None:
    made = appended(table(), 1)
    after = commit(made, add_snapshot(snapshot(made, 2, parent=1)), set_ref(2), remove(2))
    assert snapshot_ids(after) == [1]
    assert "main" not in after["refs"]


def test_main_must_be_a_branch() -> None:
    with pytest.raises(Invalid, match="Cannot set main to a tag, it must be a branch"):
        commit(appended(table(), 1), set_ref(1, "main", "tag"))


def test_removing_main_clears_the_current_snapshot() -> None:
    made = appended(table(), 2)
    after = commit(made, {"action": "remove-snapshot-ref", "ref-name": "main"})
    assert after["current-snapshot-id"] == -1
    assert log(after) == [1, 2]
    assert commit(after, {"action": "remove-snapshot-ref", "ref-name": "main"}) is after
    assert log(commit(after, set_ref(1))) == [1, 2, 1]


def test_a_reference_keeps_its_retention_and_unknown_fields() -> None:
    made = commit(appended(table(), 1), set_ref(1, "b", min_snapshots_to_keep=2, max_ref_age_ms=None, x="y"))
    assert made["refs"]["b"] == {"type": "branch", "snapshot-id": 1, "min-snapshots-to-keep": 2, "x": "y"}
    assert commit(made, set_ref(1, "b", min_snapshots_to_keep=2, x="y")) is made


def test_new_retention_of_main_is_no_new_current_snapshot() -> None:
    made = commit(appended(table(), 1), set_ref(1, max_snapshot_age_ms=9))
    assert made["refs"]["main"]["max-snapshot-age-ms"] == 9
    assert log(made) == [1]


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (set_ref(7), "Cannot set main to unknown snapshot: 7"),
        (set_ref(1, ""), "ref-name must not be empty"),
        (set_ref(1, "b", "bush"), "Invalid snapshot ref type"),
        (set_ref(1, "b", min_snapshots_to_keep=0), "min-snapshots-to-keep must be an integer"),
        (set_ref(1, "t", "tag", max_snapshot_age_ms=5), "Tags do not support setting max-snapshot-age-ms"),
        ({"action": "set-snapshot-ref", "ref-name": "b", "type": "branch"}, "snapshot-id is missing"),
        ({"action": "remove-snapshot-ref"}, "ref-name is missing"),
        ({"action": "remove-snapshots"}, "snapshot-ids is missing"),
        ({"action": "remove-snapshots", "snapshot-ids": ["1"]}, "snapshot-ids[0] must be an integer"),
    ],
)
def test_a_wrong_reference_update_is_refused_with_a_reason(update: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid) as refused:
        commit(appended(table(), 1), update)
    assert message in refused.value.message


def test_a_writer_with_a_slow_clock_does_not_make_the_log_unreadable() -> None:
    made = appended(table(), 1)
    now_ms = NOW_MS + 10 * CLOCK_SKEW_MS_MAX
    made = apply(made, [], [set_ref(1), *_at(made, 2, now_ms)], now_ms=now_ms)
    slow = apply(made, [], _at(made, 3, NOW_MS), now_ms=now_ms + 5)
    assert slow["snapshot-log"][-1] == {"timestamp-ms": now_ms + 5, "snapshot-id": 3}
    assert slow["last-updated-ms"] == now_ms + 5 - CLOCK_SKEW_MS_MAX
    a_bit_slow = apply(made, [], _at(made, 3, now_ms - 5), now_ms=now_ms + 5)
    assert a_bit_slow["snapshot-log"][-1]["timestamp-ms"] == now_ms - 5
    assert a_bit_slow["last-updated-ms"] == now_ms - 5


def test_a_server_whose_clock_went_back_does_not_make_the_log_unreadable() -> None:
    made = appended(table(), 2)
    hour_ago = apply(made, [], [set_ref(1)], now_ms=NOW_MS - 3_600_000)
    assert hour_ago["snapshot-log"][-1]["timestamp-ms"] == made["snapshot-log"][-1]["timestamp-ms"]
    assert hour_ago["last-updated-ms"] == made["last-updated-ms"] - CLOCK_SKEW_MS_MAX


def _at(metadata: Metadata, id_: int, timestamp_ms: int) -> list[dict[str, Any]]:
    return [add_snapshot(snapshot(metadata, id_, parent=1, timestamp_ms=timestamp_ms)), set_ref(id_)]


LOG_ENTRY = st.builds(
    lambda at, id_: {"timestamp-ms": at, "snapshot-id": id_}, st.integers(0, 3), st.integers(0, 3)
)


@given(st.lists(LOG_ENTRY, max_size=6), st.lists(LOG_ENTRY, max_size=6), st.booleans())
def test_collapsed_logs_have_what_is_left_of_the_published_log_and_the_last_entry(
    before: list[dict[str, int]], now: list[dict[str, int]], grown: bool
) -> None:
    now = [*before, *now] if grown else now
    kept = [entry for entry in before if entry in now]
    expected = [*kept, now[-1]] if now and (not kept or now[-1] != kept[-1]) else kept
    found = collapse_logs({"snapshot-log": now}, {"snapshot-log": before, "last-updated-ms": 0}, None)
    assert found["snapshot-log"] == expected


def test_collapsing_a_long_log_compares_each_entry_once() -> None:
    class Entry(dict[str, int]):
        comparisons = 0

        def __eq__(self, other: object) -> bool:
            Entry.comparisons += 1
            return dict.__eq__(self, other)

        __hash__ = None

    before = [Entry({"timestamp-ms": number, "snapshot-id": number}) for number in range(2_000)]
    now = [Entry(entry) for entry in before[100:]] + [Entry({"timestamp-ms": 9_999, "snapshot-id": 9_999})]
    published = {"snapshot-log": before, "last-updated-ms": 0}
    assert len(collapse_logs({"snapshot-log": now}, published, None)["snapshot-log"]) == 1_901
    assert Entry.comparisons <= 4_000
