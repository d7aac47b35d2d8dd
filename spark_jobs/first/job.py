"""A job as the server describes it. Plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Request = Mapping[str, Any]  # method, path with {prefix} or {warehouse}, body


def is_outside(request: Request) -> bool:
    """Whether a call is meant for the warehouse itself, not for the transaction."""
    return "{warehouse}" in str(request["path"])


@dataclass(frozen=True, slots=True)
class Rejects:
    name: str
    files: Sequence[str]


@dataclass(frozen=True, slots=True)
class TableWork:
    """What one table of a batch needs. `mirror` and `changes` are table names, None where there is none."""

    namespace: tuple[str, ...]
    name: str
    files: Sequence[str]
    events: int
    columns: Sequence[str]
    key: tuple[str, ...]
    mirror: str | None
    changes: str | None
    append_only: bool
    rejects: Rejects | None
    names: Mapping[str, str]
    counts: Mapping[str, int]
    has_absent: bool
    has_moves: bool
    late: bool
    first_load: bool
    requests: Sequence[Request]

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> TableWork:
        rejects = given.get("rejects")
        return cls(
            namespace=tuple(given["namespace"]),
            name=given["name"],
            files=given["files"],
            events=given["events"],
            columns=given["columns"],
            key=tuple(given["key"]),
            mirror=given["mirror"],
            changes=given["changes"],
            append_only=given.get("append-only", False),
            rejects=Rejects(rejects["name"], rejects["files"]) if rejects else None,
            names=given.get("names", {}),
            counts=given.get("counts", {}),
            has_absent=given.get("has-absent", False),
            has_moves=given.get("has-moves", False),
            late=given.get("late", False),
            first_load=given.get("first-load", False),
            requests=given["requests"],
        )


@dataclass(frozen=True, slots=True)
class Job:
    id: str
    epoch: int
    warehouse: str
    batch_id: str
    commit_us: int
    lease_s: float
    tables: Sequence[TableWork]

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Job:
        return cls(
            id=given["id"],
            epoch=given["epoch"],
            warehouse=given["warehouse"],
            batch_id=given["batch-id"],
            commit_us=given["commit-timestamp-us"],
            lease_s=given["lease-s"],
            tables=[TableWork.of(table) for table in given["tables"]],
        )
