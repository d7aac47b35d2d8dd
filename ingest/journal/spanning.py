"""The rows of source transactions in SQL."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import orjson
import sqlalchemy as sa

from catalog.store.database import Database
from ingest.journal.schema import transactions
from ingest.journal.statements import among, listed, run_many
from ingest.journal.transactions import NOBODY, Spanning

ROWS_AT_A_TIME = 1_000

_columns = (
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
_of_source = (transactions.c.warehouse == sa.bindparam("w"), transactions.c.source == sa.bindparam("s"))
_TOUCHED = sa.select(*_columns).where(
    *_of_source, sa.or_(transactions.c.is_open == 1, among(transactions.c.transaction, "names"))
)
# Those that a record which does not say whose it is can mean, and such records themselves.
_ANYBODYS = sa.select(*_columns).where(
    transactions.c.warehouse == sa.bindparam("w"),
    transactions.c.is_open == 1,
    among(transactions.c.transaction, "names"),
)
_SET = sa.text(
    'INSERT INTO journal_transactions (warehouse, source, "transaction", received, expected, ended,'
    " followed, is_open, first_id, last_id, tables, updated_ms, announced)"
    " VALUES (:w, :s, :t, :received, :expected, :ended, :followed, :is_open, :first_id, :last_id,"
    " :tables, :updated_ms, :announced)"
    ' ON CONFLICT (warehouse, source, "transaction") DO UPDATE SET received = excluded.received,'
    " expected = excluded.expected, ended = excluded.ended, followed = excluded.followed,"
    " is_open = excluded.is_open, first_id = excluded.first_id, last_id = excluded.last_id,"
    " tables = excluded.tables, updated_ms = excluded.updated_ms, announced = excluded.announced"
)
_DELETE = sa.delete(transactions).where(*_of_source, transactions.c.transaction == sa.bindparam("t"))
# Deletes only what nobody has touched since it was looked at.
_DELETE_UNCHANGED = sa.delete(transactions).where(
    *_of_source,
    transactions.c.transaction == sa.bindparam("t"),
    transactions.c.last_id == sa.bindparam("last_id"),
    transactions.c.updated_ms == sa.bindparam("updated_ms"),
)
_BETWEEN = sa.select(*_columns).where(
    transactions.c.warehouse == sa.bindparam("w"),
    transactions.c.last_id > sa.bindparam("after"),
    transactions.c.first_id <= sa.bindparam("up_to"),
    transactions.c.first_id > 0,
)
_UP_TO = (
    sa.select(*_columns)
    .where(transactions.c.warehouse == sa.bindparam("w"), transactions.c.last_id <= sa.bindparam("up_to"))
    .order_by(transactions.c.last_id)
    .limit(ROWS_AT_A_TIME)
)
_EMPTY = sa.delete(transactions).where(
    transactions.c.first_id == 0, transactions.c.updated_ms < sa.bindparam("before_ms")
)


def load(
    connection: sa.Connection, warehouse: str, touched: Mapping[str, Collection[str]]
) -> Iterable[Spanning]:
    """For each source, the rows of the transactions named, and those that are open.

    The source "" is anybody: what is open of the transactions named, of all sources. And what came in its
    name belongs to the source that turns up with the transaction.
    """
    everything = frozenset[str]().union(*touched.values())
    if NOBODY in touched:
        wanted = {"w": warehouse, "names": listed(connection, touched[NOBODY])}
        for row in connection.execute(_ANYBODYS, wanted).fetchall():
            yield _spanning(row)
    for source, names in {**touched, NOBODY: everything}.items():
        params = {"w": warehouse, "s": source, "names": listed(connection, names)}
        for row in connection.execute(_TOUCHED, params).fetchall():
            yield _spanning(row)


def store(
    connection: sa.Connection, warehouse: str, kept: Iterable[Spanning], gone: Iterable[Spanning]
) -> None:
    run_many(_SET, connection, [_row(warehouse, one) for one in kept])
    run_many(_DELETE, connection, [{"w": warehouse, "s": one.source, "t": one.transaction} for one in gone])


def between(database: Database, warehouse: str, after: int, up_to: int) -> list[Spanning]:
    """Those of which a part may lie in (after, up_to]."""
    rows = database.fetch_all(_BETWEEN, {"w": warehouse, "after": after, "up_to": up_to})
    return [_spanning(row) for row in rows]


def up_to(database: Database, warehouse: str, last_id: int) -> list[Spanning]:
    """Those that end at or before an id; the oldest, if they are many."""
    return [_spanning(row) for row in database.fetch_all(_UP_TO, {"w": warehouse, "up_to": last_id})]


def delete_unchanged(connection: sa.Connection, warehouse: str, gone: Iterable[Spanning]) -> None:
    rows = [
        {
            "w": warehouse,
            "s": one.source,
            "t": one.transaction,
            "last_id": one.last_id,
            "updated_ms": one.updated_ms,
        }
        for one in gone
    ]
    run_many(_DELETE_UNCHANGED, connection, rows)


def delete_empty(connection: sa.Connection, before_ms: int) -> None:
    """Those of which only the end was seen, and long ago."""
    connection.execute(_EMPTY, {"before_ms": before_ms})


def _row(warehouse: str, one: Spanning) -> dict[str, Any]:
    return {
        "w": warehouse,
        "s": one.source,
        "t": one.transaction,
        "received": one.received,
        "expected": one.expected,
        "ended": int(one.ended),
        "followed": int(one.followed),
        "is_open": int(one.is_open),
        "first_id": one.first_id,
        "last_id": one.last_id,
        "tables": orjson.dumps(sorted(one.tables)).decode(),
        "updated_ms": one.updated_ms,
        "announced": int(one.announced),
    }


def _spanning(row: Any) -> Spanning:
    return Spanning(
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
