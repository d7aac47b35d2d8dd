"""The eight requirements that a client may put on a commit. Their messages are asserted by clients.

`check_requirements(None, ...)` is for a table that does not exist yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from catalog.errors import Invalid, RequirementFailed
from catalog.metadata.completion import completed
from catalog.metadata.document import Metadata
from catalog.metadata.limits import INT_MAX, LONG_MAX, REQUIREMENTS_MAX
from catalog.metadata.shapes import JsonObject, integer, optional_long, shown, text

ASSERT_CREATE = "assert-create"

_ANY_INT = -INT_MAX - 1


def check_requirements(metadata: Metadata | None, requirements: Any) -> None:
    """`Invalid` if they are malformed, `RequirementFailed` if one does not hold. Shapes are checked first."""
    checks = _read(requirements)
    if metadata is not None:
        metadata = completed(metadata)
    types = [type_ for type_, _ in checks]
    if ASSERT_CREATE in types:
        others = sorted({type_ for type_ in types if type_ != ASSERT_CREATE})
        if others:
            raise Invalid(f"Invalid create requirements: {', '.join(others)} beside {ASSERT_CREATE}")
        if metadata is not None:
            raise RequirementFailed("Requirement failed: table already exists")
        return
    if metadata is None:
        raise Invalid(f"Invalid create requirements: a table that does not exist needs {ASSERT_CREATE}")
    for type_, requirement in checks:
        failure = _CHECKS[type_](metadata, requirement)
        if failure is not None:
            raise RequirementFailed(f"Requirement failed: {failure}")


def _read(requirements: Any) -> list[tuple[str, JsonObject]]:
    if not isinstance(requirements, list):
        raise Invalid(f"requirements must be an array, not {shown(requirements)}")
    if len(requirements) > REQUIREMENTS_MAX:
        raise Invalid(f"more than {REQUIREMENTS_MAX} requirements")
    read = []
    for position, requirement in enumerate(requirements):
        try:
            if not isinstance(requirement, dict):
                raise Invalid(f"must be an object, not {shown(requirement)}")
            type_ = text(requirement, "type").lower()
            if type_ not in _SHAPES:
                raise Invalid(f"Unrecognized update requirement: {shown(requirement['type'])}")
            _SHAPES[type_](requirement)
        except Invalid as refused:
            raise Invalid(f"Invalid requirement {position}: {refused.message}") from refused
        read.append((type_, requirement))
    return read


def _ref_shape(requirement: JsonObject) -> None:
    text(requirement, "ref")
    optional_long(requirement, "snapshot-id", low=-LONG_MAX - 1)


def _id_shape(key: str) -> Callable[[JsonObject], object]:
    return lambda requirement: integer(requirement, key, low=_ANY_INT)


_SHAPES: dict[str, Callable[[JsonObject], object]] = {
    ASSERT_CREATE: lambda requirement: None,
    "assert-table-uuid": lambda requirement: text(requirement, "uuid"),
    "assert-ref-snapshot-id": _ref_shape,
    "assert-last-assigned-field-id": _id_shape("last-assigned-field-id"),
    "assert-current-schema-id": _id_shape("current-schema-id"),
    "assert-last-assigned-partition-id": _id_shape("last-assigned-partition-id"),
    "assert-default-spec-id": _id_shape("default-spec-id"),
    "assert-default-sort-order-id": _id_shape("default-sort-order-id"),
}


def _table_uuid(metadata: Metadata, requirement: JsonObject) -> str | None:
    known, expected = metadata.get("table-uuid"), requirement["uuid"]
    if known is not None and known.lower() == expected.lower():
        return None
    return f"UUID does not match: expected {known} != {expected}"


def _ref_snapshot_id(metadata: Metadata, requirement: JsonObject) -> str | None:
    """A null id asserts that there is no such reference."""
    name, expected = requirement["ref"], requirement.get("snapshot-id")
    ref = (metadata.get("refs") or {}).get(name)
    if ref is None:
        return None if expected is None else f"branch or tag {name} is missing, expected {expected}"
    if expected is None:
        return f"{ref['type']} {name} was created concurrently"
    if expected != ref["snapshot-id"]:
        return f"{ref['type']} {name} has changed: expected id {expected} != {ref['snapshot-id']}"
    return None


def _same_id(expected_key: str, known_key: str, what: str) -> Callable[[Metadata, JsonObject], str | None]:
    def check(metadata: Metadata, requirement: JsonObject) -> str | None:
        known, expected = metadata[known_key], requirement[expected_key]
        return None if known == expected else f"{what} changed: expected id {expected} != {known}"

    return check


_CHECKS: dict[str, Callable[[Metadata, JsonObject], str | None]] = {
    "assert-table-uuid": _table_uuid,
    "assert-ref-snapshot-id": _ref_snapshot_id,
    "assert-last-assigned-field-id": _same_id(
        "last-assigned-field-id", "last-column-id", "last assigned field id"
    ),
    "assert-current-schema-id": _same_id("current-schema-id", "current-schema-id", "current schema"),
    "assert-last-assigned-partition-id": _same_id(
        "last-assigned-partition-id", "last-partition-id", "last assigned partition id"
    ),
    "assert-default-spec-id": _same_id("default-spec-id", "default-spec-id", "default partition spec"),
    "assert-default-sort-order-id": _same_id(
        "default-sort-order-id", "default-sort-order-id", "default sort order"
    ),
}
