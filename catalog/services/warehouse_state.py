"""The state of a warehouse that a request reads and writes: current, as of a number, or an open transaction.

The three classes have the same methods, so that each operation is written once:

    CurrentState       reads the newest rows; a write compares versions and takes the next number (catalog.py)
    AsOfState          reads the history at a number; refuses writes
    TransactionState   reads staged changes, else the state at its base number; a write is staged
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import orjson

from catalog.errors import FileNotFound, Forbidden
from catalog.metadata.document import Metadata, decode_metadata
from catalog.metadata.rebuild import rebuild
from catalog.models import (
    CatalogEntry,
    DocumentKey,
    Kind,
    StagedChange,
    Text,
    Transaction,
    Warehouse,
    WriteRequest,
    document_key,
)
from catalog.storage.base import Files
from catalog.store.database import Database
from catalog.store.entries import EntryStore
from catalog.store.history import HistoryStore
from catalog.store.transactions import TransactionStore

EVERYTHING = 1_000_000_000


class Documents:
    """The interface of the document cache. This class caches nothing."""

    caches = False

    def text(self, key: DocumentKey) -> Text | None:
        """The cached text of a document, or None."""
        return None

    def put_text(self, key: DocumentKey, text: Text) -> None:
        """Cache the text of a document."""

    def parsed(self, entry: CatalogEntry) -> Metadata:
        """The document of an entry as dicts. They may be shared: the caller must not change them."""
        return orjson.loads(entry.document or b"{}")  # type: ignore[no-any-return]

    def encode(
        self, key: DocumentKey, value: Metadata, follows: DocumentKey | None, *replaced: DocumentKey
    ) -> Text:
        """The text of a new version that was derived from the version `follows`.

        No later write is based on the versions in `replaced`.
        """
        return orjson.dumps(value)


class WarehouseState(Protocol):
    """What an operation can read and write in a warehouse."""

    @property
    def warehouse(self) -> Warehouse:
        """Name and root. Raises NoSuchWarehouse if the warehouse does not exist."""

    prefix: str  # the warehouse as the client named it
    is_present: bool  # True if it reads the newest state
    # True if only the last version of each entry counts, when the transaction is published
    is_transaction: bool

    def entry(self, namespace: str, name: str) -> CatalogEntry | None:
        """The entry with this name, perhaps without its document. An empty name selects the namespace."""

    def load(self, namespace: str, name: str) -> CatalogEntry | None:
        """The entry with its document."""

    def names(self, namespace: str, kind: Kind, after: str, limit: int) -> list[str]:
        """Names of one kind after `after`, in order."""

    def number(self) -> int | None:
        """The number of the newest commit that is visible; None if the number does not determine the
        content.
        """

    def children(self, parent: str, after: str, limit: int) -> list[str]:
        """Keys of the namespaces directly below `parent`, in order."""

    def published(self, namespace: str, name: str) -> CatalogEntry | None:
        """The last published entry that this state is based on, with its document."""

    def written_with(self, namespace: str, name: str, snapshot_ids: list[int]) -> set[tuple[str, str]]:
        """All names that were written by the commit which added these snapshots to a table.

        Empty if commits have no number of their own.
        """

    def is_protected(self, entry: CatalogEntry) -> bool:
        """Whether the entry is protected now. The history does not record protection."""

    def write(self, request: WriteRequest) -> int:
        """Write all changes or none. Returns the version of new entries.

        Raises ConcurrentUpdate, IdempotencyKeyConflict and the errors of the store.
        """


class AsOfState:
    """The warehouse as of one commit number."""

    is_present = False
    is_transaction = False

    def __init__(
        self,
        database: Database,
        warehouse: Warehouse,
        number: int,
        documents: Documents,
        files: Files,
        prefix: str = "",
    ) -> None:
        self.warehouse = warehouse
        self._number = number
        self.prefix = prefix or f"{warehouse.name}@{number}"
        self._history = HistoryStore(database)
        self._entries = EntryStore(database)
        self.documents = documents
        self._files = files

    def entry(self, namespace: str, name: str) -> CatalogEntry | None:
        found = self._history.entry(self.warehouse.name, self._number, namespace, name)
        return found.entry if found else None

    def load(self, namespace: str, name: str) -> CatalogEntry | None:
        entry = self.entry(namespace, name)
        return replace(entry, text=self._text(entry)) if entry else None

    def _text(self, entry: CatalogEntry) -> Text:
        """The document of a past entry: from the current row if it has not changed, else from the metadata
        file, else rebuilt from a later version.
        """
        if entry.text is not None:
            return entry.text
        assert entry.metadata_location is not None
        key = document_key(entry)
        text = self.documents.text(key)
        if text is None:
            _, now = self._entries.find(self.warehouse.name, entry.namespace, entry.name, whole=True)
            is_unchanged = now is not None and now.metadata_location == entry.metadata_location
            text = now.text if is_unchanged and now is not None else None
            text = text or self._from_file(entry)
            self.documents.put_text(key, text)
        return text

    def _from_file(self, entry: CatalogEntry) -> bytes:
        assert entry.metadata_location is not None
        try:
            return decode_metadata(entry.metadata_location, self._files.read(entry.metadata_location))
        except FileNotFound:
            rebuilt = self._rebuilt(entry)
            if rebuilt is None:
                raise
            return rebuilt

    def _rebuilt(self, entry: CatalogEntry) -> bytes | None:
        past = self._history.entry(self.warehouse.name, self._number, entry.namespace, entry.name)
        later = self._entries.by_uuid(self.warehouse.name, entry.uuid)
        if past is None or later is None or entry.kind != "table":
            return None
        return rebuild(later, past.detail)

    def names(self, namespace: str, kind: Kind, after: str, limit: int) -> list[str]:
        return self._history.names(self.warehouse.name, self._number, namespace, kind, after, limit)

    def number(self) -> int | None:
        return self._number

    def children(self, parent: str, after: str, limit: int) -> list[str]:
        return self._history.children(self.warehouse.name, self._number, parent, after, limit)

    def published(self, namespace: str, name: str) -> CatalogEntry | None:
        return self.load(namespace, name)

    def written_with(self, namespace: str, name: str, snapshot_ids: list[int]) -> set[tuple[str, str]]:
        return self._history.written_with(self.warehouse.name, namespace, name, snapshot_ids)

    def is_protected(self, entry: CatalogEntry) -> bool:
        return self._entries.is_protected(self.warehouse.name, entry.uuid)

    def write(self, request: WriteRequest) -> int:
        raise Forbidden(
            f"{self.prefix} is a past moment of {self.warehouse.name} and cannot be written to: "
            f"attach to warehouse={self.warehouse.name} to write"
        )


def staged_document(
    documents: Documents, transactions: TransactionStore, transaction: Transaction, entry: CatalogEntry
) -> Text | None:
    """The document of a staged version. None if the name has been written again since."""
    # The cache key needs a metadata location, which is used once: namespaces of two transactions may have
    # equal versions.
    key = document_key(entry) if entry.metadata_location is not None else None
    text = documents.text(key) if key is not None else None
    if text is None:
        text = transactions.staged_document(transaction.id, entry)
        if text is not None and key is not None:
            documents.put_text(key, text)
    return text


class TransactionState:
    """The state inside an open transaction: its staged changes over the state at its base number."""

    is_present = False
    is_transaction = True

    def __init__(self, base: AsOfState, transactions: TransactionStore, transaction: Transaction) -> None:
        self.warehouse = base.warehouse
        self.prefix = f"{base.warehouse.name}~{transaction.name}"
        self.transaction = transaction
        self._base = base
        self._transactions = transactions

    def entry(self, namespace: str, name: str) -> CatalogEntry | None:
        staged = self._staged(namespace, name)
        return staged.after if staged else self._base.entry(namespace, name)

    def load(self, namespace: str, name: str) -> CatalogEntry | None:
        while True:
            staged = self._staged(namespace, name)
            if staged is None:
                return self._base.load(namespace, name)
            if staged.after is None:
                return None
            text = staged_document(self._base.documents, self._transactions, self.transaction, staged.after)
            if text is not None:  # else the name has been written again since: read it again
                return replace(staged.after, text=text)

    def names(self, namespace: str, kind: Kind, after: str, limit: int) -> list[str]:
        found = set(self._base.names(namespace, kind, after, EVERYTHING))
        for staged_namespace, name, staged_kind, present in self._transactions.staged_names(
            self.transaction.id
        ):
            if staged_namespace == namespace and name and name > after:
                found.discard(name)
                if present and staged_kind == kind:
                    found.add(name)
        return sorted(found)[:limit]

    def number(self) -> int | None:
        return None

    def children(self, parent: str, after: str, limit: int) -> list[str]:
        prefix = parent + "\x1f" if parent else ""
        found = set(self._base.children(parent, after, EVERYTHING))
        for namespace, name, _, present in self._transactions.staged_names(self.transaction.id):
            direct = namespace.startswith(prefix) and "\x1f" not in namespace[len(prefix) :]
            if name == "" and direct and namespace > after and namespace != parent:
                found.discard(namespace)
                if present:
                    found.add(namespace)
        return sorted(found)[:limit]

    def published(self, namespace: str, name: str) -> CatalogEntry | None:
        """The published entry of a table, found by its earlier names if the transaction renamed it.

        Another table may have its old name now, so the uuids are compared.
        """
        staged, seen = self._staged(namespace, name), {(namespace, name)}
        uuid = staged.after.uuid if staged is not None and staged.after is not None else None
        while True:
            published = self._base.load(namespace, name)
            source = staged.detail.get("from") if staged is not None else None
            if source is None or (published is not None and published.uuid == uuid):
                return published
            namespace, name = "\x1f".join(source["namespace"]), source["name"]
            if (namespace, name) in seen:
                return None
            seen.add((namespace, name))
            staged = self._staged(namespace, name)

    def written_with(self, namespace: str, name: str, snapshot_ids: list[int]) -> set[tuple[str, str]]:
        return set()

    def is_protected(self, entry: CatalogEntry) -> bool:
        return self._base.is_protected(entry)

    def write(self, request: WriteRequest) -> int:
        self._transactions.stage(self.transaction, request)
        return 1  # versions inside a transaction begin at 1 for each name

    def _staged(self, namespace: str, name: str) -> StagedChange | None:
        return self._transactions.staged(self.transaction.id, namespace, name)
