"""Plain data of the catalog: entries and their changes, warehouses, transactions, roles and callers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Literal

from catalog.errors import Invalid

Kind = Literal["table", "view", "namespace"]
Document = bytes  # JSON text
UNNUMBERED = 0  # the version of an entry that is new under its name, until the store gives it one
PURGE_WANTED = 0  # the `keep_until_ms` of a drop that cannot be undone, because the files go too
TransactionStatus = Literal["open", "committed", "aborted", "expired"]
EVERY_WAREHOUSE = "*"
_PRINCIPAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}").fullmatch


@dataclass(frozen=True, slots=True)
class CatalogEntry:
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
class EntryChange:
    """One name moves from `base` to `after`; None stands for "means nothing"."""

    operation: str
    kind: Kind
    namespace: str
    name: str
    base: CatalogEntry | None
    after: CatalogEntry | None
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
class IdempotencyRecord:
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
class WriteRequest:
    """A list of changes with who asked for it and when."""

    changes: list[EntryChange]
    principal: str
    now_ms: int
    record: IdempotencyRecord | None = None


class ConcurrentUpdate(Exception):
    """A name no longer means what the change was based on. Nothing was written."""

    def __init__(self, *names: tuple[str, str]) -> None:
        super().__init__(", ".join(".".join([*namespace.split("\x1f"), name]) for namespace, name in names))
        self.names = names


class IdempotencyKeyConflict(Exception):
    """Another request with the same idempotency key has just landed. Nothing was written."""


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
class StagedChange:
    """What a transaction will make of one name, and what the name meant when it first touched it."""

    namespace: str
    name: str
    kind: Kind
    operation: str
    after: CatalogEntry | None
    last: CatalogEntry  # `after`, or what was removed
    base_uuid: str | None
    base_version: int | None
    base_location: str | None
    requests: list[Any]  # [requirements, updates] in order; None among them: not to be re-based
    detail: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Dropped:
    """A table or view that can come back until `expires_ms`."""

    id: str
    entry: CatalogEntry
    dropped_ms: int
    expires_ms: int
    principal: str


@dataclass(frozen=True, slots=True)
class PastEntry:
    """An entry as it was, with what the history noted of it (enough to rebuild a document whose file is
    gone).
    """

    entry: CatalogEntry
    detail: dict[str, Any]


def is_principal_name(text: str) -> bool:
    return _PRINCIPAL(text) is not None


class Role(IntEnum):
    """Each role may do what the lower ones may: `role >= Role.WRITER` reads as it is meant."""

    READER = 1
    WRITER = 2
    ADMIN = 3

    def __str__(self) -> str:
        return self.name.lower()

    @staticmethod
    def parse(text: str) -> Role:
        role = _BY_WORD.get(text)
        if role is None:
            raise Invalid(f"Invalid role: use one of {', '.join(_BY_WORD)}")
        return role

    @staticmethod
    def known(text: str) -> Role | None:
        """The role of a stored word. One that this version does not know gives nothing: default deny."""
        return _BY_WORD.get(text)


_BY_WORD = {str(role): role for role in Role}


@dataclass(frozen=True, slots=True)
class Caller:
    """An identified caller: the name that history and idempotency keys are kept under, and its roles."""

    name: str
    roles: Mapping[str, Role]

    def role(self, warehouse: str) -> Role | None:
        """The higher one of the caller's roles there and in "*"; None: not there for this caller."""
        here, everywhere = self.roles.get(warehouse), self.roles.get(EVERY_WAREHOUSE)
        if here is None or everywhere is None:
            return here or everywhere
        return max(here, everywhere)
