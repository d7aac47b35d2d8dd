"""What waits in the journal: how much, up to where a cut may go, and the changes themselves.

Everything here reads committed rows. Ids are handed out in commit order, so whoever has seen one has seen all
below it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson
import sqlalchemy as sa

from catalog.store.database import Database
from ingest.change import TableName
from ingest.journal import borders, spanning
from ingest.journal.encoding import decode
from ingest.journal.keys import table_key, table_name
from ingest.journal.receipts import Entry, Pending
from ingest.journal.schema import entries
from ingest.journal.transactions import Spanning

ENTRIES_AT_A_TIME = 64
SIZES_AT_A_TIME = 4_096

_of_table = (entries.c.warehouse == sa.bindparam("w"), entries.c.table_key == sa.bindparam("t"))
_inside = (*_of_table, entries.c.id > sa.bindparam("after"), entries.c.id <= sa.bindparam("up_to"))
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
    sa.select(entries.c.id, entries.c.received_ms, entries.c.events, entries.c.skips, entries.c.blob)
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
_NEXT = sa.select(sa.func.min(entries.c.id)).where(*_of_table, entries.c.id > sa.bindparam("after"))


def pending(database: Database, warehouse: str) -> list[Pending]:
    """Each table that has something in the journal."""
    return [
        Pending(table_name(row[0]), int(row[1]), int(row[2]), row[3], row[4], row[5])
        for row in database.fetch_all(_PENDING, {"w": warehouse})
    ]


def read(
    database: Database, warehouse: str, table: TableName, after: int, up_to: int, events_max: int | None
) -> Iterator[Entry]:
    """The entries in (after, up_to], oldest first; it ends with the one that reaches `events_max`."""
    events = 0
    while True:
        params = {"w": warehouse, "t": table_key(table), "after": after, "up_to": up_to}
        rows = database.fetch_all(_READ, params)
        for journal_id, received_ms, count, skips, blob in rows:
            changes, rejects = decode(blob, table, orjson.loads(skips) if skips else ())
            yield Entry(journal_id, received_ms, changes, rejects)
            events += count
            if events_max is not None and events >= events_max:
                return
            after = journal_id
        if len(rows) < ENTRIES_AT_A_TIME:
            return


def reach(
    database: Database,
    warehouse: str,
    after: Mapping[TableName, int],
    up_to: int,
    events_max: int,
    bytes_max: int | None,
) -> int:
    """The largest id up to which these tables together have at most so many events and bytes; at least the
    first that any of them has. `up_to` if all of it fits. Reads no blobs.
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


def size(database: Database, warehouse: str, after: Mapping[TableName, int], up_to: int) -> tuple[int, int]:
    """Events and bytes of these tables, each behind its own id."""
    events = stored_bytes = 0
    for table, start in after.items():
        params = {"w": warehouse, "t": table_key(table), "after": start, "up_to": up_to}
        row = database.fetch_one(_SIZE, params) or (0, 0)
        events, stored_bytes = events + int(row[0] or 0), stored_bytes + int(row[1] or 0)
    return events, stored_bytes


def _sizes(
    database: Database, warehouse: str, table: TableName, after: int, up_to: int, events_max: int
) -> Iterator[Any]:
    """Of one table, until it alone is more than enough."""
    events = 0
    while events <= events_max:
        params = {"w": warehouse, "t": table_key(table), "after": after, "up_to": up_to}
        rows = database.fetch_all(_SIZES, params)
        yield from rows
        if len(rows) < SIZES_AT_A_TIME:
            return
        events += sum(row[1] for row in rows)
        after = rows[-1][0]


def border(
    database: Database,
    warehouse: str,
    after: Mapping[TableName, int],
    up_to: int,
    *,
    now_ms: int,
    linger_ms: int,
    wait_ms: int = 0,
) -> int:
    """Where to cut these tables, each of which has landed up to the id in `after`.

    The largest id up to `up_to` that splits no source transaction. If that leaves nothing to take although a
    transaction is complete, the smallest id behind `up_to` that does: a transaction larger than a batch goes
    whole. The least of `after` if there is nothing that may be cut.
    """
    nothing = min(after.values(), default=0)
    starts = {table_key(table): start for table, start in after.items()}
    first = min((id_ for id_ in _firsts(database, warehouse, starts)), default=None)
    if first is None or first > up_to:
        return nothing
    spans = _forbidden(database, warehouse, starts, up_to, now_ms, linger_ms, wait_ms)
    found = borders.at_or_below(up_to, spans)
    if found >= first:
        return found
    wanted = up_to
    while True:
        above = borders.at_or_above(wanted, spans)
        if above is None:
            return nothing
        if above == wanted:
            return above
        wanted = above
        spans = _forbidden(database, warehouse, starts, wanted, now_ms, linger_ms, wait_ms)


def _firsts(database: Database, warehouse: str, starts: Mapping[str, int]) -> Iterator[int]:
    """The next id of each table."""
    for key, after in starts.items():
        row = database.fetch_one(_NEXT, {"w": warehouse, "t": key, "after": after})
        if row is not None and row[0] is not None:
            yield row[0]


def _forbidden(
    database: Database,
    warehouse: str,
    starts: Mapping[str, int],
    up_to: int,
    now_ms: int,
    linger_ms: int,
    wait_ms: int,
) -> list[borders.Span]:
    rows = spanning.between(database, warehouse, min(starts.values()), up_to)
    pending = [one for one in rows if any(one.last_id > starts[key] for key in one.tables if key in starts)]
    return borders.forbidden(pending, frozenset(starts), now_ms, linger_ms, wait_ms)


def transactions_landed(
    database: Database, warehouse: str, up_to: int, now_ms: int, linger_ms: int, wait_ms: int = 0
) -> list[Spanning]:
    """Source transactions that end at or before an id, are complete, and have nothing left in the journal.

    Only among the oldest: what a table that does not land holds back may wait for it.
    """
    left: dict[str, int | None] = {}
    found = []
    for one in spanning.up_to(database, warehouse, up_to):
        for key in one.tables:
            if key not in left:
                row = database.fetch_one(_NEXT, {"w": warehouse, "t": key, "after": 0})
                left[key] = row[0] if row is not None else None
        waits = any(((first := left[key]) is not None and first <= one.last_id) for key in one.tables)
        if not waits and not one.is_open_at(now_ms, linger_ms, wait_ms):
            found.append(one)
    return found
