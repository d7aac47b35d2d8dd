"""Mirrors in SQL: whether the changes table has every change, the keys, rebuilds, and changes by others."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson
import sqlalchemy as sa

from catalog.store.database import Database
from ingest.change import TableName
from ingest.evidence import Evidence, find_contradiction
from ingest.identity import Key, is_guess
from ingest.store.schema import landing_mirrors, landing_tables
from ingest.store.tables import CHANGES_SUFFIX, LandedTable, TableAdvance, key_of, name_of

UNCOUNTED = "its first changes landed with a version of this program that did not count them"
OLDER_ROWS = "the mirror had rows before the first change came"
NOT_KEPT = "changes have landed while its mode kept no changes table"
SEVERAL_KEYS = "changes have landed by different keys"
OTHERS = "others have added rows to its changes table, or deleted some"
LATE = (
    "changes came that are not newer than what had landed of their source, and its mode keeps no changes "
    "table to compare them with, so rows may have old values: set the mode mirror+changes, and resync it"
)
LOST = (
    "a change of a key came late, and the large values that it did not send are not known any more: they are "
    "null. Resync the table"
)

_of_table = (
    landing_mirrors.c.warehouse == sa.bindparam("w"),
    landing_mirrors.c.table_key == sa.bindparam("t"),
)
_ONE = sa.select(landing_mirrors).where(*_of_table)
_ALL = sa.select(landing_mirrors).where(landing_mirrors.c.warehouse == sa.bindparam("w"))
_DUE = sa.select(landing_mirrors.c.warehouse, landing_mirrors.c.table_key).where(
    landing_mirrors.c.rebuild.is_not(None), landing_mirrors.c.rebuild_error.is_(None)
)
_ENSURE = sa.text("INSERT INTO landing_mirrors (warehouse, table_key) VALUES (:w, :t) ON CONFLICT DO NOTHING")
_NUMBER = sa.select(landing_tables.c.number).where(
    landing_tables.c.warehouse == sa.bindparam("w"), landing_tables.c.table_key == sa.bindparam("t")
)


@dataclass(frozen=True, slots=True)
class Mirror:
    """One row. `gap` says why the changes table lacks changes; None if it has all of them."""

    warehouse: str
    table: TableName
    changes_rows: int
    gap: str | None
    keys: tuple[tuple[str, ...], ...]
    key_reason: str | None
    evidence: str | None
    doubt: str | None
    rebuild: str | None
    is_needed: bool
    requested_ms: int | None
    rebuild_error: str | None
    rebuilt_ms: int | None
    rebuilt_number: int | None
    rebuilt_why: str | None

    @property
    def key(self) -> tuple[str, ...]:
        return self.keys[-1] if self.keys else ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The rows that a publish adds to one table."""

    added_rows: int
    total_rows: int
    is_first: bool  # the table had no snapshot before
    parent_id: int | None = None


def counted(snapshot: Mapping[str, Any]) -> Snapshot:
    """Return the counts in the summary of a snapshot."""
    summary = snapshot.get("summary") or {}
    added = int(summary.get("added-records", 0))
    total = int(summary.get("total-records", added))  # Iceberg's library always sets it
    parent_id = snapshot.get("parent-snapshot-id")
    return Snapshot(added, total, is_first=parent_id is None, parent_id=parent_id)


class Mirrors:
    def __init__(self, database: Database) -> None:
        self._database = database

    def one(self, warehouse: str, table: TableName) -> Mirror | None:
        row = self._database.fetch_one(_ONE, {"w": warehouse, "t": key_of(table)})
        return _mirror(row) if row is not None else None

    def all(self, warehouse: str) -> dict[TableName, Mirror]:
        found = (_mirror(row) for row in self._database.fetch_all(_ALL, {"w": warehouse}))
        return {mirror.table: mirror for mirror in found}

    def why_not_comparable(self, warehouse: str, table: TableName) -> str | None:
        """Return why a correct mirror may differ from its changes table; None if it may not."""
        found = self.one(warehouse, table)
        if found is None:
            return UNCOUNTED
        if found.rebuild is not None:
            return f"the mirror is going to be rebuilt: {found.rebuild}"
        return found.gap or (SEVERAL_KEYS if len(found.keys) > 1 else None)

    def due(self) -> list[tuple[str, TableName]]:
        """Return the tables whose mirror is to be rebuilt."""
        return [(row[0], name_of(row[1])) for row in self._database.fetch_all(_DUE, {})]

    def request(self, warehouse: str, table: TableName, why: str, *, is_needed: bool) -> None:
        """Request a rebuild. If it is needed, nothing lands until it is done, even if it fails."""
        values = {"rebuild": why, "is_needed": is_needed, "requested_ms": _now_ms(), "rebuild_error": None}
        self._set(warehouse, table, values)

    def rekey(self, warehouse: str, mirror: TableName, keys: Sequence[tuple[str, ...]], key: Key) -> None:
        """Rebuild a mirror with another key; `keys` are its earlier keys."""
        why = f"the key is {', '.join(key.columns)} now, not {', '.join(keys[-1])} ({key.reason})"
        values = {
            "key_history": orjson.dumps([*keys, key.columns]).decode(),
            "key_reason": key.reason,
            "rebuild": why,
            "is_needed": True,
            "requested_ms": _now_ms(),
            "rebuild_error": None,
        }
        self._set(warehouse, mirror, values)

    def fail(self, mirror: Mirror, error: str) -> None:
        """Record a rebuild that is not possible. If the mirror is correct without it, landing continues."""
        kept = mirror.rebuild if mirror.is_needed else None
        self._set(mirror.warehouse, mirror.table, {"rebuild": kept, "rebuild_error": error[:1000]})

    def cancel(self, warehouse: str, table: TableName) -> None:
        self._set(warehouse, table, {"rebuild": None, "is_needed": False, "rebuild_error": None})

    def _set(self, warehouse: str, table: TableName, values: dict[str, Any]) -> None:
        where = {"w": warehouse, "t": key_of(table)}

        def work(connection: sa.Connection) -> None:
            connection.execute(_ENSURE, where)
            connection.execute(sa.update(landing_mirrors).where(*_of_table).values(**values), where)

        self._database.write(work)


