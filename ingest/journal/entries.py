"""The entries of the journal in SQL: the counter of each warehouse, reading, sizes, trimming.

Readers see committed rows only. Ids are assigned in commit order, so a reader that has seen one has seen all
smaller ones. Trimming works in small steps, and appends run between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson
import sqlalchemy as sa

from catalog import faults
from catalog.store.database import Database
from ingest.change import Change, TableName, table_key, table_name
from ingest.journal import table_groups
from ingest.journal.encoded_request import name_key, put_in_epoch
from ingest.journal.encoding import decode
from ingest.journal.receipts import JournalEntry, Pending
from ingest.journal.schema import (
    counters,
    dead_letters,
    entries,
)
from ingest.journal.table_groups import landed_groups, landed_transactions
from ingest.journal.transactions import (
    delete_unchanged_transactions,
)

_of_warehouse = counters.c.warehouse == sa.bindparam("w")
_LOCK = sa.select(counters.c.id, counters.c.events, counters.c.bytes).where(_of_warehouse).with_for_update()
_CREATE = sa.text(
    "INSERT INTO journal_heads (warehouse, id, events, bytes) VALUES (:w, 0, 0, 0) ON CONFLICT DO NOTHING"
)
_ADVANCE = (
    sa.update(counters)
    .where(_of_warehouse)
    .values(
        id=counters.c.id + sa.bindparam("ids"),
        events=counters.c.events + sa.bindparam("more_events"),
        bytes=counters.c.bytes + sa.bindparam("more_bytes"),
    )
    .returning(counters.c.id, counters.c.events, counters.c.bytes)
)
_SET_TRIMMED = (
    sa.update(counters)
    .where(
        _of_warehouse,
        sa.or_(
            counters.c.trimmed_id < sa.bindparam("trimmed"),
            sa.bindparam("trimmed", type_=sa.BigInteger) == 0,
        ),
    )
    .values(trimmed_id=sa.bindparam("trimmed"))
)
_TRIMMED = sa.select(counters.c.trimmed_id).where(_of_warehouse)
_SUM = sa.select(
    sa.func.coalesce(sa.func.sum(counters.c.events), 0), sa.func.coalesce(sa.func.sum(counters.c.bytes), 0)
)
_HELD = sa.select(counters.c.warehouse).where(sa.or_(counters.c.events > 0, counters.c.bytes > 0))
_NEWEST = sa.select(counters.c.id).where(_of_warehouse)


@dataclass(frozen=True, slots=True)
class Counter:
    """The newest id of a warehouse, and how much of it is pending."""

    id: int
    events: int
    stored_bytes: int


def lock_counter(connection: sa.Connection, warehouse: str) -> Counter:
    """Lock the counter until the end of the transaction. In SQLite, write transactions run one at a time."""
    params = {"w": warehouse}
    row = connection.execute(_LOCK, params).fetchone()
    if row is None:
        connection.execute(_CREATE, params)
        row = connection.execute(_LOCK, params).one()
    return Counter(row[0], row[1], row[2])


def advance_counter(
    connection: sa.Connection, warehouse: str, ids: int, events: int, stored_bytes: int
) -> Counter:
    """Change the ids, events and bytes of a warehouse; the counter must be locked."""
    params = {"w": warehouse, "ids": ids, "more_events": events, "more_bytes": stored_bytes}
    row = connection.execute(_ADVANCE, params).one()
    return Counter(row[0], row[1], row[2])


def pending_in_transaction(connection: sa.Connection) -> tuple[int, int]:
    """Return the events and bytes that are pending in all warehouses."""
    row = connection.execute(_SUM).one()
    return int(row[0]), int(row[1])


def pending_totals(database: Database) -> tuple[int, int]:
    """The same outside a transaction."""
    row = database.fetch_all(_SUM)[0]
    return int(row[0]), int(row[1])


def newest_id(database: Database, warehouse: str) -> int:
    row = database.fetch_one(_NEWEST, {"w": warehouse})
    return row[0] if row is not None else 0


def warehouses(database: Database) -> list[str]:
    """Return all warehouses that have entries."""
    return [row[0] for row in database.fetch_all(_HELD, {})]


def set_trimmed(connection: sa.Connection, warehouse: str, trimmed_id: int) -> None:
    """Set the newest id that was deleted because it has landed; 0 resets it."""
    connection.execute(_SET_TRIMMED, {"w": warehouse, "trimmed": trimmed_id})


def trimmed_to(database: Database, warehouse: str) -> int:
    row = database.fetch_one(_TRIMMED, {"w": warehouse})
    return row[0] if row is not None else 0


# -- reading

ENTRIES_AT_A_TIME = 64
SIZES_AT_A_TIME = 4_096

_of_table = (entries.c.warehouse == sa.bindparam("w"), entries.c.table_key == sa.bindparam("t"))
_inside = (*_of_table, entries.c.id > sa.bindparam("after"), entries.c.id <= sa.bindparam("up_to"))
_BY_SOURCES = (
    sa.select(
        entries.c.table_key, entries.c.sources, sa.func.min(entries.c.id), sa.func.sum(entries.c.events)
    )
    .where(entries.c.warehouse == sa.bindparam("w"))
    .group_by(entries.c.table_key, entries.c.sources)
)
_PENDING = (
    sa.select(
        entries.c.table_key,
        sa.func.sum(entries.c.events),
        sa.func.sum(entries.c.stored_bytes),
        sa.func.min(entries.c.received_ms),
        sa.func.min(entries.c.id),
        sa.func.max(entries.c.id),
    )
    .where(entries.c.warehouse == sa.bindparam("w"))
    .group_by(entries.c.table_key)
)
_READ = (
    sa.select(
        entries.c.id,
        entries.c.received_ms,
        entries.c.events,
        entries.c.skips,
        entries.c.blob,
        entries.c.epochs,
    )
    .where(*_inside)
    .order_by(entries.c.id)
    .limit(ENTRIES_AT_A_TIME)
)
_SIZES = (
    sa.select(entries.c.id, entries.c.events, entries.c.stored_bytes)
    .where(*_inside)
    .order_by(entries.c.id)
    .limit(SIZES_AT_A_TIME)
)
_SIZE = sa.select(sa.func.sum(entries.c.events), sa.func.sum(entries.c.stored_bytes)).where(*_inside)


def pending_tables(database: Database, warehouse: str) -> list[Pending]:
    """Return each table that has entries in the journal."""
    return [
        Pending(table_name(row[0]), int(row[1]), int(row[2]), row[3], row[4], row[5])
        for row in database.fetch_all(_PENDING, {"w": warehouse})
    ]


def read_entries(
    database: Database, warehouse: str, table: TableName, after: int, up_to: int, events_max: int | None
) -> Iterator[JournalEntry]:
    """Return the entries in (after, up_to], oldest first. The last one is that which reaches `events_max`."""
    events = 0
    while True:
        params = {"w": warehouse, "t": table_key(table), "after": after, "up_to": up_to}
        rows = database.fetch_all(_READ, params)
        for journal_id, received_ms, count, skips, blob, epochs in rows:
            changes, rejects = decode(blob, table, orjson.loads(skips) if skips else ())
            if epochs:
                _put_in_epochs(changes, epochs)
            yield JournalEntry(journal_id, received_ms, changes, rejects)
            events += count
            if events_max is not None and events >= events_max:
                return
            after = journal_id
        if len(rows) < ENTRIES_AT_A_TIME:
            return


def _put_in_epochs(changes: Sequence[Change], text: str) -> None:
    epochs = {(source, origin): epoch for source, origin, epoch in orjson.loads(text)}
    for change in changes:
        epoch = epochs.get((name_key(change.source), change.origin), 0)
        if epoch:
            put_in_epoch(change, epoch)


def batch_end(
    database: Database,
    warehouse: str,
    after: Mapping[TableName, int],
    up_to: int,
    events_max: int,
    bytes_max: int | None,
) -> int:
    """Return the largest id up to which these tables together have at most this many events and bytes. It
    includes at least the first entry of any of them, and is `up_to` if everything fits. Reads no blobs.
    """
    sizes: dict[int, tuple[int, int]] = {}
    for table, start in after.items():
        for journal_id, events, stored_bytes in _sizes(database, warehouse, table, start, up_to, events_max):
            known = sizes.get(journal_id, (0, 0))
            sizes[journal_id] = (known[0] + events, known[1] + stored_bytes)
    events_sum = bytes_sum = 0
    last: int | None = None
    for journal_id, (events, stored_bytes) in sorted(sizes.items()):
        events_sum += events
        bytes_sum += stored_bytes
        if last is not None and (
            events_sum > events_max or (bytes_max is not None and bytes_sum > bytes_max)
        ):
            return last
        last = journal_id
    return up_to


def size_between(
    database: Database, warehouse: str, after: Mapping[TableName, int], up_to: int
) -> tuple[int, int]:
    """Return events and bytes of these tables, each after its own id."""
    events = stored_bytes = 0
    for table, start in after.items():
        params = {"w": warehouse, "t": table_key(table), "after": start, "up_to": up_to}
        row = database.fetch_one(_SIZE, params) or (0, 0)
        events, stored_bytes = events + int(row[0] or 0), stored_bytes + int(row[1] or 0)
    return events, stored_bytes


def _sizes(
    database: Database, warehouse: str, table: TableName, after: int, up_to: int, events_max: int
) -> Iterator[Any]:
    """Return the sizes of one table, until it alone exceeds the limit."""
    events = 0
    while events <= events_max:
        params = {"w": warehouse, "t": table_key(table), "after": after, "up_to": up_to}
        rows = database.fetch_all(_SIZES, params)
        yield from rows
        if len(rows) < SIZES_AT_A_TIME:
            return
        events += sum(row[1] for row in rows)
        after = rows[-1][0]


def pending_by_sources(database: Database, warehouse: str) -> list[tuple[TableName, str, int, int]]:
    """Return table, names of sources (see `has_source`), first id, events."""
    rows = database.fetch_all(_BY_SOURCES, {"w": warehouse})
    return [(table_name(row[0]), row[1] or "", row[2], int(row[3])) for row in rows]


# -- trimming

TRIMMED_AT_A_TIME = 500

_of_landed_table = (
    entries.c.warehouse == sa.bindparam("w"),
    entries.c.table_key == sa.bindparam("t"),
)
_OLDEST = (
    sa.select(entries.c.id, entries.c.events, entries.c.stored_bytes)
    .where(*_of_landed_table, entries.c.id <= sa.bindparam("up_to"))
    .order_by(entries.c.id)
    .limit(TRIMMED_AT_A_TIME)
)
_DELETE_ENTRIES = sa.delete(entries).where(
    *_of_landed_table, entries.c.id >= sa.bindparam("first"), entries.c.id <= sa.bindparam("last")
)


def trim_entries(
    database: Database,
    warehouse: str,
    landed: Mapping[TableName, int],
    now_ms: int,
    linger_ms: int,
    wait_ms: int = 0,
) -> None:
    """Delete the entries of each table up to its id, then the source transactions that have landed
    completely.
    """
    for table, up_to in landed.items():
        while database.write(partial(_trim_some, warehouse=warehouse, table=table, up_to=up_to)):
            faults.reach("journal.trimmed-some")
    newest = max(landed.values(), default=0)
    while gone := landed_transactions(database, warehouse, newest, now_ms, linger_ms, wait_ms):
        database.write(partial(delete_unchanged_transactions, warehouse=warehouse, gone=gone))
    while rows := landed_groups(database, warehouse, newest):
        database.write(partial(table_groups.delete, warehouse=warehouse, rows=rows))
    faults.reach("journal.trimmed")


def _trim_some(connection: sa.Connection, warehouse: str, table: TableName, up_to: int) -> bool:
    """Run one step. Returns whether more may be left. The counter is locked first, as in an append."""
    lock_counter(connection, warehouse)
    where = {"w": warehouse, "t": table_key(table)}
    rows = connection.execute(_OLDEST, where | {"up_to": up_to}).fetchall()
    if not rows:
        return False
    connection.execute(_DELETE_ENTRIES, where | {"first": rows[0][0], "last": rows[-1][0]})
    advance_counter(connection, warehouse, 0, -sum(row[1] for row in rows), -sum(row[2] for row in rows))
    set_trimmed(connection, warehouse, rows[-1][0])
    return len(rows) == TRIMMED_AT_A_TIME


# -- the dead letters of a published job

_OPEN_LETTERS = (
    sa.update(dead_letters)
    .where(dead_letters.c.job_id == sa.bindparam("job"), dead_letters.c.state == "staged")
    .values(state="open", changed_ms=sa.bindparam("now"))
)
# Letters of an attempt that was not published.
_DISCARD_OTHERS = sa.delete(dead_letters).where(
    dead_letters.c.warehouse == sa.bindparam("w"),
    dead_letters.c.table_key == sa.bindparam("t"),
    dead_letters.c.journal_id <= sa.bindparam("up_to"),
    dead_letters.c.state == "staged",
)


def open_letters(
    database: Database, job_id: str, warehouse: str, landed: Mapping[TableName, int], now_ms: int
) -> None:
    """Open the letters of a job that is published up to these journal ids."""

    def work(connection: sa.Connection) -> None:
        connection.execute(_OPEN_LETTERS, {"job": job_id, "now": now_ms})
        for table, up_to in landed.items():
            connection.execute(_DISCARD_OTHERS, {"w": warehouse, "t": table_key(table), "up_to": up_to})

    database.write(work)
