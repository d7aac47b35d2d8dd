"""Source transactions over several requests: which are complete, and which ids they span. Pure.

A request is never split, so a transaction that begins and ends inside one needs no record. A transaction is
complete when its end was announced and all announced changes have arrived; or when its last change is marked;
or when the same source goes on to another transaction. If its announced size shows that changes are missing,
only a timeout ends it: a transaction without new changes for a while is landed as it is. If its beginning was
announced, its end will be, so the timeout is much longer: the source may have crashed, and continues when it
is started again.

Debezium's transaction boundaries do not name the source. An end without a source belongs to the open
transaction with the same id. Boundaries that arrive before the first change are kept under the source ""
until a source sends the transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import orjson
import sqlalchemy as sa

from catalog.store.statements import among, listed, run_many
from ingest.change import TransactionBegin, TransactionEnd
from ingest.journal.encoded_request import EncodedRequest, TransactionStep
from ingest.journal.schema import transactions
from ingest.journal.table_groups import (
    TRANSACTION_COLUMNS,
    SourceTransaction,
    transaction_of,
)

UNKNOWN_SOURCE = ""


class TransactionLedger:
    """The transactions that the requests of one group commit contain, in one warehouse."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, SourceTransaction]] = {}
        self._shared: list[tuple[frozenset[str], int, int]] = []
        self._claimed: list[SourceTransaction] = []

    def add_stored(self, stored: Iterable[SourceTransaction]) -> None:
        """Add the transactions that the database has of these sources: open ones, and those of this group."""
        for row in stored:
            self._known.setdefault(row.source, {})[row.transaction] = row

    def take(
        self,
        steps: Sequence[TransactionStep],
        ends: Sequence[TransactionEnd],
        journal_id: int,
        now_ms: int,
        begins: Sequence[TransactionBegin] = (),
    ) -> None:
        """Add a request. `steps` are its new changes, in order; they got `journal_id`."""
        for begin in begins:
            self._begin(begin, now_ms)
        newest: dict[str, str] = {}
        touched: dict[tuple[str, str], SourceTransaction] = {}
        for step in steps:
            newest[step.source] = step.transaction
            row = touched.get((step.source, step.transaction))
            if row is None:
                row = touched[step.source, step.transaction] = self._row(
                    step.source, step.transaction, now_ms
                )
                row.first_id = row.first_id or journal_id
                row.last_id = journal_id
            row.received += 1
            if step.table is not None:
                row.tables.add(step.table)
            row.ended = row.ended or step.ends
        for source, transaction in newest.items():
            self._follow(source, transaction)
        for end in ends:
            row = self._row(self._source_of(end), end.transaction, now_ms)
            row.ended = True
            row.expected = end.size if row.expected is None else row.expected
        self._shared += [
            (frozenset(row.tables), row.first_id, row.last_id)
            for row in touched.values()
            if len(row.tables) > 1
        ]
        for source in newest:
            self._forget_complete(source)

    def _row(self, source: str, transaction: str, now_ms: int) -> SourceTransaction:
        rows = self._known.setdefault(source, {})
        row = rows.get(transaction)
        if row is None:
            row = rows[transaction] = SourceTransaction(source, transaction)
        if source != UNKNOWN_SOURCE:
            self._claim(row)
        row.updated_ms = now_ms
        row.is_changed = True
        return row

    def _begin(self, begin: TransactionBegin, now_ms: int) -> None:
        row = self._row(begin.source, begin.transaction, now_ms)
        row.announced = True
        if begin.source == UNKNOWN_SOURCE and not row.received:
            row.ended, row.expected = False, None  # the known row with this id belongs to another transaction

    def _claim(self, row: SourceTransaction) -> None:
        """Add what is known of the transaction from events that named no source."""
        unclaimed = self._known.get(UNKNOWN_SOURCE, {}).get(row.transaction)
        if unclaimed is None or unclaimed.received:
            return
        row.announced = row.announced or unclaimed.announced
        row.ended = row.ended or unclaimed.ended
        row.expected = unclaimed.expected if row.expected is None else row.expected
        del self._known[UNKNOWN_SOURCE][row.transaction]
        self._claimed.append(unclaimed)

    def _source_of(self, end: TransactionEnd) -> str:
        """Return, of several open transactions with this id, the one of this size that was updated last."""
        if end.source != UNKNOWN_SOURCE:
            return end.source
        rows = (rows[end.transaction] for rows in self._known.values() if end.transaction in rows)
        meant = max(
            (row for row in rows if row.is_open and row.received),
            key=lambda row: (row.received == end.size, row.updated_ms, row.last_id),
            default=None,
        )
        return UNKNOWN_SOURCE if meant is None else meant.source

    def _follow(self, source: str, newest: str) -> None:
        """End all other transactions of a source that goes on to another one."""
        for transaction, row in self._known[source].items():
            if transaction == newest:
                row.followed = False
            elif row.is_open and not row.followed:
                row.followed = row.is_changed = True

    def _forget_complete(self, source: str) -> None:
        rows = self._known[source]
        self._known[source] = {key: row for key, row in rows.items() if row.is_stored or row.must_be_kept}

    def shared(self) -> list[tuple[frozenset[str], int, int]]:
        """Return sets of tables that are in one transaction, with its first id and its last."""
        return self._shared

    def kept(self) -> list[SourceTransaction]:
        """Return the rows to write."""
        return [row for row in self._rows() if row.is_changed and row.must_be_kept]

    def gone(self) -> list[SourceTransaction]:
        """Return the rows to delete."""
        done = [row for row in self._rows() if not row.must_be_kept]
        return [row for row in (*done, *self._claimed) if row.is_stored]

    def _rows(self) -> list[SourceTransaction]:
        return [row for rows in self._known.values() for row in rows.values()]


