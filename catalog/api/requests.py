"""Fields of request bodies. As in Iceberg's own parsers, null means the same as a missing field."""

from __future__ import annotations

from typing import Any

from catalog.errors import Invalid
from catalog.names import Identifier, identifier_from_body


def list_field(body: dict[str, Any], name: str) -> list[Any]:
    value = body.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise Invalid(f"{name} must be a list")
    return value


def boolean_field(body: dict[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise Invalid(f"{name} must be true or false")
    return bool(value)


def require_same_identifier(identifier: Identifier, body: dict[str, Any]) -> None:
    """A commit may repeat the identifier of its path in the body."""
    named = body.get("identifier")
    if named is not None and identifier_from_body(named) != identifier:
        raise Invalid("The identifier in the body is not the one in the path")
