"""The catalog: the stores that use cases need, the newest state of a warehouse, and the state that a
reference selects.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from catalog.errors import CommitFailed, NoSuchTransaction, NoSuchWarehouse
from catalog.models import CatalogEntry, Kind, Transaction, Warehouse, WriteRequest, document_key
from catalog.moments import AtNumber, AtTime
from catalog.names import LEVEL_SEPARATOR, WarehouseRef
from catalog.services.purge import PurgeWorker
from catalog.services.warehouse_state import (
    AsOfState,
    Documents,
    TransactionState,
    WarehouseState,
)
from catalog.storage.base import Files
from catalog.store.database import Database
from catalog.store.entries import EntryStore
from catalog.store.entries import write as write_changes
from catalog.store.history import HistoryStore
from catalog.store.moments import MomentStore
from catalog.store.records import RecordStore
from catalog.store.transactions import TransactionStore
from catalog.store.warehouses import WarehouseStore

# the storage properties that engines need for a warehouse root
ClientProperties = Callable[[str], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits that the operator sets."""

    drop_retention_s: int = 7 * 24 * 3600
    transaction_ttl_s: int = 3600
    idempotency_lifetime_s: int = 1800
    report_retention_s: int = 30 * 24 * 3600
    pin_s: int = 3600  # how long a moment is kept for a reader after its last request
    pin_after_s: float = 300  # a moment that is read is pinned from this age on
    page_size_max: int = 1000
    namespace_separator: str = LEVEL_SEPARATOR  # the character itself, not percent-encoded


class CurrentState:
    """The newest rows. The row of the warehouse is read with an entry, or on demand."""

    is_present = True
    is_transaction = False

    def __init__(self, database: Database, entries: EntryStore, warehouse: str, documents: Documents) -> None:
        self.prefix = warehouse
        self._database = database
        self._entries = entries
        self._documents = documents
        self._warehouse: Warehouse | None = None

    @property
    def warehouse(self) -> Warehouse:
        if self._warehouse is None:
            self._warehouse = WarehouseStore(self._database).require(self.prefix)
        return self._warehouse

    def entry(self, namespace: str, name: str) -> CatalogEntry | None:
        self._warehouse, entry = self._entries.find(self.prefix, namespace, name)
        return entry

    def load(self, namespace: str, name: str) -> CatalogEntry | None:
        """The entry with its document. With a cache, the document is read only if it is not cached."""
        if name and self._documents.caches:
            entry = self.entry(namespace, name)
            text = self._documents.text(document_key(entry)) if entry is not None else None
            if entry is None or text is not None:
                return replace(entry, text=text) if entry is not None else None
        self._warehouse, loaded = self._entries.find(self.prefix, namespace, name, whole=True)
        if loaded is not None and loaded.metadata_location is not None and loaded.text is not None:
            self._documents.put_text(document_key(loaded), loaded.text)
        return loaded

    def names(self, namespace: str, kind: Kind, after: str, limit: int) -> list[str]:
        return self._entries.names(self.prefix, namespace, kind, after, limit)

    def number(self) -> int | None:
        head = self._entries.number(self.prefix)
        return head[0] if head else None

    def children(self, parent: str, after: str, limit: int) -> list[str]:
        return self._entries.children(self.prefix, parent, after, limit)

    def published(self, namespace: str, name: str) -> CatalogEntry | None:
        return self.load(namespace, name)

    def written_with(self, namespace: str, name: str, snapshot_ids: list[int]) -> set[tuple[str, str]]:
        return HistoryStore(self._database).written_with(self.prefix, namespace, name, snapshot_ids)

    def is_protected(self, entry: CatalogEntry) -> bool:
        return entry.protected

    def write(self, request: WriteRequest) -> int:
        return write_changes(self._database, self.prefix, request).first_version


