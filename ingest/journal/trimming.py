"""Forgetting what has landed, and what is too old to matter, in small steps that appends pass between."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import sqlalchemy as sa

from catalog import faults
from catalog.store.database import Database
from ingest.change import TableName
from ingest.journal import heads, reading, spanning
from ingest.journal.keys import table_key
from ingest.journal.schema import companions, dead_letters, entries, marks, ranges, transactions
from ingest.journal.statements import among, listed

ENTRIES_AT_A_TIME = 500
MARKS_AT_A_TIME = 200
SILENT_ENDS_MS = 60_000  # an announced end whose changes never came is forgotten after this

_landed = (
    entries.c.warehouse == sa.bindparam("w"),
    entries.c.table_key == sa.bindparam("t"),
)
_OLDEST = (
    sa.select(entries.c.id, entries.c.events, entries.c.stored_bytes)
    .where(*_landed, entries.c.id <= sa.bindparam("up_to"))
    .order_by(entries.c.id)
    .limit(ENTRIES_AT_A_TIME)
)
_DELETE = sa.delete(entries).where(
    *_landed, entries.c.id >= sa.bindparam("first"), entries.c.id <= sa.bindparam("last")
)
_EXPIRED = (
    sa.select(marks.c.warehouse, marks.c.id)
    .where(marks.c.expires_ms <= sa.bindparam("now"))
    .order_by(marks.c.expires_ms)
    .limit(MARKS_AT_A_TIME)
)
_DELETE_MARKS = sa.delete(marks).where(marks.c.warehouse == sa.bindparam("w"), among(marks.c.id, "ids"))


def trim(
    database: Database,
    warehouse: str,
    landed: Mapping[TableName, int],
    now_ms: int,
    linger_ms: int,
    wait_ms: int = 0,
) -> None:
    """Forget the entries of each table up to its id, then the source transactions that are all landed."""
    for table, up_to in landed.items():
        while database.write(lambda connection, t=table, u=up_to: _trim(connection, warehouse, t, u)):  # type: ignore[misc]
            faults.reach("journal.trimmed-some")
    newest = max(landed.values(), default=0)
    while gone := reading.transactions_landed(database, warehouse, newest, now_ms, linger_ms, wait_ms):
        database.write(lambda connection, rows=gone: spanning.delete_unchanged(connection, warehouse, rows))  # type: ignore[misc]
    faults.reach("journal.trimmed")


def _trim(connection: sa.Connection, warehouse: str, table: TableName, up_to: int) -> bool:
    """One step; whether more may be left. The head is locked first, as in an append."""
    heads.lock(connection, warehouse)
    where = {"w": warehouse, "t": table_key(table)}
    rows = connection.execute(_OLDEST, where | {"up_to": up_to}).fetchall()
    if not rows:
        return False
    connection.execute(_DELETE, where | {"first": rows[0][0], "last": rows[-1][0]})
    heads.advance(connection, warehouse, 0, -sum(row[1] for row in rows), -sum(row[2] for row in rows))
    return len(rows) == ENTRIES_AT_A_TIME


def forget_warehouse(database: Database, warehouse: str, is_gone: Callable[[], bool]) -> int:
    """Delete what the journal holds of a warehouse that was dropped; how many events that were.

    `is_gone` is asked while no append can commit. The counter stays: a new warehouse of the same name goes on
    counting, so that its ids are above all that was ever landed.
    """

    def work(connection: sa.Connection) -> int:
        head = heads.lock(connection, warehouse)
        if not is_gone():
            return 0
        for table in (entries, marks, ranges, transactions, companions, dead_letters):
            connection.execute(sa.delete(table).where(table.c.warehouse == warehouse))
        heads.advance(connection, warehouse, 0, -head.events, -head.stored_bytes)
        return head.events

    return database.write(work)


def sweep(database: Database, now_ms: int) -> None:
    """Forget identities whose window is over, and announced ends whose changes never came."""
    while database.write(lambda connection: _sweep_marks(connection, now_ms)):
        faults.reach("journal.swept-some")
    database.write(lambda connection: spanning.delete_empty(connection, now_ms - SILENT_ENDS_MS))


def _sweep_marks(connection: sa.Connection, now_ms: int) -> bool:
    rows = connection.execute(_EXPIRED, {"now": now_ms}).fetchall()
    by_warehouse: dict[str, list[int]] = {}
    for warehouse, journal_id in rows:
        by_warehouse.setdefault(warehouse, []).append(journal_id)
    for warehouse, ids in sorted(by_warehouse.items()):
        connection.execute(_DELETE_MARKS, {"w": warehouse, "ids": listed(connection, ids)})
    return len(rows) == MARKS_AT_A_TIME