def request(connection: sa.Connection, warehouse: str, table: TableName, why: str) -> None:
    """Request a needed rebuild inside a transaction."""
    where = {"w": warehouse, "t": key_of(table)}
    connection.execute(_ENSURE, where)
    values = {"rebuild": why, "is_needed": True, "requested_ms": _now_ms(), "rebuild_error": None}
    connection.execute(sa.update(landing_mirrors).where(*_of_table).values(**values), where)


def note(
    connection: sa.Connection,
    warehouse: str,
    step: TableAdvance,
    number: int,
    added: tuple[Snapshot | None, Snapshot | None],
    metrics: Mapping[str, Any],
    *,
    is_rebuild: bool,
) -> None:
    """Update the row of a mirror inside a publish, before the table advances. `added` are the snapshots of
    the mirror and of the changes table.
    """
    if is_rebuild:
        note_rebuild(connection, warehouse, step, number)
        return
    facts = _facts_of(metrics, step.table)
    clashes = facts.get("clashes")
    note_batch(
        connection,
        warehouse,
        replace(step, doubt=LOST) if facts.get("lost") else step,
        mirror=added[0],
        changes=added[1],
        clashes=clashes if isinstance(clashes, dict) else None,
    )


def _facts_of(metrics: Mapping[str, Any], table: TableName) -> dict[str, Any]:
    """Return what a worker reports of one table."""
    tables = metrics.get("tables")
    facts = tables.get(".".join(table)) if isinstance(tables, dict) else None
    return facts if isinstance(facts, dict) else {}


def note_batch(
    connection: sa.Connection,
    warehouse: str,
    step: TableAdvance,
    *,
    mirror: Snapshot | None,
    changes: Snapshot | None,
    clashes: Mapping[str, Any] | None = None,
) -> None:
    """Update the row of a mirror for a batch, inside its publish, before the table advances. `clashes` are
    inserts that contradict a guessed key, as the worker reports them.
    """
    if not step.events:
        return
    where = {"w": warehouse, "t": key_of(step.table)}
    row = connection.execute(_ONE, where).fetchone()
    if row is None:
        connection.execute(_ENSURE, where)
    known = _mirror(tuple(row)) if row is not None else None
    has_landed = connection.execute(_NUMBER, where).scalar() is not None
    rows, gap = _counted(known, step, has_landed=has_landed, mirror=mirror, changes=changes)
    keys = known.keys if known is not None else ()
    if step.key and (not keys or keys[-1] != step.key):
        keys = (*keys, step.key)
    values: dict[str, Any] = {
        "changes_rows": rows,
        "gap": gap,
        "key_history": orjson.dumps(keys).decode(),
        "key_reason": step.key_reason,
    }
    if step.resync is not None or step.doubt is not None:
        values["doubt"] = step.doubt  # a resync replaces all rows
    if is_guess(step.key_reason):
        values |= _key_evidence(known, step, clashes or {}, keys, gap)
    connection.execute(sa.update(landing_mirrors).where(*_of_table).values(**values), where)


