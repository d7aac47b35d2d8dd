"""Data classes of the catalog: entries and changes, warehouses, transactions, roles and callers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Literal, Protocol

from catalog.errors import Invalid

Kind = Literal["table", "view", "namespace"]
UNNUMBERED = 0  # the version of a new entry until the store assigns one
PURGE_REQUESTED = 0  # the `keep_until_ms` of a drop with purge, which cannot be undone
TransactionStatus = Literal["open", "committed", "aborted", "expired"]
EVERY_WAREHOUSE = "*"
_PRINCIPAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}").fullmatch


class LongText(Protocol):
    """A JSON text in pieces, most of which other versions share (catalog/fast/pieces.py)."""

    def __len__(self) -> int: ...

    def __bytes__(self) -> bytes: ...

    def parts(self) -> Sequence[bytes]:
        """The text."""

    def packed(self) -> bytes:
        """The text compressed for its row."""

    def gzipped(self, before: bytes = b"", after: bytes = b"") -> Sequence[bytes]:
        """The text with others around it, as gzip."""


Text = bytes | LongText


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A table, a view or a namespace. A namespace has an empty name, and its document contains its
    properties.
    """

    kind: Kind
    namespace: str  # the key: levels joined with 0x1F
    name: str
    uuid: str
    version: int
    metadata_location: str | None
    text: Text | None = None  # the document as JSON; None if it has not been fetched
    protected: bool = False

    @property
    def document(self) -> bytes | None:
        return None if self.text is None else bytes(self.text)


DocumentKey = tuple[str, str]  # the uuid and the version of an entry


def document_key(entry: CatalogEntry) -> DocumentKey:
    """The cache key of a document. It has the version, because a file can change before it is registered
    again.
    """
    return (entry.uuid, f"{entry.version} {entry.metadata_location}")


@dataclass(frozen=True, slots=True)
class EntryChange:
    """The change of one name from `base` to `after`. None: the name does not exist."""

    operation: str
    kind: Kind
    namespace: str
    name: str
    base: CatalogEntry | None
    after: CatalogEntry | None
    detail: dict[str, Any] = field(default_factory=dict)
    locations: tuple[str, ...] = ()  # new canonical locations that `after` writes to
    keep_until_ms: int | None = None  # until when a drop can be undone, or PURGE_REQUESTED
    request: tuple[list[dict[str, Any]], list[dict[str, Any]]] | None = (
        None  # requirements and updates, to apply them again to a newer version
    )

    @property
    def key(self) -> tuple[str, str]:
        return (self.namespace, self.name)

    @property
    def is_structural(self) -> bool:
        """Whether a name or location is added or removed, so that it must be checked against other
        entries.
        """
        if self.base is None or self.after is None or self.base.uuid != self.after.uuid:
            return True
        return bool(self.locations) or self.kind == "namespace"


@dataclass(frozen=True, slots=True)
class IdempotencyRecord:
    """The saved result for an `Idempotency-Key`, written in the transaction of the change."""

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
    """A list of changes, the principal that requested them, and the time."""

    changes: list[EntryChange]
    principal: str
    now_ms: int
    record: IdempotencyRecord | None = None


class ConcurrentUpdate(Exception):
    """The entry has changed since it was read. Nothing was written."""

    def __init__(self, *names: tuple[str, str]) -> None:
        super().__init__(", ".join(".".join([*namespace.split("\x1f"), name]) for namespace, name in names))
        self.names = names


class IdempotencyKeyConflict(Exception):
    """Another request with the same idempotency key has landed. Nothing was written."""


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
    number: int | None  # the number under which it was published
    principal: str

    def is_open(self, now_ms: int) -> bool:
        return self.state == "open" and now_ms < self.expires_ms


@dataclass(frozen=True, slots=True)
class StagedChange:
    """A change that a transaction has staged for one name, and the entry that it is based on."""

    namespace: str
    name: str
    kind: Kind
    operation: str
    after: CatalogEntry | None
    last: CatalogEntry  # `after`, or the removed entry
    base_uuid: str | None
    base_version: int | None
    base_location: str | None
    # [requirements, updates] in order; None marks a change that cannot be applied to a newer version
    requests: list[Any]
    detail: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Dropped:
    """A dropped table or view that can be restored until `expires_ms`."""

    id: str
    entry: CatalogEntry
    dropped_ms: int
    expires_ms: int
    principal: str


@dataclass(frozen=True, slots=True)
class PastEntry:
    """A past entry and the detail of its history row, from which a document can be rebuilt if its file is
    missing.
    """

    entry: CatalogEntry
    detail: dict[str, Any]


def is_principal_name(text: str) -> bool:
    return _PRINCIPAL(text) is not None


class Role(IntEnum):
    """Roles in ascending order: each includes the rights of the lower ones, so `role >= Role.WRITER`
    works.
    """

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
        """The role with this stored name. None for a name that this version does not know: it grants
        nothing.
        """
        return _BY_WORD.get(text)


_BY_WORD = {str(role): role for role in Role}


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller: the principal name that is recorded, and the roles by warehouse."""

    name: str
    roles: Mapping[str, Role]

    def role(self, warehouse: str) -> Role | None:
        """The higher of the caller's roles in this warehouse and in "*". None if it has no role there."""
        here, everywhere = self.roles.get(warehouse), self.roles.get(EVERY_WAREHOUSE)
        if here is None or everywhere is None:
            return here or everywhere
        return max(here, everywhere)
