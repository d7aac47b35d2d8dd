"""Open transactions: their changes become visible together, under one number, when they are published.

The first committer wins. If a table has changed since the transaction was opened, publishing applies the
staged commits to the current table and checks their requirements again. If a requirement fails, nothing is
published, and the error names the tables.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from catalog import locations
from catalog.errors import (
    CatalogError,
    CommitFailed,
    CommitStateUnknown,
    Conflict,
    Invalid,
    NoSuchTransaction,
)
from catalog.metadata.commit import apply
from catalog.metadata.document import update_summary
from catalog.metadata.files import next_metadata_location, outdated_files
from catalog.metadata.snapshots import set_publish_time
from catalog.models import (
    UNNUMBERED,
    CatalogEntry,
    ConcurrentUpdate,
    EntryChange,
    StagedChange,
    Transaction,
    WriteRequest,
)
from catalog.names import Identifier, Namespace, check_transaction_name
from catalog.services.catalog import Catalog
from catalog.services.commits import remove_outdated, squash_for
from catalog.services.warehouse_state import CurrentState, Key, document_key, staged_document
from catalog.services.writes import discard_files, write_files
from catalog.store.dropped import enqueue_purge
from catalog.store.transactions import publish as publish_changes
from catalog.store.writes import Also

PUBLISH_ATTEMPTS_MAX = 5
TTL_S_MAX = 7 * 24 * 3600


def open_transaction(
    catalog: Catalog, warehouse: str, principal: str, name: object, ttl_s: int | None = None
) -> Transaction:
    catalog.warehouse(warehouse)
    ttl_s = catalog.limits.transaction_ttl_s if ttl_s is None else ttl_s
    if not 0 < ttl_s <= TTL_S_MAX:
        raise Invalid(f"ttl-s must be between 1 and {TTL_S_MAX}")
    checked = check_transaction_name(name if name is not None else uuid.uuid4().hex)
    return catalog.transactions.open(
        str(uuid.uuid4()), warehouse, checked, catalog.now_ms(), ttl_s * 1000, principal
    )


def extend(catalog: Catalog, warehouse: str, name: str, ttl_s: int) -> Transaction:
    """Extend the lifetime of an open transaction."""
    if not 0 < ttl_s <= TTL_S_MAX:
        raise Invalid(f"ttl-s must be between 1 and {TTL_S_MAX}")
    transaction = catalog.open_transaction(warehouse, name)
    now_ms = catalog.now_ms()
    catalog.transactions.extend(transaction, now_ms + ttl_s * 1000, now_ms)
    return catalog.open_transaction(warehouse, name)


def newest(catalog: Catalog, warehouse: str, name: str) -> Transaction:
    """The newest transaction with this name, open or closed."""
    found = catalog.transactions.newest(warehouse, name)
    if found is None:
        raise NoSuchTransaction(f"Transaction does not exist: {name}")
    return found


def abort(catalog: Catalog, warehouse: str, name: str) -> None:
    catalog.transactions.abort(catalog.open_transaction(warehouse, name), catalog.now_ms())


def publish(
    catalog: Catalog, warehouse: str, principal: str, name: str, also: Also | None = None
) -> tuple[int | None, list[StagedChange]]:
    """Publish all staged changes at once. Returns the number (None if there was nothing) and the changes.

    A repeated call finds the transaction committed and returns the same number.
    """
    transaction = newest(catalog, warehouse, name)
    if transaction.state == "committed":
        return transaction.number, []
    catalog.require_open(transaction)
    for _ in range(PUBLISH_ATTEMPTS_MAX):
        staged = all_staged(catalog, transaction)
        try:
            return _publish_once(catalog, transaction, principal, staged, also), staged
        except ConcurrentUpdate:
            continue  # another commit changed a row after it was read; read it again
        except CommitFailed:
            now = newest(catalog, warehouse, name)
            if now.id == transaction.id and now.state == "committed":
                return now.number, []  # a concurrent call has published it
            raise
    raise CommitFailed(
        f"Cannot publish {name}: its tables are written to by too many others at once; try again"
    )


def all_staged(catalog: Catalog, transaction: Transaction) -> list[StagedChange]:
    """What is held back of each name, with the documents."""
    while True:
        found = []
        for held in catalog.transactions.all_staged(transaction.id):
            text = staged_document(catalog.documents, catalog.transactions, transaction, held.last)
            if text is None:
                break  # the name has moved on since: read all of it again
            last = replace(held.last, document=text)
            found.append(replace(held, after=last if held.after is not None else None, last=last))
        else:
            return found


@dataclass(slots=True)
class _Plan:
    """What a publish will do."""

    changes: list[EntryChange] = field(default_factory=list)
    files: list[tuple[str, bytes]] = field(default_factory=list)  # location and JSON text
    keys: dict[str, Key] = field(default_factory=dict)  # of the documents in the files
    outdated: list[str] = field(default_factory=list)  # files to delete once it is done


def _publish_once(
    catalog: Catalog, transaction: Transaction, principal: str, staged: list[StagedChange], also: Also | None
) -> int | None:
    present = CurrentState(catalog.database, catalog.entries, transaction.warehouse, catalog.documents)
    now_ms = catalog.now_ms()
    plan = _Plan()
    moved = []
    staying = {held.after.uuid for held in staged if held.after is not None}
    for held in staged:
        if held.base_uuid is None and held.after is None:
            continue  # made and dropped inside: nothing to publish
        if not _decide(catalog, present, _told_plainly(held, staying), now_ms, plan):
            moved.append(_spelled(held))
    if moved:
        raise CommitFailed(
            f"Cannot publish {transaction.name}: {', '.join(moved)} changed since it was opened at number "
            f"{transaction.base_number}. Abort it, open it again and repeat the work"
        )
    _refuse_protected(transaction, plan.changes)
    write_files(catalog, plan.files)
    gone = [held.last for held in staged if is_purged(held)]
    if gone:
        also = enqueue_purge(transaction.warehouse, gone, principal, now_ms, also)
    try:
        number = publish_changes(
            catalog.database, transaction, WriteRequest(plan.changes, principal, now_ms), also
        )
    except CommitStateUnknown:
        raise
    except (CatalogError, ConcurrentUpdate):
        discard_files(catalog, plan.files)
        raise
    for location, text in plan.files:
        catalog.documents.put_text(plan.keys[location], text)
    if plan.outdated:
        remove_outdated(catalog, plan.outdated)
    return number


def _refuse_protected(transaction: Transaction, changes: list[EntryChange]) -> None:
    """Refuse to drop or replace a table that was protected after the transaction staged that change."""
    staying = {change.after.uuid for change in changes if change.after is not None}
    for change in changes:
        base, after = change.base, change.after
        if base is None or not base.protected or (after is not None and after.uuid == base.uuid):
            continue
        if after is not None or base.uuid not in staying:
            name = Identifier(Namespace.from_key(change.namespace), change.name)
            raise Conflict(
                f"Cannot publish {transaction.name}: it drops or replaces {name}, which is protected. "
                "Take the protection off first, or abort the transaction"
            )


def is_purged(held: StagedChange) -> bool:
    """Whether publishing this change purges the table, including files that only the transaction has
    written.
    """
    return held.after is None and held.kind == "table" and bool(held.detail.get("purge"))


def _told_plainly(held: StagedChange, staying: set[str]) -> StagedChange:
    """A table that was renamed and then dropped in the transaction is published as dropped."""
    if held.operation.startswith("rename-") and held.after is None and held.last.uuid not in staying:
        return replace(held, operation=f"drop-{held.kind}")
    return held


def _decide(catalog: Catalog, present: CurrentState, held: StagedChange, now_ms: int, plan: _Plan) -> bool:
    """Add what publishing does to one name; False if the name moved and the work cannot be carried over."""
    live = present.load(held.namespace, held.name)
    stands = (live.uuid, live.version) if live else None
    based = (held.base_uuid, held.base_version) if held.base_uuid is not None else None
    after = held.after
    if stands != based:
        after = _rebased(catalog, present, held, live)
        if after is None:
            return False
    detail, new_locations = held.detail, tuple[str, ...]()
    if after is not None and after.kind != "namespace":
        before = _parsed(catalog, live) if live is not None and live.uuid == after.uuid else None
        after, metadata = _with_file(catalog, held, live, before, after, now_ms, plan)
        new_locations = locations.new_locations(before, metadata)
        if after.kind == "table":
            # A note of the version that is published, not of those on the way to it.
            detail = update_summary(held.detail, metadata)
    plan.changes.append(
        EntryChange(
            held.operation,
            held.kind,
            held.namespace,
            held.name,
            live,
            after,
            detail,
            new_locations,
            _keep_until_ms(catalog, held, after, now_ms),
        )
    )
    return True


def _parsed(catalog: Catalog, entry: CatalogEntry) -> dict[str, Any]:
    return catalog.documents.parsed(document_key(entry), entry.document or b"{}")


def _keep_until_ms(
    catalog: Catalog, held: StagedChange, after: CatalogEntry | None, now_ms: int
) -> int | None:
    dropped = after is None and held.kind != "namespace" and held.operation.startswith("drop-")
    if not dropped or held.detail.get("purge", False):
        return None
    return now_ms + catalog.limits.drop_retention_s * 1000


def _with_file(
    catalog: Catalog,
    held: StagedChange,
    live: CatalogEntry | None,
    before: dict[str, Any] | None,
    after: CatalogEntry,
    now_ms: int,
    plan: _Plan,
) -> tuple[CatalogEntry, dict[str, Any]]:
    """The entry with the file it will have, and its document. What was only renamed or registered has its
    file already.
    """
    location, metadata = str(after.metadata_location), _parsed(catalog, after)
    if location == held.base_location or catalog.files.exists(location):
        return after, metadata
    if after.kind == "table":
        metadata = set_publish_time(metadata, before, now_ms)
        plan.outdated += outdated_files(before, metadata)
    location = next_metadata_location(metadata, live.metadata_location if live else None)
    version = live.version + 1 if live is not None and before is not None else UNNUMBERED
    published = replace(after, metadata_location=location, version=version)
    plan.keys[location] = document_key(published)
    staged = document_key(after)
    replaced = [staged, document_key(live)] if live is not None else [staged]
    text = catalog.documents.encode(plan.keys[location], metadata, staged, replaced)
    plan.files.append((location, text))
    return replace(published, document=text), metadata


def _rebased(
    catalog: Catalog, present: CurrentState, held: StagedChange, live: CatalogEntry | None
) -> CatalogEntry | None:
    """The staged commits applied to the current table. None if that is not possible, or a requirement
    fails.
    """
    if live is None or held.after is None or held.kind != "table" or live.uuid != held.base_uuid:
        return None
    if held.after.uuid != held.base_uuid or None in held.requests:
        return None
    metadata = _parsed(catalog, live)
    try:
        for requirements, updates in held.requests:
            metadata = apply(
                metadata,
                requirements,
                updates,
                now_ms=catalog.now_ms(),
                metadata_location=live.metadata_location,
            )
    except CatalogError:
        return None
    metadata = squash_for(catalog, present, held.namespace, held.name, metadata)
    location = next_metadata_location(metadata, live.metadata_location)
    text = orjson.dumps(metadata)
    return CatalogEntry("table", held.namespace, held.name, live.uuid, live.version + 1, location, text)


def _spelled(held: StagedChange) -> str:
    namespace = str(Namespace.from_key(held.namespace))
    return f"{namespace}.{held.name}" if held.name else namespace
