"""What the store gives out, as plain data: no SQL sticks to it, so every layer may hold it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from catalog.changes import Entry, Kind

TransactionStatus = Literal["open", "committed", "aborted", "expired"]


@dataclass(frozen=True, slots=True)
class Warehouse:
    name: str
    root: str
    created_ms: int


@dataclass(frozen=True, slots=True)
class Transaction:
    id: str
    warehouse: str
    name: str
    base_number: int
    state: TransactionStatus
    opened_ms: int
    expires_ms: int
    closed_ms: int | None
    number: int | None  # the number it was published under
    principal: str

    def is_open(self, now_ms: int) -> bool:
        return self.state == "open" and now_ms < self.expires_ms


@dataclass(frozen=True, slots=True)
class Staged:
    """What a transaction will make of one name, and what the name meant when it first touched it."""

    namespace: str
    name: str
    kind: Kind
    operation: str
    after: Entry | None
    last: Entry  # `after`, or what was removed
    base_uuid: str | None
    base_version: int | None
    base_location: str | None
    requests: list[Any]  # [requirements, updates] in order; None among them: not to be re-based
    detail: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Dropped:
    """A table or view that can come back until `expires_ms`."""

    id: str
    entry: Entry
    dropped_ms: int
    expires_ms: int
    principal: str


@dataclass(frozen=True, slots=True)
class PastEntry:
    """An entry as it was, with what the history noted of it (enough to rebuild a document whose file is
    gone).
    """

    entry: Entry
    detail: dict[str, Any]
