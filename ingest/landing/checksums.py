"""The checksums that a worker reports with a publish, joined with the snapshots that the publish adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from catalog.names import Namespace
from catalog.services.catalog import Catalog, CurrentState
from ingest.change import TableName
from ingest.store.checksums import (
    NOT_COUNTED,
    REBUILT,
    BatchChecksums,
    MirrorChange,
    batch_checksums,
    equal_snapshots,
)
from ingest.store.mirrors import Snapshot
from ingest.store.tables import TableAdvance

_FACT = "checksums"
TableRef = tuple[tuple[str, ...], str]  # namespace and name


@dataclass(frozen=True, slots=True)
class ReportedChecksums:
    """By the label of a table. `why_unknown` has the tables without checksums."""

    added: Mapping[str, BatchChecksums]
    why_unknown: Mapping[str, str]
    default_reason: str

    @classmethod
    def taken(cls, metrics: dict[str, Any], *, is_rebuild: bool) -> ReportedChecksums:
        """Take the checksums out of the metrics of a worker, which are stored with the job."""
        tables = metrics.get("tables")
        facts = tables if isinstance(tables, dict) else {}
        added, why = {}, {}
        for name, one in facts.items():
            if not isinstance(one, dict):
                continue
            found = batch_checksums(one.pop(_FACT, None))
            if found is not None and not is_rebuild:
                added[name] = found
            elif one.get("by") == "merge":
                why[name] = f"a batch was merged by SQL: {one.get('why')}"
        return cls(added, why, REBUILT if is_rebuild else NOT_COUNTED)

    def changes(
        self,
        catalog: Catalog,
        warehouse: str,
        steps: Sequence[TableAdvance],
        rows: Mapping[TableRef, Snapshot],
        snapshot_ids: Mapping[TableRef, int | None],
    ) -> dict[TableName, MirrorChange]:
        """Return what the publish does to each mirror that gets a snapshot."""
        found = {}
        for table in (step.table for step in steps):
            ref = (table[:-1], table[-1]) if table else ((), "")
            snapshot, snapshot_id = rows.get(ref), snapshot_ids.get(ref)
            if snapshot is None or snapshot_id is None:
                continue
            label = ".".join(table)
            added = self.added.get(label)
            equal_ids = frozenset[int]()
            if added is not None and not snapshot.is_first:
                equal_ids = _equal_ids(catalog, warehouse, table, snapshot.parent_id)
            why = self.why_unknown.get(label, self.default_reason)
            found[table] = MirrorChange(snapshot, snapshot_id, added, why, equal_ids)
        return found


def _equal_ids(catalog: Catalog, warehouse: str, table: TableName, snapshot_id: int | None) -> frozenset[int]:
    state = CurrentState(catalog.database, catalog.entries, warehouse, catalog.documents)
    entry = state.load(Namespace(tuple(table[:-1])).key, table[-1])
    if entry is None or entry.kind != "table" or entry.text is None:
        return frozenset()
    return equal_snapshots(catalog.documents.parsed(entry), snapshot_id)
