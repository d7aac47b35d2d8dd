"""Tables that share source transactions which have not landed, and the ids at which a batch may end.

A row of `shared` means that some transactions between two ids contain these tables. It is written with the
transactions, and deleted when all of them have landed: a transaction over all tables joins them for one
batch, not for ever. A batch ends at an id that splits no source transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import orjson
import sqlalchemy as sa

from catalog.store.database import Database
from catalog.store.statements import run_many
from ingest.change import TableName, table_key, table_name
from ingest.journal.schema import entries, shared, transactions

SETS_MAX = 64  # of one append; more are merged
ROWS_AT_A_TIME = 1_000

Tables = frozenset[str]  # their keys
Span = tuple[Tables, int, int]  # tables, the first id and the last

_of_warehouse = shared.c.warehouse == sa.bindparam("w")
_INSERT = sa.insert(shared)
_GROUPS = (
    sa.select(shared.c.tables, sa.func.min(shared.c.first_id), sa.func.max(shared.c.last_id))
    .where(_of_warehouse)
    .group_by(shared.c.tables)
)
_SPANS = sa.select(shared.c.tables, shared.c.first_id, shared.c.last_id).where(_of_warehouse)
_OLDEST = (
    sa.select(shared.c.tables, shared.c.last_id, shared.c.ordinal)
    .where(_of_warehouse, shared.c.last_id <= sa.bindparam("up_to"))
    .order_by(shared.c.last_id)
    .limit(ROWS_AT_A_TIME)
)
_DELETE = sa.delete(shared).where(
    _of_warehouse, shared.c.last_id == sa.bindparam("last"), shared.c.ordinal == sa.bindparam("o")
)


@dataclass(frozen=True, slots=True)
class SharedSpan:
    """Source transactions between two ids contain these tables."""

    tables: frozenset[TableName]
    first_id: int
    last_id: int


def merged(spans: Iterable[Span]) -> list[Span]:
    """Return one span for each set of tables; if there are many, one for each group of connected sets."""
    found: dict[Tables, tuple[int, int]] = {}
    for tables, first, last in spans:
        known = found.get(tables, (first, last))
        found[tables] = (min(first, known[0]), max(last, known[1]))
    rows = [(tables, first, last) for tables, (first, last) in found.items()]
    return rows if len(rows) <= SETS_MAX else _connected(rows)


def _connected(spans: Sequence[Span]) -> list[Span]:
    joined: list[Span] = []
    for tables, first, last in spans:
        touched = [one for one in joined if not one[0].isdisjoint(tables)]
        joined = [one for one in joined if one[0].isdisjoint(tables)]
        everything = [*touched, (tables, first, last)]
        joined.append(
            (
                frozenset().union(*(one[0] for one in everything)),
                min(one[1] for one in everything),
                max(one[2] for one in everything),
            )
        )
    return joined


def components(sets: Iterable[frozenset[TableName]]) -> list[frozenset[TableName]]:
    """Return the groups of tables that are connected by these sets; each table is in one group."""
    joined: list[frozenset[TableName]] = []
    for tables in sets:
        touched = [one for one in joined if not one.isdisjoint(tables)]
        joined = [one for one in joined if one.isdisjoint(tables)]
        joined.append(tables.union(*touched))
    return joined


def store(connection: sa.Connection, warehouse: str, spans: Iterable[Span]) -> None:
    """Store spans inside an append."""
    rows = [
        {
            "warehouse": warehouse,
            "last_id": last,
            "ordinal": ordinal,
            "first_id": first,
            "tables": orjson.dumps(sorted(tables)).decode(),
        }
        for ordinal, (tables, first, last) in enumerate(merged(spans))
    ]
    run_many(_INSERT, connection, rows)


def groups(database: Database, warehouse: str) -> list[SharedSpan]:
    """Return one span for each set of tables, over all ids that have not been trimmed."""
    return [_span(row) for row in database.fetch_all(_GROUPS, {"w": warehouse})]


def spans(database: Database, warehouse: str) -> list[SharedSpan]:
    """Return one span for each append."""
    return [_span(row) for row in database.fetch_all(_SPANS, {"w": warehouse})]


def oldest(database: Database, warehouse: str, up_to: int) -> list[tuple[Tables, int, int]]:
    """Return the rows that end at or before an id: tables, last id, ordinal."""
    rows = database.fetch_all(_OLDEST, {"w": warehouse, "up_to": up_to})
    return [(frozenset(orjson.loads(row[0])), row[1], row[2]) for row in rows]


def delete(connection: sa.Connection, warehouse: str, rows: Iterable[tuple[Tables, int, int]]) -> None:
    run_many(_DELETE, connection, [{"w": warehouse, "last": last, "o": ordinal} for _, last, ordinal in rows])


def _span(row: Any) -> SharedSpan:
    return SharedSpan(_tables(row[0]), row[1], row[2])


@lru_cache(maxsize=4096)
def _tables(text: str) -> frozenset[TableName]:
    return frozenset(table_name(key) for key in orjson.loads(text))


# -- source transactions


@dataclass(slots=True)
class SourceTransaction:
    """One transaction of one source, as far as it has arrived."""

    source: str
    transaction: str
    received: int = 0
    expected: int | None = None
    ended: bool = False
    followed: bool = False
    first_id: int = 0  # 0: only its end has arrived
    last_id: int = 0
    tables: set[str] = field(default_factory=set)
    updated_ms: int = 0
    announced: bool = False  # its beginning was announced, so its end will be
    is_stored: bool = False
    is_changed: bool = False

    @property
    def is_open(self) -> bool:
        if self.expected is not None and self.received < self.expected:
            return True
        return not (self.ended or self.followed)

    def is_open_at(self, now_ms: int, linger_ms: int, wait_ms: int = 0) -> bool:
        """`wait_ms` applies if its end was announced to come, `linger_ms` otherwise."""
        silence_ms = max(linger_ms, wait_ms) if self.announced and not self.ended else linger_ms
        return self.is_open and now_ms - self.updated_ms < silence_ms

    @property
    def must_be_kept(self) -> bool:
        """Return whether it may grow, or could be cut in two."""
        return self.is_open or self.first_id != self.last_id


# -- the rows of source transactions in SQL

TRANSACTION_COLUMNS = (
    transactions.c.source,
    transactions.c.transaction,
    transactions.c.received,
    transactions.c.expected,
    transactions.c.ended,
    transactions.c.followed,
    transactions.c.first_id,
    transactions.c.last_id,
    transactions.c.tables,
    transactions.c.updated_ms,
    transactions.c.announced,
)
_BETWEEN = sa.select(*TRANSACTION_COLUMNS).where(
    transactions.c.warehouse == sa.bindparam("w"),
    transactions.c.last_id > sa.bindparam("after"),
    transactions.c.first_id <= sa.bindparam("up_to"),
    transactions.c.first_id > 0,
)
_UP_TO = (
    sa.select(*TRANSACTION_COLUMNS)
    .where(transactions.c.warehouse == sa.bindparam("w"), transactions.c.last_id <= sa.bindparam("up_to"))
    .order_by(transactions.c.last_id)
    .limit(ROWS_AT_A_TIME)
)


def transactions_between(
    database: Database, warehouse: str, after: int, up_to: int
) -> list[SourceTransaction]:
    """Return the transactions that may have a part in (after, up_to]."""
    rows = database.fetch_all(_BETWEEN, {"w": warehouse, "after": after, "up_to": up_to})
    return [transaction_of(row) for row in rows]


def transactions_up_to(database: Database, warehouse: str, last_id: int) -> list[SourceTransaction]:
    """Return the transactions that end at or before an id; only the oldest, if there are many."""
    return [transaction_of(row) for row in database.fetch_all(_UP_TO, {"w": warehouse, "up_to": last_id})]


def transaction_of(row: Any) -> SourceTransaction:
    return SourceTransaction(
        source=row[0],
        transaction=row[1],
        received=row[2],
        expected=row[3],
        ended=bool(row[4]),
        followed=bool(row[5]),
        first_id=row[6],
        last_id=row[7],
        tables=set(orjson.loads(row[8])),
        updated_ms=row[9],
        announced=bool(row[10]),
        is_stored=True,
    )


# -- where a batch may end

ForbiddenRange = tuple[
    int, int | None
]  # no cut is allowed at an id inside (both ends included); None: no end yet


def forbidden_cuts(
    found: Iterable[SourceTransaction], tables: frozenset[str], now_ms: int, linger_ms: int, wait_ms: int = 0
) -> list[ForbiddenRange]:
    """Return the ranges in which transactions of these tables allow no cut."""
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
    """Return the largest allowed id that is not after `up_to`."""
    border = up_to
    for first, last in sorted(spans, key=lambda span: span[0], reverse=True):
        if first <= border and (last is None or border <= last):
            border = first - 1
    return border


def cut_at_or_above(up_to: int, spans: Iterable[ForbiddenRange]) -> int | None:
    """Return the smallest allowed id that is not before `up_to`; None if a transaction there has no
    end yet.
    """
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
    forbidden: Sequence[ForbiddenRange] = (),
) -> int:
    """Return where to cut these tables, each of which has landed up to the id in `after`.

    The result is the largest id up to `up_to` that splits no source transaction and is in none of the
    `forbidden` ranges. If that leaves nothing although a transaction is complete, it is the smallest such id
    after `up_to`: a transaction larger than a batch is landed as a whole. It is the least of `after` if
    nothing may be cut.
    """
    nothing = min(after.values(), default=0)
    starts = {table_key(table): start for table, start in after.items()}
    first = min((id_ for id_ in _firsts(database, warehouse, starts)), default=None)
    if first is None or first > up_to:
        return nothing
    spans = [*forbidden, *_forbidden(database, warehouse, starts, up_to, now_ms, linger_ms, wait_ms)]
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
        spans = [*forbidden, *_forbidden(database, warehouse, starts, wanted, now_ms, linger_ms, wait_ms)]


def _firsts(database: Database, warehouse: str, starts: Mapping[str, int]) -> Iterator[int]:
    """Return the next id of each table."""
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
    """Return source transactions that end at or before an id, are complete, and have no entries left.

    Only the oldest are examined: what a table that does not land holds back may wait for it.
    """
    rows = transactions_up_to(database, warehouse, up_to)
    left = _left(database, warehouse, (one.tables for one in rows))
    return [
        one
        for one in rows
        if not _waits(one.tables, one.last_id, left) and not one.is_open_at(now_ms, linger_ms, wait_ms)
    ]


def landed_groups(database: Database, warehouse: str, up_to: int) -> list[tuple[frozenset[str], int, int]]:
    """Return rows of table groups that end at or before an id and have no entries left."""
    rows = oldest(database, warehouse, up_to)
    left = _left(database, warehouse, (tables for tables, _, _ in rows))
    return [row for row in rows if not _waits(row[0], row[1], left)]


def _left(database: Database, warehouse: str, sets: Iterable[Collection[str]]) -> dict[str, int | None]:
    """Return the first id of each table in the journal."""
    keys = {key for tables in sets for key in tables}
    found = {key: database.fetch_one(_NEXT, {"w": warehouse, "t": key, "after": 0}) for key in keys}
    return {key: row[0] if row is not None else None for key, row in found.items()}


def _waits(tables: Collection[str], last_id: int, left: Mapping[str, int | None]) -> bool:
    return any((first := left[key]) is not None and first <= last_id for key in tables)


def first_after(database: Database, warehouse: str, table: TableName, after: int) -> int | None:
    """Return the first id of a table after another."""
    row = database.fetch_one(_NEXT, {"w": warehouse, "t": table_key(table), "after": after})
    return row[0] if row is not None else None
