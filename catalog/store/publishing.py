"""The publishing of a transaction: all its changes, what else belongs to them, and its end, in one SQL
transaction.
"""

from __future__ import annotations

import sqlalchemy as sa

from catalog import faults
from catalog.changes import Write
from catalog.rows import Transaction
from catalog.store.database import Database
from catalog.store.transactions import close, lock_open
from catalog.store.writing import Also, apply


def publish(
    database: Database, transaction: Transaction, wanted: Write, also: Also | None = None
) -> int | None:
    """The number that everything became visible under; None if there was nothing to publish.

    Raises as `writing.write` does, and CommitFailed if the transaction is no longer open.
    """

    def work(connection: sa.Connection) -> int | None:
        lock_open(connection, transaction, wanted.now_ms)
        faults.reach("publish.locked")
        number = apply(connection, transaction.warehouse, wanted).number if wanted.changes else None
        if also is not None:
            also(connection, number or transaction.base_number)
        faults.reach("publish.before-close")
        close(connection, transaction.id, "committed", wanted.now_ms, number)
        return number

    return database.write(work)
