"""Read what a commit of the warehouse changed: from the history, and from the changes tables.

A publish of ingest appends a snapshot to the changes table of each table, under one number. These functions
block: they read SQL and files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from catalog.errors import FileNotFound, NoSuchTable, NoSuchWarehouse
from catalog.names import Identifier, Namespace
from catalog.services.catalog import Catalog
from ingest.store.jobs import PublishPlan
from ingest.store.schema import jobs
from ingest.store.tables import CHANGES_SUFFIX, REJECTS_SUFFIX
from query.feed.errors import MustRefetch
from query.feed.order import change_order

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

    from query.tables.access import TableAccess, TableOpener

GONE_ERRORS = (FileNotFound, NoSuchTable, NoSuchWarehouse, MustRefetch)
ROWS_MAX = 1_000_000  # of one table in one publish
GONE = (
    "The changes after this token are no longer all there: they were expired, or the warehouse was created "
    "or restored anew. Read the tables again (snapshot=true) and go on from there"
)
ADVICE = "one publish has more changes than this; use /query"
REPLACE = "replace"  # the operation of a snapshot that has the same rows in other files
RESET = "Its rows were changed by another way than /cdc: read the table again at this number"
DROPPED = "It was dropped or renamed"


@dataclass(frozen=True, slots=True)
class ChangedTable:
    """A table whose changes table got new snapshots."""

    levels: tuple[str, ...]  # of the table itself
    uuid: str  # of its changes table
    snapshot_ids: tuple[int, ...]

    @property
    def key(self) -> str:
        return "\x1f".join(self.levels)

    @property
    def name(self) -> str:
        return ".".join(self.levels)


@dataclass(frozen=True, slots=True)
class TableReset:
    """A table whose rows changed without entries in its changes table."""

    levels: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Publish:
    """One commit of the warehouse, as subscribers see it."""

    number: int
    time_ms: int
    tables: tuple[ChangedTable, ...]  # by key
    resets: tuple[TableReset, ...]


@dataclass(frozen=True, slots=True)
class TableChanges:
    """The changes of one table in one publish, in order."""

    rows: pa.Table
    schema: Schema
    names: dict[str, str]  # of the columns that ingest adds


def read_publishes(catalog: Catalog, opener: TableOpener, warehouse: str, after: int) -> list[Publish]:
    """Return the commits after a number, at most `CHUNK_COMMITS`. MustRefetch if the history begins later."""
    rows: dict[int, list[dict[str, Any]]] = {}
    for row in catalog.history.events(warehouse, after, CHUNK_COMMITS):
        rows.setdefault(row["number"], []).append(row)
    if rows and min(rows) != after + 1:
        raise MustRefetch(GONE)
    return [_publish(opener, warehouse, number, found) for number, found in sorted(rows.items())]


CHUNK_COMMITS = 200


def _publish(opener: TableOpener, warehouse: str, number: int, rows: Sequence[dict[str, Any]]) -> Publish:
    tables = {(row["namespace"], row["name"]): row for row in rows if row["kind"] == "table"}
    changed, resets = [], []
    for (namespace, name), row in sorted(tables.items()):
        levels = (*Namespace.from_key(namespace).levels, name.removesuffix(CHANGES_SUFFIX))
        added = row["detail"].get("added-snapshots", ())
        if name.endswith(CHANGES_SUFFIX):
            if added and row["present"]:
                changed.append(ChangedTable(levels, row["uuid"], tuple(added)))
        elif not name.endswith(REJECTS_SUFFIX) and (namespace, name + CHANGES_SUFFIX) not in tables:
            reason = _reset(opener, warehouse, number, levels, row)
            if reason is not None:
                resets.append(TableReset(levels, reason))
    return Publish(number, int(rows[0]["time_ms"]), tuple(changed), tuple(resets))


def _reset(
    opener: TableOpener, warehouse: str, number: int, levels: tuple[str, ...], row: dict[str, Any]
) -> str | None:
    """Return why a table with a changes table must be read again after a commit; None if it need not be."""
    detail = row["detail"]
    operations = detail.get("snapshot-operations") or [None]
    is_moved = "set-snapshot-ref" in detail.get("updates", ())
    is_rewrite = all(operation == REPLACE for operation in operations)
    if row["present"] and (not is_moved or is_rewrite):
        return None  # its properties, its schema, or the same rows in other files
    if not _was_followed(changes_access(opener, warehouse, levels), number):
        return None
    return RESET if row["present"] else DROPPED


def _was_followed(changes: TableAccess, number: int) -> bool:
    """Return whether there was a changes table before or after a commit."""
    try:
        return changes.exists_at(number - 1) or changes.exists_at(number)
    except NoSuchWarehouse:  # no moment before it is kept
        return changes.exists_now()


def changes_access(opener: TableOpener, warehouse: str, levels: tuple[str, ...]) -> TableAccess:
    """Return the changes table of a table."""
    return opener.access(warehouse, _identifier(levels)).beside(CHANGES_SUFFIX)


def _identifier(levels: tuple[str, ...]) -> Identifier:
    return Identifier(Namespace(levels[:-1]), levels[-1])


def read_changes(
    catalog: Catalog, opener: TableOpener, warehouse: str, publish: Publish, changed: ChangedTable
) -> TableChanges:
    """Return the changes of one table. MustRefetch if they were deleted."""
    import pyarrow as pa

    from query.tables.keys import settings_of

    access = opener.access(warehouse, _identifier(changed.levels))
    names = dict(settings_of(access).names)
    changes = access.beside(CHANGES_SUFFIX)
    try:
        table = changes.at(publish.number)
        parts = [part for id_ in changed.snapshot_ids for part in _appended(table, id_)]
    except GONE_ERRORS:  # the snapshots are expired; the rows may still exist
        try:
            table = changes.current()
            parts = _published_at(catalog, table, warehouse, publish, changed, names)
        except GONE_ERRORS as error:
            raise MustRefetch(GONE) from error
    empty = table.schema().as_arrow().empty_table()
    whole = pa.concat_tables([empty, *parts], promote_options="permissive")
    order = change_order([part.num_rows for part in parts], whole, names)
    return TableChanges(whole if order is None else whole.take(order), table.schema(), names)


def _appended(table: Table, snapshot_id: int) -> list[pa.Table]:
    """Return the rows that a snapshot added, one part for each file."""
    from query.tables.reading import planned, read_within

    snapshot = table.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise MustRefetch(GONE)
    if snapshot.summary is None or snapshot.summary.operation.value != "append":
        return []  # a compaction: the same rows in other files
    scan = table.incremental_append_scan().to_snapshot_id_inclusive(snapshot_id)
    if snapshot.parent_snapshot_id is not None:
        scan = scan.from_snapshot_id_exclusive(snapshot.parent_snapshot_id)
    return [read_within(scan, [task], ROWS_MAX, ADVICE) for task in planned(scan)]


def _published_at(
    catalog: Catalog,
    table: Table,
    warehouse: str,
    publish: Publish,
    changed: ChangedTable,
    names: dict[str, str],
) -> list[pa.Table]:
    """Return the rows of a publish by the commit timestamp of its job, one part for each file."""
    from pyiceberg.expressions import EqualTo, Reference
    from pyiceberg.expressions.literals import literal

    from query.tables.reading import planned, read_within

    commit_us = _commit_us(catalog, warehouse, publish.number, changed.levels)
    if commit_us is None or str(table.metadata.table_uuid) != changed.uuid:
        raise MustRefetch(GONE)
    stamp = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=commit_us)
    is_of_publish = EqualTo(term=Reference(names["commit-timestamp"]), value=literal(stamp.isoformat()))
    scan = table.scan(row_filter=is_of_publish)
    parts = [read_within(scan, [task], ROWS_MAX, ADVICE) for task in planned(scan)]
    if not any(part.num_rows for part in parts):
        raise MustRefetch(GONE)
    return parts


def _commit_us(catalog: Catalog, warehouse: str, number: int, levels: tuple[str, ...]) -> int | None:
    """Return the commit timestamp of the batch that a number published; None if the job was deleted."""
    found = sa.select(jobs.c.landing).where(
        jobs.c.state == "done", jobs.c.warehouse == warehouse, jobs.c.number == number
    )
    for (landing,) in catalog.database.fetch_all(found):
        batch = PublishPlan.decode(landing)
        if any(step.table == levels for step in batch.steps):
            return batch.commit_us
    return None
