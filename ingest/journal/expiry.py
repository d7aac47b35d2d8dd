"""Delete what the journal no longer needs: identities, ends without changes, the rows of a dropped
warehouse.
"""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa

from catalog import faults
from catalog.store.database import Database
from catalog.store.statements import among, listed
from ingest.journal.entries import advance_counter, lock_counter, set_trimmed
from ingest.journal.schema import dead_letters, digests, entries, ranges, shared, sources, transactions
from ingest.journal.sources import expire_states
from ingest.journal.transactions import delete_empty_transactions

EXPIRED_AT_A_TIME = 200
SILENT_ENDS_MS = 60_000  # an announced end without changes is deleted after this time
_EXPIRED = (
    sa.select(digests.c.warehouse, digests.c.id)
    .where(digests.c.expires_ms <= sa.bindparam("now"))
    .order_by(digests.c.expires_ms)
    .limit(EXPIRED_AT_A_TIME)
)
_DELETE_DIGESTS = sa.delete(digests).where(
    digests.c.warehouse == sa.bindparam("w"), among(digests.c.id, "ids")
)


def forget_warehouse(database: Database, warehouse: str, is_gone: Callable[[], bool]) -> int:
    """Delete the entries of a warehouse that was dropped. Returns the number of events.

    `is_gone` is called while no append can commit. The counter stays: a new warehouse of the same name
    continues it, so that its ids are above all that ever landed.
    """

    def work(connection: sa.Connection) -> int:
        head = lock_counter(connection, warehouse)
        if not is_gone():
            return 0
        for table in (entries, digests, ranges, transactions, shared, dead_letters, sources):
            connection.execute(sa.delete(table).where(table.c.warehouse == warehouse))
        advance_counter(connection, warehouse, 0, -head.events, -head.stored_bytes)
        set_trimmed(connection, warehouse, 0)
        return head.events

    return database.write(work)


def expire(database: Database, now_ms: int) -> None:
    """Delete identities whose window is over, and announced ends whose changes never arrived."""
    while database.write(lambda connection: _expire_digests(connection, now_ms)):
        faults.reach("journal.swept-some")
    database.write(lambda connection: delete_empty_transactions(connection, now_ms - SILENT_ENDS_MS))
    database.write(lambda connection: expire_states(connection, now_ms))


def _expire_digests(connection: sa.Connection, now_ms: int) -> bool:
    rows = connection.execute(_EXPIRED, {"now": now_ms}).fetchall()
    by_warehouse: dict[str, list[int]] = {}
    for warehouse, journal_id in rows:
        by_warehouse.setdefault(warehouse, []).append(journal_id)
    for warehouse, ids in sorted(by_warehouse.items()):
        connection.execute(_DELETE_DIGESTS, {"w": warehouse, "ids": listed(connection, ids)})
    return len(rows) == EXPIRED_AT_A_TIME
