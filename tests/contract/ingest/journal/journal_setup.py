"""A journal on a real database, and requests for it.

A `JournalDatabase` holds only an address, so it can be sent to another process. Two journals of one database
are like two server processes: they share only the database.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import sqlalchemy as sa

from catalog.store.database import Database
from ingest.change import Change, ParsedRequest, TableName, TransactionEnd
from ingest.journal import schema
from ingest.journal.encoded_request import identity_digests
from ingest.journal.journal import Journal
from ingest.journal.receipts import AppendReceipt
from ingest.journal.sources import split_digests
from ingest.settings import JournalLimits

A: TableName = ("db", "a")
B: TableName = ("db", "b")
C: TableName = ("db", "c")
WAREHOUSE = "main"
START_MS = 1_763_280_000_000


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now_ms = START_MS

    def __call__(self) -> int:
        return self.now_ms


@dataclass(frozen=True, slots=True)
class JournalDatabase:
    """An address of a database whose journal is migrated."""

    url: str

    @classmethod
    def fresh(cls, url: str) -> JournalDatabase:
        database = Database(url)
        schema.migrate(database)
        database.close()
        return cls(url)

    def clear(self) -> None:
        """As if nothing had ever been appended."""
        engine = sa.create_engine(self.url)
        with engine.begin() as connection:
            for table in schema.metadata.sorted_tables:
                if table is not schema.journal_version:
                    connection.execute(sa.delete(table))
        engine.dispose()

    @contextlib.contextmanager
    def opened(self, limits: JournalLimits | None = None, clock: Clock | None = None) -> Iterator[Journal]:
        database = Database(self.url, pool_size=4)
        journal = Journal(database, limits, clock=clock) if clock else Journal(database, limits)
        try:
            yield journal
        finally:
            journal.close()
            database.close()


def numbered(
    numbers: Iterable[int], source: str = "s", table: TableName = A, transaction: str | None = None
) -> ParsedRequest:
    """Inserts of a source that counts."""
    changes = [
        Change(place, table, "insert", after={"n": n}, source=source, number=n, transaction=transaction)
        for place, n in enumerate(numbers)
    ]
    return ParsedRequest("native", len(changes), changes)


def identified(identities: Iterable[str], source: str = "s", table: TableName = A) -> ParsedRequest:
    """Inserts of a source whose events have names."""
    changes = [
        Change(place, table, "insert", after={"i": i}, source=source, identity=i)
        for place, i in enumerate(identities)
    ]
    return ParsedRequest("debezium", len(changes), changes)


def parts(
    *parts_: tuple[TableName, str], source: str = "s", ends: Iterable[TransactionEnd] = ()
) -> ParsedRequest:
    """Changes of source transactions: a table and a transaction each; a `!` behind it says that it ends."""
    changes = [
        Change(
            place,
            table,
            "insert",
            after={"t": transaction},
            source=source,
            transaction=transaction.rstrip("!"),
            transaction_ends=transaction.endswith("!"),
        )
        for place, (table, transaction) in enumerate(parts_)
    ]
    return ParsedRequest("native", len(changes), changes, ends=list(ends))


def appended(
    journal: Journal, parsed: ParsedRequest, warehouse: str = WAREHOUSE, priority: int = 1
) -> AppendReceipt:
    return journal.submit(warehouse, parsed, priority=priority).result(timeout=60)


def everything(journal: Journal, warehouse: str = WAREHOUSE) -> list[tuple[int, Change]]:
    """All changes that wait, each with its id, by table and in order."""
    head = journal.head(warehouse)
    return [
        (entry.id, change)
        for waiting in sorted(journal.pending(warehouse), key=lambda one: one.table)
        for entry in journal.read(warehouse, waiting.table, 0, head)
        for change in entry.changes
    ]


def numbers_in(journal: Journal, warehouse: str = WAREHOUSE) -> list[int | None]:
    return [change.number for _, change in everything(journal, warehouse)]


def identities_in(journal: Journal, warehouse: str = WAREHOUSE) -> list[str]:
    return [change.identity for _, change in everything(journal, warehouse)]


def problems(journal: Journal, warehouse: str = WAREHOUSE) -> list[str]:
    """What must hold at any time while nothing was trimmed: an empty list."""
    found = []
    events = everything(journal, warehouse)
    ids = sorted({id_ for id_, _ in events})
    if ids != list(range(1, journal.head(warehouse) + 1)):
        found.append(f"ids with gaps: {ids} below {journal.head(warehouse)}")
    numbers: dict[str, list[int]] = {}
    marks = []
    for _, change in events:
        if change.number is not None:
            numbers.setdefault(change.source, []).append(change.number)
        elif change.identity:
            marks += identity_digests(warehouse, change.source, [change.identity])
    if len(set(marks)) != len(marks) or any(len(set(one)) != len(one) for one in numbers.values()):
        found.append("an event is there twice")
    with journal._database.engine.connect() as connection:
        stored_marks, stored_numbers, totals = _remembered(connection, warehouse)
    if sorted(stored_marks) != sorted(marks):
        found.append("marks and events differ")
    if stored_numbers != {source: sorted(one) for source, one in numbers.items()}:
        found.append("numbers and events differ")
    waiting = journal.pending(warehouse)
    if totals != (sum(one.events for one in waiting), sum(one.stored_bytes for one in waiting)):
        found.append(f"totals {totals} are not those of {waiting}")
    return found


def _remembered(
    connection: sa.Connection, warehouse: str
) -> tuple[list[bytes], dict[str, list[int]], tuple[int, int]]:
    marks = [
        mark
        for row in connection.execute(
            sa.select(schema.digests.c.marks).where(schema.digests.c.warehouse == warehouse)
        )
        for mark in split_digests(row[0])
    ]
    numbers: dict[str, list[int]] = {}
    ranges = sa.select(schema.ranges.c.source, schema.ranges.c.first, schema.ranges.c.last)
    ranges = ranges.where(schema.ranges.c.warehouse == warehouse).order_by(schema.ranges.c.first)
    for source, rows in itertools.groupby(
        sorted(connection.execute(ranges).all(), key=lambda row: row[0]), key=lambda row: row[0]
    ):
        numbers[source] = sorted(n for _, first, last in rows for n in range(first, last + 1))
    totals = sa.select(schema.counters.c.events, schema.counters.c.bytes).where(
        schema.counters.c.warehouse == warehouse
    )
    row = connection.execute(totals).one_or_none()
    return marks, numbers, (row[0], row[1]) if row is not None else (0, 0)
