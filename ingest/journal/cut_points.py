"""Where a batch may end: tables that share source transactions, and ids that split no transaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import sqlalchemy as sa

from catalog.store.database import Database
from ingest.change import TableName, table_key, table_name
from ingest.journal.schema import entries, run_many, table_groups
from ingest.journal.transactions import SourceTransaction, transactions_between, transactions_up_to

Groups = Mapping[str, str]  # table key -> the key of its group

_ALL = sa.select(table_groups.c.table_key, table_groups.c.group_key).where(
    table_groups.c.warehouse == sa.bindparam("w")
)
_SET = sa.text(
    "INSERT INTO journal_companions (warehouse, table_key, group_key) VALUES (:w, :t, :g)"
    " ON CONFLICT (warehouse, table_key) DO UPDATE SET group_key = excluded.group_key"
)


def are_in_one_group(known: Groups, tables: Collection[str]) -> bool:
    """True stays true: groups only ever grow together."""
    keys = {known.get(table) for table in tables}
    return len(keys) == 1 and None not in keys


def merged_groups(known: Groups, shared: Iterable[Collection[str]]) -> dict[str, str]:
    """All tables with the key of their group (the least of its tables), after these have met."""
    leader = dict(known)
    members: dict[str, set[str]] = {}
    for table, key in leader.items():
        members.setdefault(key, set()).add(table)
    for tables in shared:
        keys = {leader.get(table, table) for table in tables}
        joined = set(tables).union(*(members.pop(key, set()) for key in keys))
        key = min(joined)
        members[key] = joined
        leader |= dict.fromkeys(joined, key)
    return leader


def merge_groups(
    connection: sa.Connection, warehouse: str, shared: Iterable[Collection[str]]
) -> dict[str, str]:
    """Put these sets of tables together, inside an append. Answers all groups as they are then."""
    before = {row[0]: row[1] for row in connection.execute(_ALL, {"w": warehouse})}
    after = merged_groups(before, shared)
    rows = [
        {"w": warehouse, "t": table, "g": key} for table, key in after.items() if before.get(table) != key
    ]
    run_many(_SET, connection, rows)
    return after


def load_groups(database: Database, warehouse: str) -> list[frozenset[TableName]]:
    found: dict[str, set[TableName]] = {}
    for table, key in database.fetch_all(_ALL, {"w": warehouse}):
        found.setdefault(key, set()).add(table_name(table))
    return [frozenset(tables) for tables in found.values() if len(tables) > 1]


# -- where a cut may lie

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
    left: dict[str, int | None] = {}
    found = []
    for one in transactions_up_to(database, warehouse, up_to):
        for key in one.tables:
            if key not in left:
                row = database.fetch_one(_NEXT, {"w": warehouse, "t": key, "after": 0})
                left[key] = row[0] if row is not None else None
        waits = any(((first := left[key]) is not None and first <= one.last_id) for key in one.tables)
        if not waits and not one.is_open_at(now_ms, linger_ms, wait_ms):
            found.append(one)
    return found
