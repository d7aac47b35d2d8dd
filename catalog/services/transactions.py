"""Open transactions: their changes become visible together, under one number, when they are published.

The first committer wins. If a table has changed since the transaction was opened, publishing applies the
staged commits to the current table and checks their requirements again. If a requirement fails, nothing is
published, and the error names the tables.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from typing import Any

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
from catalog.metadata.snapshots import set_publish_time
from catalog.models import (
    UNNUMBERED,
    CatalogEntry,
    ConcurrentUpdate,
    DocumentKey,
    EntryChange,
    StagedChange,
    Text,
    Transaction,
    WriteRequest,
    document_key,
)
from catalog.names import Identifier, Namespace, check_transaction_name
from catalog.services.catalog import Catalog, CurrentState
from catalog.services.commits import collapse_logs_for, remove_outdated
from catalog.services.warehouse_state import staged_document
from catalog.services.writes import discard_files, next_metadata_location, outdated_files, write_files
from catalog.store.dropped import enqueue_purge
from catalog.store.entries import InTransaction
from catalog.store.transactions import publish as publish_changes

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


def extend(catalog: Catalog, warehouse: str, name: str, ttl_s: int, *, id_: str | None = None) -> Transaction:
    """Extend the lifetime of an open transaction. `id_` is explained at `newest`."""
    if not 0 < ttl_s <= TTL_S_MAX:
        raise Invalid(f"ttl-s must be between 1 and {TTL_S_MAX}")
    transaction = newest(catalog, warehouse, name, id_=id_)
    catalog.require_open(transaction)
    now_ms = catalog.now_ms()
    catalog.transactions.extend(transaction, now_ms + ttl_s * 1000, now_ms)
    return catalog.open_transaction(warehouse, name)


def newest(catalog: Catalog, warehouse: str, name: str, *, id_: str | None = None) -> Transaction:
    """The newest transaction with this name, open or closed.

    `id_` is the transaction whose owner was checked. If another one has taken the name since, the caller may
    have no right to it, so it is not found.
    """
    found = catalog.transactions.newest(warehouse, name)
    if found is None or id_ not in (None, found.id):
        raise NoSuchTransaction(f"Transaction does not exist: {name}")
    return found


def abort(catalog: Catalog, warehouse: str, name: str, *, id_: str | None = None) -> None:
    """Discard an open transaction. `id_` is explained at `newest`."""
    transaction = newest(catalog, warehouse, name, id_=id_)
    catalog.require_open(transaction)
    catalog.transactions.abort(transaction, catalog.now_ms())


def publish(
    catalog: Catalog,
    warehouse: str,
    principal: str,
    name: str,
    in_transaction: InTransaction | None = None,
    *,
    id_: str | None = None,
) -> tuple[int | None, list[StagedChange]]:
    """Publish all staged changes at once. Returns the number (None if there was nothing) and the changes.

    A repeated call finds the transaction committed and returns the same number. `id_` is explained at
    `newest`.
    """
    transaction = newest(catalog, warehouse, name, id_=id_)
    if transaction.state == "committed":
        return transaction.number, []
    catalog.require_open(transaction)
    for _ in range(PUBLISH_ATTEMPTS_MAX):
        staged_changes = all_staged(catalog, transaction)
        try:
            return _publish_once(
                catalog, transaction, principal, staged_changes, in_transaction
            ), staged_changes
        except ConcurrentUpdate:
            continue  # another commit changed a row, or staged one, after it was read: read again
        except CommitFailed:
            now = newest(catalog, warehouse, name)
            if now.id == transaction.id and now.state == "committed":
                return now.number, []  # a concurrent call has published it
            raise
    raise CommitFailed(
        f"Cannot publish {name}: its tables are written to by too many others at once; try again"
    )


def all_staged(catalog: Catalog, transaction: Transaction) -> list[StagedChange]:
    """All staged changes of a transaction, with their documents."""
    while True:
        found = []
        for staged in catalog.transactions.all_staged(transaction.id):
            text = staged_document(catalog.documents, catalog.transactions, transaction, staged.last)
            if text is None:
                break  # a name has been written again since: read all of them again
            last = replace(staged.last, text=text)
            found.append(replace(staged, after=last if staged.after is not None else None, last=last))
        else:
            return found


@dataclass(slots=True)
class _Plan:
    """The changes and files of a publish."""

    changes: list[EntryChange] = field(default_factory=list)
    files: list[tuple[str, Text]] = field(default_factory=list)  # location and JSON text
    keys: dict[str, DocumentKey] = field(default_factory=dict)  # cache keys of the documents in `files`
    outdated: list[str] = field(default_factory=list)  # files to delete after the publish


def _publish_once(
    catalog: Catalog,
    transaction: Transaction,
    principal: str,
    staged_changes: list[StagedChange],
    in_transaction: InTransaction | None,
) -> int | None:
    present = CurrentState(catalog.database, catalog.entries, transaction.warehouse, catalog.documents)
    now_ms = catalog.now_ms()
    plan = _Plan()
    changed = []
    remaining = {staged.after.uuid for staged in staged_changes if staged.after is not None}
    for staged in staged_changes:
        if staged.base_uuid is None and staged.after is None:
            continue  # created and dropped in this transaction: nothing to publish
        if not _add_to_plan(catalog, present, _rename_as_drop(staged, remaining), now_ms, plan):
            changed.append(_full_name(staged))
    if changed:
        raise CommitFailed(
            f"Cannot publish {transaction.name}: {', '.join(changed)} changed since it was opened at number "
            f"{transaction.base_number}. Abort it, open it again and repeat the work"
        )
    _refuse_protected(transaction, plan.changes)
    write_files(catalog, plan.files)
    gone = [staged.last for staged in staged_changes if is_purged(staged)]
    if gone:
        in_transaction = enqueue_purge(transaction.warehouse, gone, principal, now_ms, in_transaction)
    try:
        request = WriteRequest(plan.changes, principal, now_ms)
        number = publish_changes(catalog.database, transaction, staged_changes, request, in_transaction)
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
    remaining = {change.after.uuid for change in changes if change.after is not None}
    for change in changes:
        base, after = change.base, change.after
        if base is None or not base.protected or (after is not None and after.uuid == base.uuid):
            continue
        if after is not None or base.uuid not in remaining:
            name = Identifier(Namespace.from_key(change.namespace), change.name)
            raise Conflict(
                f"Cannot publish {transaction.name}: it drops or replaces {name}, which is protected. "
                "Take the protection off first, or abort the transaction"
            )


def is_purged(staged: StagedChange) -> bool:
    """Whether publishing this change purges the table, including files that only the transaction has
    written.
    """
    return staged.after is None and staged.kind == "table" and bool(staged.detail.get("purge"))


def _rename_as_drop(staged: StagedChange, remaining: set[str]) -> StagedChange:
    """A table that was renamed and then dropped in the transaction is published as dropped."""
    if staged.operation.startswith("rename-") and staged.after is None and staged.last.uuid not in remaining:
        return replace(staged, operation=f"drop-{staged.kind}")
    return staged


def _add_to_plan(
    catalog: Catalog, present: CurrentState, staged: StagedChange, now_ms: int, plan: _Plan
) -> bool:
    """Add to the plan what publishing does to one name.

    Returns False if the entry has changed since and the staged commits do not apply to it.
    """
    current = present.load(staged.namespace, staged.name)
    current_version = (current.uuid, current.version) if current else None
    base_version = (staged.base_uuid, staged.base_version) if staged.base_uuid is not None else None
    after = staged.after
    if current_version != base_version:
        after = _rebased(catalog, present, staged, current)
        if after is None:
            return False
    detail, new_locations = staged.detail, tuple[str, ...]()
    if after is not None and after.kind != "namespace":
        before = (
            catalog.documents.parsed(current) if current is not None and current.uuid == after.uuid else None
        )
        after, metadata = _with_file(catalog, staged, current, before, after, now_ms, plan)
        new_locations = locations.new_locations(before, metadata)
        if after.kind == "table":
            # The summary describes the published version, not those inside the transaction.
            detail = update_summary(staged.detail, metadata)
    plan.changes.append(
        EntryChange(
            staged.operation,
            staged.kind,
            staged.namespace,
            staged.name,
            current,
            after,
            detail,
            new_locations,
            _keep_until_ms(catalog, staged, after, now_ms),
        )
    )
    return True


def _keep_until_ms(
    catalog: Catalog, staged: StagedChange, after: CatalogEntry | None, now_ms: int
) -> int | None:
    dropped = after is None and staged.kind != "namespace" and staged.operation.startswith("drop-")
    if not dropped or staged.detail.get("purge", False):
        return None
    return now_ms + catalog.limits.drop_retention_s * 1000


def _with_file(
    catalog: Catalog,
    staged: StagedChange,
    current: CatalogEntry | None,
    before: dict[str, Any] | None,
    after: CatalogEntry,
    now_ms: int,
    plan: _Plan,
) -> tuple[CatalogEntry, dict[str, Any]]:
    """The entry with its metadata file, and its document. A table that was only renamed or registered keeps
    its file.
    """
    location, metadata = str(after.metadata_location), catalog.documents.parsed(after)
    if location == staged.base_location or catalog.files.exists(location):
        return after, metadata
    if after.kind == "table":
        metadata = set_publish_time(metadata, before, now_ms)
        plan.outdated += outdated_files(before, metadata)
    location = next_metadata_location(metadata, current.metadata_location if current else None)
    version = current.version + 1 if current is not None and before is not None else UNNUMBERED
    published = replace(after, metadata_location=location, version=version)
    plan.keys[location] = document_key(published)
    staged_key = document_key(after)
    replaced = [staged_key, document_key(current)] if current is not None else [staged_key]
    text = catalog.documents.encode(plan.keys[location], metadata, staged_key, *replaced)
    plan.files.append((location, text))
    return replace(published, text=text), metadata


def _rebased(
    catalog: Catalog, present: CurrentState, staged: StagedChange, current: CatalogEntry | None
) -> CatalogEntry | None:
    """The staged commits applied to the current table. None if that is not possible, or a requirement
    fails.
    """
    if current is None or staged.after is None or staged.kind != "table" or current.uuid != staged.base_uuid:
        return None
    if staged.after.uuid != staged.base_uuid or None in staged.requests:
        return None
    metadata = catalog.documents.parsed(current)
    try:
        for requirements, updates in staged.requests:
            metadata = apply(
                metadata,
                requirements,
                updates,
                now_ms=catalog.now_ms(),
                metadata_location=current.metadata_location,
            )
    except CatalogError:
        return None
    metadata = collapse_logs_for(catalog, present, staged.namespace, staged.name, metadata)
    location = next_metadata_location(metadata, current.metadata_location)
    names = (staged.namespace, staged.name)
    entry = CatalogEntry("table", *names, current.uuid, current.version + 1, location)
    text = catalog.documents.encode(document_key(entry), metadata, document_key(current))
    return replace(entry, text=text)


def _full_name(staged: StagedChange) -> str:
    namespace = str(Namespace.from_key(staged.namespace))
    return f"{namespace}.{staged.name}" if staged.name else namespace
