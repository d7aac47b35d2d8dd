"""The bodies of the catalog calls that a schema plan leads to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def create_request(
    name: str,
    schema: dict[str, Any],
    partition: dict[str, Any] | None = None,
    properties: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A CreateTableRequest. `partition` comes from `partition_spec`."""
    body: dict[str, Any] = {"name": name, "schema": schema, "properties": dict(properties or {})}
    return body | ({"partition-spec": partition} if partition else {})


def schema_updates(existing_metadata: Mapping[str, Any], new_schema: dict[str, Any]) -> dict[str, Any]:
    """A CommitTableRequest that makes `new_schema` the current one, if nobody else changed the schema."""
    return {
        "requirements": [
            {"type": "assert-table-uuid", "uuid": existing_metadata["table-uuid"]},
            {
                "type": "assert-current-schema-id",
                "current-schema-id": existing_metadata["current-schema-id"],
            },
            {
                "type": "assert-last-assigned-field-id",
                "last-assigned-field-id": existing_metadata["last-column-id"],
            },
        ],
        "updates": [
            {"action": "add-schema", "schema": new_schema},
            {"action": "set-current-schema", "schema-id": -1},
        ],
    }