def _key_evidence(
    known: Mirror | None,
    step: TableAdvance,
    clashes: Mapping[str, Any],
    keys: tuple[tuple[str, ...], ...],
    gap: str | None,
) -> dict[str, Any]:
    """Correct a guessed key that is contradicted, or record a doubt about the mirror."""
    before = Evidence.of(orjson.loads(known.evidence)) if known is not None and known.evidence else Evidence()
    clashed = Evidence.of({"clashes": clashes.get("differing", ()), "clash-count": clashes.get("count", 0)})
    evidence = before + Evidence.of(step.evidence or {}) + clashed
    values: dict[str, Any] = {"evidence": orjson.dumps(evidence.as_json()).decode()}
    contradiction = find_contradiction(step.key, evidence, step.columns)
    if contradiction is None:
        return values
    if not contradiction.key:
        return values | {"doubt": contradiction.reason}
    if gap is not None:
        return values | {
            "doubt": f"{contradiction.reason}. It cannot be rebuilt from its changes table: {gap}"
        }
    return values | {
        "key_history": orjson.dumps((*keys, contradiction.key)).decode(),
        "key_reason": contradiction.reason,
        "doubt": contradiction.reason,
        "rebuild": contradiction.reason,
        "is_needed": True,
        "requested_ms": _now_ms(),
        "rebuild_error": None,
    }


def _counted(
    known: Mirror | None,
    step: TableAdvance,
    *,
    has_landed: bool,
    mirror: Snapshot | None,
    changes: Snapshot | None,
) -> tuple[int, str | None]:
    """Return the number of rows of the changes table, and why it lacks changes, if it does."""
    rows = known.changes_rows if known is not None else 0
    gap = known.gap if known is not None else UNCOUNTED if has_landed else None
    begins_anew = changes is not None and changes.is_first and (mirror is None or mirror.is_first)
    if begins_anew:
        rows, gap = 0, None
    elif not has_landed and mirror is not None and not mirror.is_first:
        gap = OLDER_ROWS
    if not step.keeps_changes:
        return rows, gap or NOT_KEPT
    if changes is None:
        return rows, gap
    if step.resync is not None:  # it begins with a truncate, so earlier changes do not matter
        return changes.total_rows, None
    if changes.total_rows - changes.added_rows != rows:
        gap = gap or OTHERS
    return changes.total_rows, gap


def note_rebuild(connection: sa.Connection, warehouse: str, step: TableAdvance, number: int) -> None:
    """Update the row of a mirror for a rebuild, inside its publish."""
    where = {"w": warehouse, "t": key_of(step.table)}
    row = connection.execute(_ONE, where).fetchone()
    keys = _mirror(tuple(row)).keys if row is not None else ()
    if not keys or keys[-1] != step.key:
        keys = (*keys, step.key)
    values = {
        "key_history": orjson.dumps(keys).decode(),
        "key_reason": step.key_reason,
        "doubt": None,
        "rebuilt_why": landing_mirrors.c.rebuild,
        "rebuilt_ms": _now_ms(),
        "rebuilt_number": number,
        "rebuild": None,
        "is_needed": False,
        "rebuild_error": None,
    }
    connection.execute(sa.update(landing_mirrors).where(*_of_table).values(**values), where)


def _mirror(row: Any) -> Mirror:
    warehouse, key, rows, gap, keys, *rest = row
    return Mirror(warehouse, name_of(key), rows, gap, tuple(map(tuple, orjson.loads(keys))), *rest)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


# -- a mirror that others rolled back, emptied or dropped. Staging checks it before it makes files, and the
# server again before it gives a worker the state of a table: the mirror may have changed in between.

_REMEDY = (
    "its changes wait. `calve table rebuild {table}` brings its rows back and lands them; "
    "`calve table settings {table} mirror-changed=accept` lands them in the mirror as it is"
)


def why_paused(
    landed: LandedTable, mirror: Mapping[str, Any] | None, changes: Mapping[str, Any] | None
) -> str | None:
    """Return why nothing may land in a mirror: it is not the one that the last batch left. None if it is.

    `mirror` and `changes` are the metadata of the two tables. Later snapshots of other writers are allowed,
    such as compaction. An expired snapshot cannot be found.
    """
    if landed.rebuild is not None:
        return f"the mirror is going to be rebuilt: {landed.rebuild}"
    known, settings = landed.mirror_snapshot_id, landed.settings
    if known is None or settings.mirror_changed == "accept" or settings.mode == "changes":
        return None
    remedy = _REMEDY.format(table=".".join(landed.table))
    if mirror is None:
        # If its changes table is missing too, the table begins anew.
        begin = f"; or drop {landed.table[-1]}{CHANGES_SUFFIX} too, and it begins anew"
        return None if changes is None else f"the mirror was dropped: {remedy}{begin}"
    current = mirror.get("current-snapshot-id")
    if current in (None, -1):
        return f"the mirror was emptied or made anew: {remedy}"
    parents = {
        snapshot["snapshot-id"]: snapshot.get("parent-snapshot-id")
        for snapshot in mirror.get("snapshots") or ()
    }
    if known not in parents:
        return None
    while current is not None and current != known:
        current = parents.get(current)
    return None if current == known else f"the mirror was rolled back: {remedy}"
