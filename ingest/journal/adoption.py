"""Change the ids of a journal that was lost, restored or replaced. Used by commands of the operator."""

from __future__ import annotations

import sqlalchemy as sa

from catalog.store.database import Database
from ingest.journal.entries import advance_counter, lock_counter, set_trimmed
from ingest.journal.schema import digests, entries, transactions


def raise_counter(database: Database, warehouse: str, journal_id: int) -> None:
    """Make the next append get a higher id than this."""

    def work(connection: sa.Connection) -> None:
        head = lock_counter(connection, warehouse)
        if head.id < journal_id:
            advance_counter(connection, warehouse, journal_id - head.id, 0, 0)

    database.write(work)


def reset_trimmed(database: Database, warehouse: str, journal_id: int) -> None:
    """Set the newest id that counts as landed and deleted."""

    def work(connection: sa.Connection) -> None:
        set_trimmed(connection, warehouse, 0)
        set_trimmed(connection, warehouse, journal_id)

    database.write(work)


def shift_ids(database: Database, warehouse: str, by: int) -> None:
    """Add a number to all ids of a warehouse, beginning with the newest, so that they stay unique
    meanwhile.
    """

    def work(connection: sa.Connection) -> None:
        lock_counter(connection, warehouse)
        for table in (entries, digests):
            of_warehouse = table.c.warehouse == warehouse
            ids = connection.execute(sa.select(table.c.id).where(of_warehouse).distinct()).scalars().all()
            for id_ in sorted(ids, reverse=True):
                connection.execute(
                    sa.update(table).where(of_warehouse, table.c.id == id_).values(id=id_ + by)
                )
        connection.execute(
            sa.update(transactions)
            .where(transactions.c.warehouse == warehouse, transactions.c.first_id > 0)
            .values(first_id=transactions.c.first_id + by, last_id=transactions.c.last_id + by)
        )
        advance_counter(connection, warehouse, by, 0, 0)

    database.write(work)
