"""Commits: requirements and updates for one or more tables, all or nothing. Every 409 on a commit starts
here.

For each table, a commit loads the current document, checks whether the same commit has landed before, checks
the requirements, applies the updates and writes the new metadata file. One SQL transaction then updates the
rows of all tables. CONTRIBUTING.md lists all messages of a 409. The exceptions are:

    RequirementFailed   a requirement does not hold (metadata/commit.py)
    CommitFailed        a snapshot is older than the table (metadata/snapshots.py); other commits changed the
                        row first, 20 times (services/writes.py); only a part of a repeated multi-table commit
                        has landed (`_require_whole`); the commit was not written (`not_committed`)
    AlreadyExists       a view has the name of a table that the commit creates
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from catalog import locations
from catalog.errors import (
    AlreadyExists,
    CatalogError,
    CommitFailed,
    Invalid,
    NoSuchNamespace,
    NoSuchTable,
    NotWritten,
    RequirementFailed,
)
from catalog.metadata.commit import apply, is_replay
from catalog.metadata.document import summarize
from catalog.metadata.snapshots import collapse_logs, set_publish_time
from catalog.models import UNNUMBERED, CatalogEntry, EntryChange, Text, document_key
from catalog.names import Identifier
from catalog.services.catalog import Catalog
from catalog.services.warehouse_state import WarehouseState
from catalog.services.writes import (
    WriteContext,
    WritePlan,
    next_metadata_location,
    outdated_files,
    write_with_retry,
)

TABLES_A_TRANSACTION_MAX = 1000
DOCUMENT_BYTES_MAX = 100 * 1024 * 1024

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TableCommit:
    """The commit to one table, as the client sent it."""

    identifier: Identifier
    requirements: list[Any]
    updates: list[Any]

    @property
    def key(self) -> tuple[str, str]:
        return (self.identifier.namespace.key, self.identifier.name)

    @property
    def added_snapshots(self) -> list[Any]:
        """The ids of the snapshots that the commit adds."""
        return [
            update["snapshot"].get("snapshot-id")
            for update in self.updates
            if isinstance(update, dict)
            and update.get("action") == "add-snapshot"
            and isinstance(update.get("snapshot"), dict)
        ]

    @property
    def creates(self) -> bool:
        return any(isinstance(r, dict) and r.get("type") == "assert-create" for r in self.requirements)


def commit_tables(
    catalog: Catalog, state: WarehouseState, context: WriteContext, commits: list[TableCommit]
) -> list[CatalogEntry]:
    """Apply all commits or none. Returns the tables as they are afterwards."""
    check_commits(commits)
    outdated: list[str] = []
    try:
        entries = write_with_retry(
            catalog, state, context, lambda: _make_plan(catalog, state, commits, outdated)
        )
    except NotWritten as error:
        raise not_committed(error) from error
    if outdated and not state.is_transaction:
        remove_outdated(catalog, outdated)
    return entries


def commit_computed(
    catalog: Catalog,
    state: WarehouseState,
    context: WriteContext,
    identifier: Identifier,
    compute: Callable[[dict[str, Any]], list[dict[str, Any]]],
) -> CatalogEntry | None:
    """Apply updates that are computed from the table's own document. They are computed again after a
    concurrent commit, so they need no requirements. None if there is no such table.
    """
    key, outdated = (identifier.namespace.key, identifier.name), list[str]()

    def make_plan() -> WritePlan[CatalogEntry | None]:
        outdated.clear()
        entry = state.load(*key)
        if entry is None or entry.kind != "table":
            return WritePlan(result=None)
        before = catalog.documents.parsed(entry)
        commit = TableCommit(identifier, [], compute(before))
        after = _applied(catalog, commit, before, entry.metadata_location) if commit.updates else before
        if after is before:
            return WritePlan(result=entry)
        change, text = _change(catalog, state, commit, entry, before, after)
        assert change.after is not None
        outdated.extend(outdated_files(before, after))
        return WritePlan(change.after, [change], [(str(change.after.metadata_location), text)])

    entry = write_with_retry(catalog, state, context, make_plan)
    if outdated:
        remove_outdated(catalog, outdated)
    return entry


def not_committed(error: NotWritten) -> CommitFailed:
    """The error for a commit that was not written. It is a conflict, because clients read a 5xx on a commit
    as "state unknown".
    """
    return CommitFailed(error.message)


def _make_plan(
    catalog: Catalog, state: WarehouseState, commits: list[TableCommit], outdated: list[str]
) -> WritePlan[list[CatalogEntry]]:
    plan: WritePlan[list[CatalogEntry]] = WritePlan(result=[])
    outdated.clear()
    entries = [state.load(*commit.key) for commit in commits]
    for commit in commits:
        locations.check_updates(state.warehouse, commit.updates)
    pairs = list(zip(commits, entries, strict=True))
    if len(commits) > 1 and (landed := [c for c, entry in pairs if _has_landed(catalog, entry, c)]):
        _require_whole(catalog, state, commits, landed)
        return WritePlan(result=[entry for entry in entries if entry is not None])
    for commit, entry in pairs:
        add_to_plan(catalog, state, commit, entry, plan, outdated)
    return plan


def _has_landed(catalog: Catalog, entry: CatalogEntry | None, commit: TableCommit) -> bool:
    """Whether the table already has the snapshots of this commit."""
    if not commit.added_snapshots or entry is None or entry.kind != "table":
        return False
    return is_replay(catalog.documents.parsed(entry), commit.requirements, commit.updates)


def _require_whole(
    catalog: Catalog, state: WarehouseState, commits: list[TableCommit], landed: list[TableCommit]
) -> None:
    """Raise CommitFailed unless the whole request has landed.

    The current document may no longer show it: the snapshot may have expired, or the property may have been
    set again. The history lists every table that was written together with a landed snapshot.
    """
    missing = [c for c in commits if c not in landed and not _is_in_effect(catalog, state, c)]
    if missing:
        together = state.written_with(*landed[0].key, landed[0].added_snapshots)
        missing = [commit for commit in missing if commit.key not in together]
    if missing:
        raise CommitFailed(
            "Only a part of this request has been committed before: "
            f"{', '.join(str(commit.identifier) for commit in landed)} "
            f"{'has its' if len(landed) == 1 else 'have their'} snapshots already, the other tables do not. "
            "Nothing was written. Load the tables and commit again what is missing"
        )


def _is_in_effect(catalog: Catalog, state: WarehouseState, commit: TableCommit) -> bool:
    """Whether a commit without snapshots would change nothing."""
    entry = state.load(*commit.key)
    if entry is None or entry.kind != "table":
        return False
    return _has_no_effect(commit, catalog.documents.parsed(entry), catalog.now_ms())


def check_commits(commits: list[TableCommit]) -> None:
    if len(commits) > TABLES_A_TRANSACTION_MAX:
        raise Invalid(f"A transaction may touch at most {TABLES_A_TRANSACTION_MAX} tables")
    if len({commit.key for commit in commits}) != len(commits):
        raise Invalid("A transaction may name each table only once: join its requirements and updates")


def add_to_plan(
    catalog: Catalog,
    state: WarehouseState,
    commit: TableCommit,
    entry: CatalogEntry | None,
    plan: WritePlan[list[CatalogEntry]],
    outdated: list[str],
    publish_ms: int | None = None,
) -> None:
    """Add to the plan the change that this commit makes to its table, which is `entry` now. `publish_ms` is
    the time that all tables of a publish get, instead of the times of their snapshots.
    """
    if entry is not None and entry.kind == "view":
        if commit.creates:
            raise AlreadyExists(f"View with same name already exists: {commit.identifier}")
        raise NoSuchTable(f"Table does not exist: {commit.identifier}")
    before = catalog.documents.parsed(entry) if entry is not None else None
    if entry is not None and is_replay(before, commit.requirements, commit.updates):
        plan.result.append(entry)
        return
    if entry is None:
        _require_creatable(state, commit)
    location = entry.metadata_location if entry else None
    after = _applied(catalog, commit, before, location)
    if entry is not None and after is before:
        plan.result.append(entry)
        return
    if publish_ms is not None:
        after = set_publish_time(after, before, publish_ms)
    change, text = _change(catalog, state, commit, entry, before, after)
    assert change.after is not None
    plan.result.append(change.after)
    plan.changes.append(change)
    plan.files.append((str(change.after.metadata_location), text))
    outdated += outdated_files(before, after)


def _applied(
    catalog: Catalog, commit: TableCommit, before: dict[str, Any] | None, location: str | None
) -> dict[str, Any]:
    """The document after the commit.

    If the updates would change nothing, a failed requirement is ignored: the client may be repeating a commit
    whose response was lost, and must not get an error for it.
    """
    now_ms = catalog.now_ms()
    try:
        return apply(before, commit.requirements, commit.updates, now_ms=now_ms, metadata_location=location)
    except RequirementFailed:
        if before is not None and _has_no_effect(commit, before, now_ms):
            return before
        raise


def _has_no_effect(commit: TableCommit, before: dict[str, Any], now_ms: int) -> bool:
    if commit.added_snapshots:
        return False  # the commit has not landed, so its snapshot is missing
    same_table = [
        requirement
        for requirement in commit.requirements
        if isinstance(requirement, dict) and requirement.get("type") in ("assert-create", "assert-table-uuid")
    ]
    try:
        return apply(before, same_table, commit.updates, now_ms=now_ms) is before
    except CatalogError:
        return False


def _require_creatable(state: WarehouseState, commit: TableCommit) -> None:
    if not commit.creates:
        raise NoSuchTable(f"Table does not exist: {commit.identifier}")
    if state.entry(commit.identifier.namespace.key, "") is None:
        raise NoSuchNamespace(f"Namespace does not exist: {commit.identifier.namespace}")


def _change(
    catalog: Catalog,
    state: WarehouseState,
    commit: TableCommit,
    entry: CatalogEntry | None,
    before: dict[str, Any] | None,
    after: dict[str, Any],
) -> tuple[EntryChange, Text]:
    namespace, name = commit.key
    if state.is_transaction:
        after = collapse_logs_for(catalog, state, namespace, name, after)
    locations.check_result(state.warehouse, before, after)
    if entry is None:
        locations.check_metadata(state.warehouse, after)
    location = next_metadata_location(after, entry.metadata_location if entry else None)
    version = entry.version + 1 if entry else UNNUMBERED
    written = CatalogEntry("table", namespace, name, after["table-uuid"], version, location)
    follows = document_key(entry) if entry else None
    replaced = [follows] if follows is not None and not state.is_transaction else []
    text = catalog.documents.encode(document_key(written), after, follows, *replaced)
    if len(text) > DOCUMENT_BYTES_MAX:
        raise Invalid(
            f"The metadata of {commit.identifier} would have {len(text)} bytes, "
            f"more than {DOCUMENT_BYTES_MAX}: "
            "expire snapshots, or remove properties and old schemas"
        )
    return (
        EntryChange(
            operation="update-table" if entry else "create-table",
            kind="table",
            namespace=namespace,
            name=name,
            base=entry,
            after=replace(written, text=text),
            detail=_detail(after, commit.updates),
            locations=locations.new_locations(before, after),
            request=(commit.requirements, commit.updates),
        ),
        text,
    )


def collapse_logs_for(
    catalog: Catalog, state: WarehouseState, namespace: str, name: str, after: dict[str, Any]
) -> dict[str, Any]:
    """The document with its logs as they will be published: only the last version in a transaction is
    kept.
    """
    published = state.published(namespace, name)
    if published is None or published.kind != "table" or published.uuid != after["table-uuid"]:
        return collapse_logs(after, None, None)
    return collapse_logs(after, catalog.documents.parsed(published), published.metadata_location)


def _detail(after: dict[str, Any], updates: list[Any]) -> dict[str, Any]:
    """The detail of the history row: what the event reports, and what a rebuild of this version needs."""
    added = [update["snapshot"] for update in updates if update.get("action") == "add-snapshot"]
    detail = summarize(after)
    detail["updates"] = [update["action"] for update in updates]
    if added:
        detail["added-snapshots"] = [snapshot["snapshot-id"] for snapshot in added]
        # Readers of the history ask whether a commit changed rows, also after its snapshots are expired.
        detail["snapshot-operations"] = [snapshot.get("summary", {}).get("operation") for snapshot in added]
    return detail


def remove_outdated(catalog: Catalog, outdated: list[str]) -> None:
    """Delete outdated metadata files after the commit. A failure leaves unused files and is only logged."""
    try:
        catalog.files.delete(outdated)
    except CatalogError as error:
        log.warning("could not delete outdated metadata files", extra={"reason": error.message})
