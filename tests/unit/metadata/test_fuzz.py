"""Whatever JSON comes in: a sound document, or a refusal of the catalog with a message; never a crash."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.errors import CatalogError, CommitFailed, Invalid, RequirementFailed
from catalog.metadata.commit import UPDATES, apply, check_requirements, is_replay
from catalog.metadata.document import with_defaults
from catalog.metadata.invariants import violations
from catalog.metadata.tables import new_table, with_refs_only
from tests.harness.documents import (
    LOCATION,
    NESTED,
    NOW_MS,
    TABLE_UUID,
    add_snapshot,
    appended,
    encryption_key,
    field,
    partition_field,
    partition_statistics,
    produced_documents,
    set_ref,
    snapshot,
    sort_field,
    statistics,
    struct,
    table,
)
from tests.harness.strategies import WRONG_VALUES, broken

BASES = {version: appended(table(version), 2) for version in (1, 2, 3)}
BROKEN_EXAMPLES = 150


def outcome(call: Callable[[], object]) -> object:
    """What the call returns, or how the catalog refuses it. Any other exception is a failure of the test."""
    try:
        return call()
    except CatalogError as refused:
        return refused


def _updates(version: int) -> list[dict[str, Any]]:
    """A valid one of each kind."""
    base = BASES[version]
    spec = {"fields": [partition_field(3, "day", "at_day", field_id=1000)]}
    return [
        {"action": "assign-uuid", "uuid": TABLE_UUID},
        {"action": "upgrade-format-version", "format-version": 3},
        {"action": "set-location", "location": LOCATION},
        {"action": "set-properties", "updates": {"a": "b", "format-version": "3"}},
        {"action": "remove-properties", "removals": ["a"]},
        {"action": "add-schema", "schema": base["schemas"][0] | {"fields": NESTED["fields"]}},
        {"action": "set-current-schema", "schema-id": 0},
        {"action": "remove-schemas", "schema-ids": [4]},
        {"action": "add-spec", "spec": spec},
        {"action": "set-default-spec", "spec-id": 0},
        {"action": "remove-partition-specs", "spec-ids": [4]},
        {"action": "add-sort-order", "sort-order": {"order-id": 1, "fields": [sort_field(2)]}},
        {"action": "set-default-sort-order", "sort-order-id": 0},
        add_snapshot(snapshot(base, 3, parent=2)),
        {"action": "remove-snapshots", "snapshot-ids": [1]},
        set_ref(1, "b", min_snapshots_to_keep=1, max_snapshot_age_ms=1, max_ref_age_ms=1),
        {"action": "remove-snapshot-ref", "ref-name": "b"},
        {"action": "set-statistics", "snapshot-id": 1, "statistics": statistics(1)},
        {"action": "remove-statistics", "snapshot-id": 1},
        {"action": "set-partition-statistics", "partition-statistics": partition_statistics(1)},
        {"action": "remove-partition-statistics", "snapshot-id": 1},
        {"action": "add-encryption-key", "encryption-key": encryption_key(properties={"a": "b"})},
        {"action": "remove-encryption-key", "key-id": "k1"},
    ]


REQUIREMENTS = [
    {"type": "assert-create"},
    {"type": "assert-table-uuid", "uuid": TABLE_UUID},
    {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 2},
    {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 3},
    {"type": "assert-current-schema-id", "current-schema-id": 0},
    {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 999},
    {"type": "assert-default-spec-id", "default-spec-id": 0},
    {"type": "assert-default-sort-order-id", "default-sort-order-id": 0},
]
REQUEST = {
    "name": "t",
    "schema": struct(
        *NESTED["fields"], field(30, "at", "timestamp", **{"write-default": "2007-12-03T10:15:30"})
    ),
    "partition-spec": {
        "spec-id": 3,
        "fields": [partition_field(10, "bucket[4]", "b"), partition_field(30, "day", "d")],
    },
    "write-order": {"order-id": 3, "fields": [sort_field(10)]},
    "properties": {"format-version": "3", "commit.retry.num-retries": "7"},
}


def test_there_is_a_valid_update_of_every_kind() -> None:
    assert {update["action"] for update in _updates(2)} == UPDATES.keys()
    assert len(UPDATES) == 23


@pytest.mark.parametrize("version", BASES)
@settings(max_examples=BROKEN_EXAMPLES, deadline=None)
@given(data=st.data())
def test_a_broken_update_is_refused_or_harmless(version: int, data: st.DataObject) -> None:
    base = BASES[version]
    before = orjson.dumps(base)
    update = data.draw(st.sampled_from(_updates(version)))
    spoiled = data.draw(broken(update))
    after = outcome(lambda: apply(base, [], [spoiled], now_ms=NOW_MS + 10_000, metadata_location="file:///m"))
    if isinstance(after, CommitFailed):
        assert after.message.startswith("Validation failed, please retry")
    elif isinstance(after, Invalid):
        assert "Invalid update 0" in after.message
    else:
        assert violations(after) == []
        orjson.dumps(after)
    assert orjson.dumps(base) == before


@settings(max_examples=BROKEN_EXAMPLES, deadline=None)
@given(data=st.data())
def test_a_broken_create_commit_is_refused_or_harmless(data: st.DataObject) -> None:
    updates: list[dict[str, Any]] = [
        {"action": "assign-uuid", "uuid": TABLE_UUID},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": table()["schemas"][0]},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": [partition_field(1, "identity", "id")]}},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-location", "location": LOCATION},
        add_snapshot(snapshot(table(), 1)),
        set_ref(1),
    ]
    assert violations(apply(None, [{"type": "assert-create"}], updates, now_ms=NOW_MS + 10_000)) == []
    spoiled = data.draw(broken(updates))
    after = outcome(lambda: apply(None, [{"type": "assert-create"}], spoiled, now_ms=NOW_MS + 10_000))
    assert isinstance(after, Invalid) or violations(after) == []


@settings(max_examples=BROKEN_EXAMPLES, deadline=None)
@given(data=st.data(), exists=st.booleans())
def test_a_broken_requirement_is_refused_or_checked(data: st.DataObject, exists: bool) -> None:
    requirement = data.draw(st.sampled_from(REQUIREMENTS))
    spoiled = data.draw(broken([requirement]))
    refused = outcome(lambda: check_requirements(BASES[2] if exists else None, spoiled))
    assert refused is None or isinstance(refused, Invalid | RequirementFailed)


@settings(max_examples=BROKEN_EXAMPLES, deadline=None)
@given(data=st.data())
def test_a_broken_create_request_is_refused_or_harmless(data: st.DataObject) -> None:
    assert new_table(REQUEST, location=LOCATION, table_uuid=TABLE_UUID, now_ms=NOW_MS)["format-version"] == 3
    spoiled = data.draw(broken(REQUEST).filter(lambda value: isinstance(value, dict)))
    made = outcome(lambda: new_table(spoiled, location=LOCATION, table_uuid=TABLE_UUID, now_ms=NOW_MS))
    if not isinstance(made, Invalid):
        assert violations(made) == []
        orjson.dumps(made)


@settings(max_examples=100, deadline=None)
@given(requirements=WRONG_VALUES, updates=WRONG_VALUES)
def test_nonsense_is_no_replay(requirements: Any, updates: Any) -> None:
    assert not is_replay(BASES[2], requirements, updates)
    assert not is_replay(None, requirements, updates)


DOCUMENTS = [metadata for _, metadata in produced_documents()]


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_broken_document_can_be_completed_and_judged(data: st.DataObject) -> None:
    spoiled = data.draw(st.sampled_from(DOCUMENTS).flatmap(broken))
    if isinstance(spoiled, dict):
        spoiled = with_defaults(spoiled)
    for violation in violations(spoiled):
        assert violation
    if violations(spoiled) == []:
        orjson.dumps(with_refs_only(spoiled))
