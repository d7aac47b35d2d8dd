"""Expiry of one table: the snapshots that no kept moment needs leave its document.

The names of their files are queued before the commit. If the commit fails, the queue is harmless: the files
are deleted only if nothing refers to them when the row is processed (maintenance/file_cleanup.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from catalog import faults
from catalog.names import Identifier, WarehouseRef, namespace_from_levels
from catalog.services.catalog import Catalog
from catalog.services.commits import commit_computed
from catalog.services.writes import WriteContext
from catalog.store.moments import KeptMoments
from maintenance.expiry import Expiry, Version, expiry, needed_at_kept_moments
from maintenance.store import ExpiredFiles, MaintenanceStore

PRINCIPAL = "maintenance"
NAMES_MAX = 100  # earlier names of a table
EXPIRED_MIN = 20  # fewer snapshots are not worth a commit, unless the table is at rest


@dataclass(frozen=True, slots=True)
class Expired:
    """What an expiry did, or would do."""

    snapshots: int
    schemas: int
    remaining: int


class TableExpiry:
    def __init__(self, catalog: Catalog, store: MaintenanceStore, *, unused_ms: int, grace_ms: int) -> None:
        self._catalog = catalog
        self._store = store
        self._unused_ms = unused_ms
        self._grace_ms = grace_ms

    def expire(
        self,
        warehouse: str,
        identifier: Identifier,
        kept: KeptMoments,
        *,
        least: int = 1,
        is_dry_run: bool = False,
    ) -> Expired | None:
        """Remove what no kept moment needs, at least `least` snapshots. None: nothing was removed."""
        state = self._catalog.state(WarehouseRef(warehouse))
        entry = state.load(identifier.namespace.key, identifier.name)
        if entry is None or entry.kind != "table" or entry.text is None:
            return None
        metadata = self._catalog.documents.parsed(entry)
        found = self._plan(warehouse, identifier, metadata, kept)
        if len(found.snapshot_ids) < least and not (found.schema_ids and least == 1):
            return None
        remaining = len(metadata.get("snapshots") or ()) - len(found.snapshot_ids)
        result = Expired(len(found.snapshot_ids), len(found.schema_ids), remaining)
        if not found.updates:
            return None
        if is_dry_run:
            return result
        files = ExpiredFiles(found.manifest_lists, found.statistics)
        due_ms = self._catalog.now_ms() + self._grace_ms
        self._store.add_files(warehouse, entry.uuid, due_ms, files)
        faults.reach("expire.queued")

        def updates(document: dict[str, Any]) -> list[dict[str, Any]]:
            # Only what was queued is removed. A newer document may refer to more, never to less: the plan
            # is made again for it.
            again = self._plan(warehouse, identifier, document, kept)
            ids = sorted(set(found.snapshot_ids) & set(again.snapshot_ids))
            schemas = sorted(set(found.schema_ids) & set(again.schema_ids))
            return Expiry(ids, schemas, [], []).updates

        commit_computed(self._catalog, state, WriteContext(PRINCIPAL), identifier, updates)
        faults.reach("expire.committed")
        return result

    def _plan(
        self, warehouse: str, identifier: Identifier, metadata: dict[str, Any], kept: KeptMoments
    ) -> Expiry:
        rows = versions(self._catalog, warehouse, identifier, metadata["table-uuid"])
        needed = needed_at_kept_moments(rows, kept.numbers, kept.thinned_number)
        return expiry(metadata, needed, self._catalog.now_ms(), unused_ms=self._unused_ms)


def versions(catalog: Catalog, warehouse: str, identifier: Identifier, uuid: str) -> list[Version]:
    """The versions of a table in order, also under its earlier names. A drop is a version without content."""
    found: list[tuple[int, bool, Version]] = []
    waiting, seen = [(identifier.namespace.key, identifier.name)], set[tuple[str, str]]()
    while waiting and len(seen) < NAMES_MAX:
        key = waiting.pop()
        if key in seen:
            continue
        seen.add(key)
        for number, present, row_uuid, detail in catalog.history.rows_of(warehouse, *key):
            if row_uuid != uuid:
                continue
            found.append((number, present, _version(number, detail if present else {})))
            former = detail.get("from") if present else None
            if former is not None:
                waiting.append((namespace_from_levels(former["namespace"]).key, former["name"]))
    # The two rows of a rename have the same number; the one that is present comes last.
    return [version for _, _, version in sorted(found, key=lambda row: row[:2])]


def _version(number: int, detail: dict[str, Any]) -> Version:
    ids = {detail.get("current-snapshot-id")} | {
        ref.get("snapshot-id") for ref in (detail.get("refs") or {}).values()
    }
    present = frozenset(id_ for id_ in ids if isinstance(id_, int) and id_ != -1)
    return Version(number, present, detail.get("current-schema-id"))
