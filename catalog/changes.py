"""What a name means (`Entry`), and what a write does to it (`Change`).

Every write of the catalog, from "drop a namespace" to "commit eight tables", is a list of changes: for each
name the entry it must still mean, and the entry it will mean. The store applies the whole list in one SQL
transaction or nothing of it. A lost comparison is `LostRace`; the service reads again, decides again and
tries again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["table", "view", "namespace"]
Document = bytes  # JSON text
UNNUMBERED = 0  # the version of an entry that is new under its name, until the store gives it one
PURGE_WANTED = 0  # the `keep_until_ms` of a drop that cannot be undone, because the files go too


@dataclass(frozen=True, slots=True)
class Entry:
    """A table, a view, or a namespace (whose `name` is empty and whose document holds its properties)."""

    kind: Kind
    namespace: str  # the key: levels joined with 0x1F
    name: str
    uuid: str
    version: int
    metadata_location: str | None
    document: Document | None = None  # None: not fetched; ask the moment for it
    protected: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """One name moves from `base` to `after`; None stands for "means nothing"."""

    operation: str
    kind: Kind
    namespace: str
    name: str
    base: Entry | None
    after: Entry | None
    detail: dict[str, Any] = field(default_factory=dict)
    locations: tuple[str, ...] = ()  # canonical places that `after` will write to, where they are new
    keep_until_ms: int | None = None  # a drop that can be undone until then; or PURGE_WANTED
    request: tuple[list[dict[str, Any]], list[dict[str, Any]]] | None = (
        None  # requirements and updates, to re-base
    )

    @property
    def key(self) -> tuple[str, str]:
        return (self.namespace, self.name)

    @property
    def is_structural(self) -> bool:
        """Whether names or places appear or vanish, so that others' names and places matter to it."""
        if self.base is None or self.after is None or self.base.uuid != self.after.uuid:
            return True
        return bool(self.locations) or self.kind == "namespace"


@dataclass(frozen=True, slots=True)
class Record:
    """What an `Idempotency-Key` remembers, written in the transaction of the change itself."""

    principal: str
    operation: str
    target: str
    key: str
    body_hash: str
    expires_ms: int
    status: int = 200
    answer: str = ""


@dataclass(frozen=True, slots=True)
class Write:
    """A list of changes with who asked for it and when."""

    changes: list[Change]
    principal: str
    now_ms: int
    record: Record | None = None


class LostRace(Exception):
    """A name no longer means what the change was based on. Nothing was written."""

    def __init__(self, *names: tuple[str, str]) -> None:
        super().__init__(", ".join(".".join([*namespace.split("\x1f"), name]) for namespace, name in names))
        self.names = names


class KeyTaken(Exception):
    """Another request with the same idempotency key has just landed. Nothing was written."""
