"""Where a batch may end: at an id that splits no source transaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import sqlalchemy as sa

from catalog.store.database import Database
from ingest.change import TableName, table_key
from ingest.journal import table_groups
from ingest.journal.schema import entries
from ingest.journal.transactions import SourceTransaction, transactions_between, transactions_up_to

ForbiddenRange = tuple[
    int, int | None
]  # a cut at an id inside (both ends included) is not allowed; None: no end yet


def forbidden_cuts(
    found: Iterable[SourceTransaction], tables: frozenset[str], now_ms: int, linger_ms: int, wait_ms: int = 0
) -> list[ForbiddenRange]:
    """The cuts that transactions which touch these tables do not allow."""
    spans: list[ForbiddenRange] = []
    for one in found:
        if one.first_id == 0 or tables.isdisjoint(one.tables):
            continue
        if one.is_open_at(now_ms, linger_ms, wait_ms):
            spans.append((one.first_id, None))
        elif one.first_id < one.last_id:
            spans.append((one.first_id, one.last_id - 1))
    return spans


def cut_at_or_below(up_to: int, spans: Iterable[ForbiddenRange]) -> int:
    """The largest id that is not behind `up_to` and allowed."""
    border = up_to
    for first, last in sorted(spans, key=lambda span: span[0], reverse=True):
        if first <= border and (last is None or border <= last):
            border = first - 1
    return border


def cut_at_or_above(up_to: int, spans: Iterable[ForbiddenRange]) -> int | None:
    """The smallest id that is not before `up_to` and allowed; None if something there has no end yet."""
    border = up_to
    for first, last in sorted(spans, key=lambda span: span[0]):
        if first > border:
            break
        if last is None:
            return None
        border = max(border, last + 1)
    return border


_NEXT = sa.select(sa.func.min(entries.c.id)).where(
    entries.c.warehouse == sa.bindparam("w"),
    entries.c.table_key == sa.bindparam("t"),
    entries.c.id > sa.bindparam("after"),
)


def cut_point(
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
    found = cut_at_or_below(up_to, spans)
    if found >= first:
        return found
    wanted = up_to
    while True:
        above = cut_at_or_above(wanted, spans)
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
) -> list[ForbiddenRange]:
    rows = transactions_between(database, warehouse, min(starts.values()), up_to)
    pending = [one for one in rows if any(one.last_id > starts[key] for key in one.tables if key in starts)]
    return forbidden_cuts(pending, frozenset(starts), now_ms, linger_ms, wait_ms)


def landed_transactions(
    database: Database, warehouse: str, up_to: int, now_ms: int, linger_ms: int, wait_ms: int = 0
) -> list[SourceTransaction]:
    """Source transactions that end at or before an id, are complete, and have nothing left in the journal.

    Only among the oldest: what a table that does not land holds back may wait for it.
    """
    rows = transactions_up_to(database, warehouse, up_to)
    left = _left(database, warehouse, (one.tables for one in rows))
    return [
        one
        for one in rows
        if not _waits(one.tables, one.last_id, left) and not one.is_open_at(now_ms, linger_ms, wait_ms)
    ]


def landed_groups(database: Database, warehouse: str, up_to: int) -> list[tuple[frozenset[str], int, int]]:
    """Rows of table groups that end at or before an id and have nothing left in the journal."""
    rows = table_groups.oldest(database, warehouse, up_to)
    left = _left(database, warehouse, (tables for tables, _, _ in rows))
    return [row for row in rows if not _waits(row[0], row[1], left)]


def _left(database: Database, warehouse: str, sets: Iterable[Collection[str]]) -> dict[str, int | None]:
    """The first id that the journal has of each table."""
    keys = {key for tables in sets for key in tables}
    found = {key: database.fetch_one(_NEXT, {"w": warehouse, "t": key, "after": 0}) for key in keys}
    return {key: row[0] if row is not None else None for key, row in found.items()}


def _waits(tables: Collection[str], last_id: int, left: Mapping[str, int | None]) -> bool:
    return any((first := left[key]) is not None and first <= last_id for key in tables)


def first_behind(database: Database, warehouse: str, table: TableName, after: int) -> int | None:
    """The first id of a table behind another."""
    row = database.fetch_one(_NEXT, {"w": warehouse, "t": table_key(table), "after": after})
    return row[0] if row is not None else None
