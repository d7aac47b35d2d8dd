"""The eight requirements, and the messages that clients assert."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.errors import CommitFailed, Invalid, RequirementFailed
from catalog.metadata.commit import apply, check_requirements
from catalog.metadata.validation import REQUIREMENTS_MAX
from tests.harness.documents import NOW_MS, TABLE_UUID, appended, commit, set_ref, table

TABLE = commit(appended(table(), 2), set_ref(1, "v1", "tag"))
OTHER_UUID = "00000000-0000-4000-8000-000000000000"

HOLD = [
    {"type": "assert-table-uuid", "uuid": TABLE_UUID},
    {"type": "assert-table-uuid", "uuid": TABLE_UUID.upper()},
    {"type": "ASSERT-TABLE-UUID", "uuid": TABLE_UUID},
    {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 2},
    {"type": "assert-ref-snapshot-id", "ref": "v1", "snapshot-id": 1},
    {"type": "assert-ref-snapshot-id", "ref": "nobody", "snapshot-id": None},
    {"type": "assert-ref-snapshot-id", "ref": "nobody"},
    {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 3},
    {"type": "assert-current-schema-id", "current-schema-id": 0},
    {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 999},
    {"type": "assert-default-spec-id", "default-spec-id": 0},
    {"type": "assert-default-sort-order-id", "default-sort-order-id": 0},
]
FAIL: list[tuple[dict[str, Any], str]] = [
    ({"type": "assert-create"}, "table already exists"),
    (
        {"type": "assert-table-uuid", "uuid": OTHER_UUID},
        f"UUID does not match: expected {TABLE_UUID} != {OTHER_UUID}",
    ),
    (
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1},
        "branch main has changed: expected id 1 != 2",
    ),
    (
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None},
        "branch main was created concurrently",
    ),
    ({"type": "assert-ref-snapshot-id", "ref": "v1", "snapshot-id": None}, "tag v1 was created concurrently"),
    (
        {"type": "assert-ref-snapshot-id", "ref": "gone", "snapshot-id": 7},
        "branch or tag gone is missing, expected 7",
    ),
    (
        {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 2},
        "last assigned field id changed: expected id 2 != 3",
    ),
    (
        {"type": "assert-current-schema-id", "current-schema-id": 1},
        "current schema changed: expected id 1 != 0",
    ),
    (
        {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 1000},
        "last assigned partition id changed: expected id 1000 != 999",
    ),
    (
        {"type": "assert-default-spec-id", "default-spec-id": 1},
        "default partition spec changed: expected id 1 != 0",
    ),
    (
        {"type": "assert-default-sort-order-id", "default-sort-order-id": 1},
        "default sort order changed: expected id 1 != 0",
    ),
]


@pytest.mark.parametrize("requirement", HOLD)
def test_a_requirement_that_holds(requirement: dict[str, Any]) -> None:
    check_requirements(TABLE, [requirement])


@pytest.mark.parametrize(("requirement", "message"), FAIL)
def test_a_requirement_that_fails(requirement: dict[str, Any], message: str) -> None:
    with pytest.raises(RequirementFailed) as failed:
        check_requirements(TABLE, [requirement])
    assert failed.value.message == f"Requirement failed: {message}"
    assert isinstance(failed.value, CommitFailed)


def test_a_null_assert_on_a_side_branch_of_an_empty_table_holds() -> None:
    check_requirements(table(), [{"type": "assert-ref-snapshot-id", "ref": "audit", "snapshot-id": None}])


@pytest.mark.parametrize(
    ("requirements", "message"),
    [
        (None, "requirements must be an array"),
        ([1], "Invalid requirement 0: must be an object"),
        ([{}], "Invalid requirement 0: type is missing"),
        ([*HOLD[:1], {"type": "assert-good-mood"}], "Invalid requirement 1: Unrecognized update requirement"),
        ([{"type": "assert-view-uuid", "uuid": TABLE_UUID}], "Unrecognized update requirement"),
        ([{"type": "assert-table-uuid"}], "uuid is missing"),
        (
            [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": True}],
            "snapshot-id must be an integer",
        ),
        (
            [{"type": "assert-current-schema-id", "current-schema-id": "0"}],
            "current-schema-id must be an integer",
        ),
        ([{"type": "assert-create"}, HOLD[0]], "Invalid create requirements: assert-table-uuid"),
        ([{"type": "assert-create"}] * (REQUIREMENTS_MAX + 1), "requirements"),
    ],
)
def test_a_malformed_requirement_is_refused_before_any_is_checked(requirements: Any, message: str) -> None:
    for metadata in (TABLE, None):
        with pytest.raises(Invalid) as refused:
            check_requirements(metadata, requirements)
        assert message in refused.value.message


def test_a_missing_table_needs_assert_create_alone() -> None:
    check_requirements(None, [{"type": "assert-create"}])
    for requirements in ([], [{"type": "assert-table-uuid", "uuid": TABLE_UUID}]):
        with pytest.raises(Invalid, match="Invalid create requirements"):
            check_requirements(None, requirements)


def test_apply_checks_requirements_before_updates() -> None:
    bad_update = {"action": "set-current-schema", "schema-id": 99}
    with pytest.raises(RequirementFailed):
        apply(TABLE, [FAIL[1][0]], [bad_update], now_ms=NOW_MS)


def test_an_unknown_update_is_refused_before_requirements() -> None:
    with pytest.raises(Invalid, match="cannot apply"):
        apply(TABLE, [FAIL[1][0]], [{"action": "enable-row-lineage"}], now_ms=NOW_MS)