class Catalog:
    def __init__(
        self,
        database: Database,
        files: Files,
        limits: Limits,
        client_properties: ClientProperties,
        documents: Documents | None = None,
    ) -> None:
        self.database = database
        self.files = files
        self.client_properties = client_properties
        self.limits = limits
        self.documents = documents or Documents()
        self.entries = EntryStore(database)
        self.history = HistoryStore(database)
        self.moments = MomentStore(database)
        self.transactions = TransactionStore(database)
        self.warehouses = WarehouseStore(database)
        self.records = RecordStore(database)
        self.purge_worker = PurgeWorker(database, files)

    @staticmethod
    def now_ms() -> int:
        return time.time_ns() // 1_000_000

    def warehouse(self, name: str) -> Warehouse:
        return self.warehouses.require(name)

    def state(self, ref: WarehouseRef) -> WarehouseState:
        """The state that the reference selects. It is read from the database each time and never cached."""
        if ref.at is None and ref.transaction is None:
            return CurrentState(self.database, self.entries, ref.name, self.documents)
        warehouse = self.warehouse(ref.name)
        if ref.at is not None:
            number = self.resolve(ref)
            return AsOfState(self.database, warehouse, number, self.documents, self.files, str(ref))
        transaction = self.open_transaction(ref.name, str(ref.transaction))
        base = AsOfState(self.database, warehouse, transaction.base_number, self.documents, self.files)
        return TransactionState(base, self.transactions, transaction)

    def resolve(self, ref: WarehouseRef) -> int:
        """The number of the last kept moment at or before the one that a reference names. NoSuchWarehouse if
        it is in the future, or older than every kept moment.
        """
        head = self.entries.number(ref.name)
        if head is None:
            raise NoSuchWarehouse(f"Warehouse does not exist: {ref.name}")
        moment = ref.moment
        if isinstance(moment, AtNumber):
            if moment.number > head[0]:
                raise NoSuchWarehouse(
                    f"Warehouse does not exist: {ref} (the newest commit is number {head[0]})"
                )
            return self._kept(ref, moment.number)
        if isinstance(moment, AtTime):
            if moment.ms > self.now_ms():
                raise NoSuchWarehouse(f"Warehouse does not exist: {ref} (that time has not come yet)")
            return self._kept(ref, self.history.number_at(ref.name, moment.ms))
        return head[0]

    def _kept(self, ref: WarehouseRef, number: int) -> int:
        kept = self.kept_number(ref.name, number)
        if kept is None:
            oldest = self.moments.oldest(ref.name)
            from_then = f": the oldest is {oldest[0]}, of {AtTime(oldest[1])}" if oldest else ""
            raise NoSuchWarehouse(
                f"Warehouse does not exist: {ref} (this moment is not kept any more{from_then})"
            )
        return kept

    def kept_number(self, warehouse: str, number: int) -> int | None:
        """The last kept moment at or before a number. None if there is none.

        It is pinned if it may soon be forgotten, and a pin is renewed while the moment is read.
        """
        found = self.moments.at(warehouse, number)
        now_ms, pin_ms = self.now_ms(), self.limits.pin_s * 1000
        is_pinned = found.pinned_until_ms > now_ms
        is_old = found.recent_ms is None or now_ms - found.recent_ms >= self.limits.pin_after_s * 1000
        if found.number and (found.pinned_until_ms - now_ms < pin_ms // 2 if is_pinned else is_old):
            return self.moments.pin(warehouse, found.number, now_ms + pin_ms)
        return found.number

    def pin(self, ref: WarehouseRef) -> int:
        """Resolve a reference with a moment, and keep that moment for its reader.

        A recent number is pinned when it is read and has become older: programs, such as /query, name the
        newest number each time, and do not return to it.
        """
        number = self.resolve(ref)
        if isinstance(ref.moment, AtNumber):
            return number
        pinned = self.moments.pin(ref.name, number, self.now_ms() + self.limits.pin_s * 1000)
        return number if pinned is None else pinned

    def open_transaction(self, warehouse: str, name: str) -> Transaction:
        """The open transaction with this name.

        A transaction that is closed or expired raises CommitFailed (409), so that its writer stops.
        """
        found = self.transactions.newest(warehouse, name)
        if found is None:
            raise NoSuchTransaction(f"Transaction does not exist: {name}")
        self.require_open(found)
        return found

    def require_open(self, transaction: Transaction) -> None:
        if not transaction.is_open(self.now_ms()):
            state = "expired" if transaction.state == "open" else transaction.state
            raise CommitFailed(
                f"Transaction {transaction.name} is {state}: open it again and repeat the work"
            )
