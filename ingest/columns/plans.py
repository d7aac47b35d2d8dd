"""The outcome of planning a table's schema."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from ingest.columns.types import IcebergType

Policy = Literal["evolve", "freeze", "reject"]


@dataclass(frozen=True, slots=True)
class Column:
    """A row column to stage. `encoding` is what the newest declaration says; each change has its own."""

    name: str
    type: IcebergType
    encoding: str | None = None
    required: bool = False


@dataclass(slots=True)
class Plan:
    columns: list[Column]  # in table order
    schema: dict[str, Any] | None  # the new schema, with field ids, if it is created or changed
    refused: dict[str, str] = field(default_factory=dict)  # column -> why it is not taken
    policy: Policy = "evolve"
