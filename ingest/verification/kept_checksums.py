"""Compare the kept checksums of a mirror with those that a verification computes, and set them anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from catalog.services.catalog import Catalog
from ingest.change import TableName
from ingest.settings import KeepChecksums
from ingest.store.checksums import Buckets, Checksums, are_kept, set_checksums
from ingest.store.schema import landing_tables
from ingest.store.tables import LandedTable, key_of

BATCH_ID = "calve.batch-id"  # in the summary of a snapshot that a batch wrote
_NUMBER = sa.select(landing_tables.c.number).where(
    landing_tables.c.warehouse == sa.bindparam("w"), landing_tables.c.table_key == sa.bindparam("t")
)


class KeptChecksumsCheck:
    """`default` applies to tables without the setting."""

    def __init__(self, catalog: Catalog, default: KeepChecksums) -> None:
        self._database = catalog.database
        self._store = Checksums(catalog.database)
        self._default = default

    def before(self, warehouse: str, landed: LandedTable, mirror: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return what the end of the job needs; None if no checksums are kept. `mirror` is the document of
        the mirror at the number that is verified.
        """
        if not are_kept(landed.settings, self._default):
            return None
        found: dict[str, Any] = {"landed": landed.number}
        kept = self._store.one(warehouse, landed.table)
        if kept is None or kept.reason is not None or kept.snapshot_id is None:
            return found
        if kept.snapshot_id not in _without_batches(mirror):
            return found  # a batch has landed since they were read
        buckets = {bucket: [rows, str(hash_)] for bucket, (rows, hash_) in kept.buckets.items()}
        return found | {"hashed": kept.hashed, "buckets": buckets}

    def compared(self, before: Mapping[str, Any] | None, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the finding: whether the mirror has the rows that batches wrote."""
        if before is None or "buckets" not in before or before["hashed"] != facts.get("hashed"):
            return {}
        kept, scanned = _buckets(before["buckets"]), _buckets(facts["checksums"])
        differing = sorted(name for name in {*kept, *scanned} if kept.get(name) != scanned.get(name))
        rows = sum(rows for rows, _ in kept.values())
        return {"kept-checksums": {"rows": rows, "buckets-differing": differing}}

    def set_anew(
        self,
        connection: sa.Connection,
        warehouse: str,
        table: TableName,
        described: Mapping[str, Any],
        facts: Mapping[str, Any],
    ) -> None:
        """Set the checksums of a mirror that equals its changes, if nothing has landed since."""
        before, snapshot_id = described.get("kept"), described["snapshots"][0]
        if before is None or not facts.get("hashed") or snapshot_id in (None, -1):
            return
        where = {"w": warehouse, "t": key_of(table)}
        if connection.execute(_NUMBER, where).scalar() != before["landed"]:
            return
        set_checksums(
            connection,
            warehouse,
            table,
            number=int(described["number"]),
            snapshot_id=snapshot_id,
            hashed=facts["hashed"],
            buckets=_buckets(facts["checksums"]),
        )


def checksums_differ(found: Mapping[str, Any]) -> bool:
    """Return whether a check found that the mirror differs from its kept checksums."""
    return bool((found.get("kept-checksums") or {}).get("buckets-differing"))


def _without_batches(metadata: Mapping[str, Any]) -> set[int]:
    """Return the current snapshot and those before it, back to the newest one that a batch wrote."""
    known = {snapshot["snapshot-id"]: snapshot for snapshot in metadata.get("snapshots") or ()}
    found, current = set(), metadata.get("current-snapshot-id")
    while current is not None:
        found.add(current)
        snapshot = known.get(current, {})
        if BATCH_ID in (snapshot.get("summary") or {}):
            break
        current = snapshot.get("parent-snapshot-id")
    return found


def _buckets(given: Mapping[str, Any]) -> Buckets:
    pairs = {bucket: (int(rows), int(hash_)) for bucket, (rows, hash_) in given.items()}
    return {bucket: pair for bucket, pair in pairs.items() if any(pair)}
