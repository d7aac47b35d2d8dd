"""The checksums of mirrors in SQL, in buckets of the key: each publish adds those of its batch.

They belong to one snapshot of the mirror. A change that cannot be added exactly makes them unknown, with the
reason, until a verification computes them anew.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from catalog.names import Namespace
from catalog.services.catalog import Catalog, CurrentState
from catalog.store.database import Database
from ingest.change import TableName
from ingest.settings import KeepChecksums, TableSettings
from ingest.store.mirrors import Snapshot
from ingest.store.schema import landing_checksums as kept
from ingest.store.tables import TableAdvance, key_of, name_of

NOT_FROM_THE_START = "rows landed before checksums were kept"
NOT_COUNTED = "a batch landed without checksums"
REBUILT = "the mirror was rebuilt"
OTHERS = "another writer has changed the mirror, or its columns were converted"
COLUMNS = "the columns of the mirror, their types or its key have changed"
BELOW_ZERO = "a batch deleted rows that the checksums do not have: verify the table"

NOT_KEPT = {"state": "not-kept"}  # no batch has reported any

_BUCKETS = 256
_ROWS_BYTES, _HASH_BYTES = 8, 16
_of_table = (kept.c.warehouse == sa.bindparam("w"), kept.c.table_key == sa.bindparam("t"))
_shown = [column for column in kept.c if column.name != "warehouse"]
_ONE = sa.select(*_shown).where(*_of_table)
_ALL = sa.select(*_shown).where(kept.c.warehouse == sa.bindparam("w"))
_ENSURE = sa.text(
    "INSERT INTO landing_checksums (warehouse, table_key) VALUES (:w, :t) ON CONFLICT DO NOTHING"
)
TableRef = tuple[tuple[str, ...], str]  # namespace and name
Buckets = dict[str, tuple[int, int]]  # rows and the sum of their hashes


def are_kept(settings: TableSettings, default: KeepChecksums) -> bool:
    """Return whether each batch brings checksums of the mirror up to date. They are of use only if a
    verification compares them, which needs a changes table.
    """
    return settings.mode == "mirror+changes" and (settings.checksums or default) == "each-batch"


@dataclass(frozen=True, slots=True)
class KeptChecksums:
    """One row. `hashed` identifies the columns that hashes cover. `reason` says why they are unknown."""

    table: TableName
    number: int | None
    snapshot_id: int | None
    hashed: str
    buckets: Buckets
    reason: str | None
    changed_ms: int

    def described(self) -> dict[str, Any]:
        """Return what the API shows."""
        if self.reason is not None:
            return {"state": "unknown", "reason": self.reason, "since-ms": self.changed_ms}
        rows = sum(rows for rows, _ in self.buckets.values())
        return {"state": "kept", "number": self.number, "rows": rows}


@dataclass(frozen=True, slots=True)
class BatchChecksums:
    """What a worker reports of one mirror. `emptied`: the batch began with an empty mirror."""

    hashed: str
    emptied: bool
    buckets: Buckets


@dataclass(frozen=True, slots=True)
class MirrorChange:
    """What a publish does to one mirror. `equal_ids` are the snapshots with the same rows as the one that it
    adds to. `why_unknown` says why the worker reports no checksums.
    """

    snapshot: Snapshot
    snapshot_id: int
    added: BatchChecksums | None
    why_unknown: str = NOT_COUNTED
    equal_ids: frozenset[int] = field(default_factory=frozenset)


class Checksums:
    def __init__(self, database: Database) -> None:
        self._database = database

    def one(self, warehouse: str, table: TableName) -> KeptChecksums | None:
        row = self._database.fetch_one(_ONE, {"w": warehouse, "t": key_of(table)})
        return _kept(row) if row is not None else None

    def all(self, warehouse: str) -> dict[TableName, KeptChecksums]:
        rows = (_kept(row) for row in self._database.fetch_all(_ALL, {"w": warehouse}))
        return {row.table: row for row in rows}


def note_checksums(
    connection: sa.Connection, warehouse: str, table: TableName, number: int, change: MirrorChange | None
) -> None:
    """Add the checksums of a batch, inside its publish. `change` is None if the mirror gets no snapshot."""
    where = {"w": warehouse, "t": key_of(table)}
    row = connection.execute(_ONE, where).fetchone()
    known = _kept(row) if row is not None else None
    if change is None:
        if known is not None and known.reason is None:
            _update(connection, where, {"number": number})
        return
    if change.added is None:
        if known is not None and known.reason is None:
            _update(connection, where, _unknown(change.why_unknown))
        return
    if row is None:
        connection.execute(_ENSURE, where)
    if known is None or known.reason is None or change.added.emptied or change.snapshot.is_first:
        _update(connection, where, _sum(known, change, change.added, number))


def set_checksums(
    connection: sa.Connection,
    warehouse: str,
    table: TableName,
    *,
    number: int,
    snapshot_id: int,
    hashed: str,
    buckets: Buckets,
) -> None:
    """Set checksums that a verification has computed of a snapshot."""
    where = {"w": warehouse, "t": key_of(table)}
    connection.execute(_ENSURE, where)
    _update(connection, where, _values(number, snapshot_id, hashed, buckets))


def _sum(
    known: KeptChecksums | None, change: MirrorChange, added: BatchChecksums, number: int
) -> dict[str, Any]:
    if added.emptied or change.snapshot.is_first:
        before: Buckets = {}
    elif known is None:
        return _unknown(NOT_FROM_THE_START)
    elif known.snapshot_id not in change.equal_ids:
        return _unknown(OTHERS)
    elif known.hashed != added.hashed:
        return _unknown(COLUMNS)
    else:
        before = known.buckets
    total = {
        bucket: (before.get(bucket, (0, 0))[0] + rows, before.get(bucket, (0, 0))[1] + hash_)
        for bucket, (rows, hash_) in added.buckets.items()
    }
    if any(rows < 0 or hash_ < 0 for rows, hash_ in total.values()):
        return _unknown(BELOW_ZERO)
    return _values(number, change.snapshot_id, added.hashed, before | total)


def _update(connection: sa.Connection, where: dict[str, str], values: dict[str, Any]) -> None:
    connection.execute(sa.update(kept).where(*_of_table).values(**values), where)


def _values(number: int, snapshot_id: int, hashed: str, buckets: Buckets) -> dict[str, Any]:
    return {
        "number": number,
        "snapshot_id": snapshot_id,
        "hashed": hashed,
        "buckets": packed(buckets),
        "reason": None,
        "changed_ms": time.time_ns() // 1_000_000,
    }


def _unknown(reason: str) -> dict[str, Any]:
    return {"buckets": b"", "reason": reason, "changed_ms": time.time_ns() // 1_000_000}


def _kept(row: Any) -> KeptChecksums:
    key, number, snapshot_id, hashed, buckets, reason, changed_ms = row
    return KeptChecksums(
        name_of(key), number, snapshot_id, hashed, unpacked(bytes(buckets)), reason, changed_ms
    )


def packed(buckets: Mapping[str, tuple[int, int]]) -> bytes:
    """Return the buckets as bytes: rows and hash of each, in their order."""
    pairs = [buckets.get(f"{number:02x}", (0, 0)) for number in range(_BUCKETS)]
    return b"".join(
        rows.to_bytes(_ROWS_BYTES, "big") + hash_.to_bytes(_HASH_BYTES, "big") for rows, hash_ in pairs
    )


def unpacked(text: bytes) -> Buckets:
    """Return the buckets that have rows."""
    found: Buckets = {}
    width = _ROWS_BYTES + _HASH_BYTES
    for number in range(len(text) // width):
        part = text[number * width : (number + 1) * width]
        rows, hash_ = (int.from_bytes(one, "big") for one in (part[:_ROWS_BYTES], part[_ROWS_BYTES:]))
        if rows or hash_:
            found[f"{number:02x}"] = (rows, hash_)
    return found


def batch_checksums(given: Any) -> BatchChecksums | None:
    """Parse what a worker reports; None if it reports nothing that can be added."""
    if not isinstance(given, dict):
        return None
    try:
        buckets = {str(name): (int(pair[0]), int(pair[1])) for name, pair in given["buckets"].items()}
        return BatchChecksums(str(given["hashed"]), bool(given["emptied"]), buckets)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        return None  # then they are unknown, which is shown


def equal_snapshots(metadata: Mapping[str, Any], snapshot_id: int | None) -> frozenset[int]:
    """Return the snapshots with the same rows as one: it, and those that compactions have replaced."""
    known = {snapshot["snapshot-id"]: snapshot for snapshot in metadata.get("snapshots") or ()}
    found = set()
    while snapshot_id is not None:
        found.add(snapshot_id)
        snapshot = known.get(snapshot_id, {})
        if (snapshot.get("summary") or {}).get("operation") != "replace":
            break
        snapshot_id = snapshot.get("parent-snapshot-id")
    return frozenset(found)


# -- what a worker reports with a publish


@dataclass(frozen=True, slots=True)
class ReportedChecksums:
    """By the label of a table. `why_unknown` has the tables without checksums."""

    added: Mapping[str, BatchChecksums]
    why_unknown: Mapping[str, str]
    default_reason: str

    @classmethod
    def reported(cls, metrics: dict[str, Any], *, is_rebuild: bool) -> ReportedChecksums:
        """Remove the checksums from the metrics of a worker, which are stored with the job."""
        tables = metrics.get("tables")
        facts = tables if isinstance(tables, dict) else {}
        added, why = {}, {}
        for name, one in facts.items():
            if not isinstance(one, dict):
                continue
            found = batch_checksums(one.pop("checksums", None))
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