def new_steps(steps: Sequence[TransactionStep], duplicates: Collection[int]) -> Sequence[TransactionStep]:
    return [step for step in steps if step.slot not in duplicates] if duplicates else steps


_of_source = (transactions.c.warehouse == sa.bindparam("w"), transactions.c.source == sa.bindparam("s"))
_TOUCHED = sa.select(*TRANSACTION_COLUMNS).where(
    *_of_source, sa.or_(transactions.c.is_open == 1, among(transactions.c.transaction, "names"))
)
# Transactions that a record without a source can refer to, and such records themselves.
_OF_ANY_SOURCE = sa.select(*TRANSACTION_COLUMNS).where(
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
# Deletes a row only if it has not changed since it was read.
_DELETE_UNCHANGED = sa.delete(transactions).where(
    *_of_source,
    transactions.c.transaction == sa.bindparam("t"),
    transactions.c.last_id == sa.bindparam("last_id"),
    transactions.c.updated_ms == sa.bindparam("updated_ms"),
)
_EMPTY = sa.delete(transactions).where(
    transactions.c.first_id == 0, transactions.c.updated_ms < sa.bindparam("before_ms")
)


def touched_by(requests: Iterable[EncodedRequest]) -> dict[str, set[str]]:
    """Return the transactions of which requests have a part, by source."""
    touched: dict[str, set[str]] = {}
    for request in requests:
        for step in request.steps:
            touched.setdefault(step.source, set()).add(step.transaction)
        for begin in request.begins:
            touched.setdefault(begin.source, set()).add(begin.transaction)
        for end in request.ends:
            touched.setdefault(end.source, set()).add(end.transaction)
    return touched


def load_transactions(
    connection: sa.Connection, warehouse: str, touched: Mapping[str, Collection[str]]
) -> Iterable[SourceTransaction]:
    """Load, for each source, the rows of the named transactions, and those that are open.

    The source "" stands for any: it loads what is open of the named transactions, of all sources. Rows that
    were stored under "" belong to the source that sends the transaction.
    """
    everything = frozenset[str]().union(*touched.values())
    if UNKNOWN_SOURCE in touched:
        wanted = {"w": warehouse, "names": listed(connection, touched[UNKNOWN_SOURCE])}
        for row in connection.execute(_OF_ANY_SOURCE, wanted).fetchall():
            yield transaction_of(row)
    for source, names in {**touched, UNKNOWN_SOURCE: everything}.items():
        params = {"w": warehouse, "s": source, "names": listed(connection, names)}
        for row in connection.execute(_TOUCHED, params).fetchall():
            yield transaction_of(row)


def store_transactions(
    connection: sa.Connection,
    warehouse: str,
    kept: Iterable[SourceTransaction],
    gone: Iterable[SourceTransaction],
) -> None:
    run_many(_SET, connection, [_transaction_row(warehouse, one) for one in kept])
    run_many(_DELETE, connection, [{"w": warehouse, "s": one.source, "t": one.transaction} for one in gone])


def delete_unchanged_transactions(
    connection: sa.Connection, warehouse: str, gone: Iterable[SourceTransaction]
) -> None:
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


def delete_empty_transactions(connection: sa.Connection, before_ms: int) -> None:
    """Delete transactions of which only the end has arrived, long ago."""
    connection.execute(_EMPTY, {"before_ms": before_ms})


def _transaction_row(warehouse: str, one: SourceTransaction) -> dict[str, Any]:
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
