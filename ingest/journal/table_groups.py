"""Tables that share source transactions, for as long as these have not landed.

A row says that some transactions between two ids touch these tables. It is written with the transactions, and
deleted when all of them have landed: a transaction over all tables joins them for one batch, not for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson
import sqlalchemy as sa

from catalog.store.database import Database
from ingest.change import TableName, table_name
from ingest.journal.schema import run_many, shared

SETS_MAX = 64  # of one append; more are joined
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
    """Source transactions between two ids touch these tables."""

    tables: frozenset[TableName]
    first_id: int
    last_id: int


def merged(spans: Iterable[Span]) -> list[Span]:
    """One span for each set of tables; if these are many, for each group of sets that are connected."""
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
    """Tables that are connected by these sets, each table in one of the results."""
    joined: list[frozenset[TableName]] = []
    for tables in sets:
        touched = [one for one in joined if not one.isdisjoint(tables)]
        joined = [one for one in joined if one.isdisjoint(tables)]
        joined.append(tables.union(*touched))
    return joined


def store(connection: sa.Connection, warehouse: str, spans: Iterable[Span]) -> None:
    """Inside an append."""
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
    """One for each set of tables, over all ids that have not been trimmed."""
    return [_span(row) for row in database.fetch_all(_GROUPS, {"w": warehouse})]


def spans(database: Database, warehouse: str) -> list[SharedSpan]:
    """One for each append."""
    return [_span(row) for row in database.fetch_all(_SPANS, {"w": warehouse})]


def oldest(database: Database, warehouse: str, up_to: int) -> list[tuple[Tables, int, int]]:
    """Rows that end at or before an id: tables, last id, ordinal."""
    rows = database.fetch_all(_OLDEST, {"w": warehouse, "up_to": up_to})
    return [(frozenset(orjson.loads(row[0])), row[1], row[2]) for row in rows]


def delete(connection: sa.Connection, warehouse: str, rows: Iterable[tuple[Tables, int, int]]) -> None:
    run_many(_DELETE, connection, [{"w": warehouse, "last": last, "o": ordinal} for _, last, ordinal in rows])


def _span(row: Any) -> SharedSpan:
    return SharedSpan(_tables(row[0]), row[1], row[2])


@lru_cache(maxsize=4096)
def _tables(text: str) -> frozenset[TableName]:
    return frozenset(table_name(key) for key in orjson.loads(text))
