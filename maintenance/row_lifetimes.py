"""What bounds each SQL table, and the deletion of rows of the journal that nothing else deletes.

`LIFETIMES` names, for every table of the databases, what keeps it from growing for ever. A test fails if a
table has no entry.
"""

from __future__ import annotations

import logging

import sqlalchemy as sa

from catalog.store.database import Database
from ingest.journal.schema import dead_letters, ranges

CLOSED_LETTERS_MS = 30 * 86_400_000
LETTERS_MAX = 100_000  # of one table and reason
RANGES_MAX = 10_000  # of one source
ROWS_A_STEP = 1_000

LIFETIMES = {
    # the catalog
    "schema_version": "one row",
    "warehouses": "one row for each warehouse, deleted with it",
    "heads": "one row for each warehouse, deleted with it",
    "entries": "one row for each table, view and namespace; documents shrink by expiry",
    "history": "rows that no kept moment and no webhook needs are deleted after an hour",
    "locations": "one row for each location of a table, deleted with it",
    "dropped": "tables are purged, views deleted, when `drop_retention_s` has passed",
    "transactions": "deleted a day after they were closed; open ones expire",
    "staged": "deleted when their transaction is closed",
    "idempotency": "deleted by later writes when `idempotency_lifetime_s` has passed",
    "reports": "30 days, and the newest 1,000 of each table",
    "principals": "one row for each principal",
    "grants": "one row for each principal and warehouse",
    "tokens": "deleted when they have expired and new ones are issued",
    "maintenance": "one row for each warehouse, deleted with it",
    "moments": "about 1,500 of each warehouse, as the policy of kept moments says; pins end",
    "maintenance_policies": "one row for each warehouse, namespace or table with a policy",
    "maintenance_tables": "one row for each table, deleted with it",
    "expired_files": "deleted when the files are, after `reader_grace_s`",
    "queries": "one hour, and the newest 200 of each server process",
    "webhooks": "one row for each webhook, until it is deleted",
    # landing
    "landing_version": "one row",
    "landing_tables": "one row for each table that changes land in",
    "landing_mirrors": "one row for each table that changes land in",
    "landing_watermarks": "one row for each table and source",
    "landing_verifications": "one row for each table that was verified",
    "landing_checksums": "one row for each table with kept checksums",
    "landing_sources": "one row for each source with rules, until they are deleted",
    "landing_pauses": "one row for each paused source or table, until it goes on",
    "landing_jobs": "finished jobs are deleted after an hour; after two days, if a webhook needs them",
    "landing_resyncs": "the last one of each table; deleted 30 days after its end",
    "landing_claims": "deleted with the end of their job",
    "landing_workers": "deleted ten minutes after a worker was seen last",
    "landing_journals": "one row for each warehouse",
    # the journal
    "journal_version": "one row",
    "journal_identity": "one row",
    "journal_heads": "one row for each warehouse",
    "journal_sources": "one row for each source; forgotten when it is silent and has begun no epoch",
    "journal_entries": "deleted when they have landed; `buffer_bytes_max` bounds what waits",
    "journal_ranges": f"one row for each gap; the newest {RANGES_MAX:,} of each source",
    "journal_marks": "deleted when `deduplication_window_ms` has passed",
    "journal_transactions": "deleted when all of their changes have landed",
    "journal_shared": "deleted when all of their changes have landed",
    "journal_dead_letters": (
        f"30 days after they were replayed or dropped; the newest {LETTERS_MAX:,} of a table and reason"
    ),
}

log = logging.getLogger(__name__)

_CLOSED = (
    sa.select(dead_letters.c.id)
    .where(
        dead_letters.c.state.in_(("replayed", "dropped")), dead_letters.c.changed_ms < sa.bindparam("before")
    )
    .limit(ROWS_A_STEP)
)
_TOO_MANY_LETTERS = (
    sa.select(dead_letters.c.warehouse, dead_letters.c.table_key, dead_letters.c.code)
    .group_by(dead_letters.c.warehouse, dead_letters.c.table_key, dead_letters.c.code)
    .having(sa.func.count() > sa.bindparam("most"))
)
_SURPLUS_LETTERS = (
    sa.select(dead_letters.c.id)
    .where(
        dead_letters.c.warehouse == sa.bindparam("w"),
        dead_letters.c.table_key == sa.bindparam("t"),
        dead_letters.c.code == sa.bindparam("c"),
    )
    .order_by(dead_letters.c.journal_id.desc(), dead_letters.c.ordinal.desc())
    .offset(sa.bindparam("most"))
    .limit(ROWS_A_STEP)
)
_DELETE_LETTER = sa.delete(dead_letters).where(dead_letters.c.id == sa.bindparam("i"))
_TOO_MANY_RANGES = (
    sa.select(ranges.c.warehouse, ranges.c.source)
    .group_by(ranges.c.warehouse, ranges.c.source)
    .having(sa.func.count() > sa.bindparam("most"))
)
_NEWEST_SURPLUS = (
    sa.select(ranges.c.first)
    .where(ranges.c.warehouse == sa.bindparam("w"), ranges.c.source == sa.bindparam("s"))
    .order_by(ranges.c.first.desc())
    .offset(sa.bindparam("most"))
    .limit(1)
)
_DELETE_RANGES = sa.delete(ranges).where(
    ranges.c.warehouse == sa.bindparam("w"),
    ranges.c.source == sa.bindparam("s"),
    ranges.c.first <= sa.bindparam("f"),
)


class RowLifetimes:
    """Deletes old rows of the journal. Any number of processes may do it."""

    def __init__(
        self, journal: Database, *, letters_max: int = LETTERS_MAX, ranges_max: int = RANGES_MAX
    ) -> None:
        self._journal = journal
        self._letters_max = letters_max
        self._ranges_max = ranges_max

    def sweep(self, now_ms: int) -> None:
        self._delete_letters([row[0] for row in self._read(_CLOSED, before=now_ms - CLOSED_LETTERS_MS)])
        for warehouse, table_key, code in self._read(_TOO_MANY_LETTERS, most=self._letters_max):
            log.warning(
                "a table has too many dead letters of one reason; the oldest are deleted",
                extra={"warehouse": warehouse, "table": table_key.replace("\x1f", "."), "reason": code},
            )
            params = {"w": warehouse, "t": table_key, "c": code, "most": self._letters_max}
            self._delete_letters([row[0] for row in self._read(_SURPLUS_LETTERS, **params)])
        for warehouse, source in self._read(_TOO_MANY_RANGES, most=self._ranges_max):
            # An event from before the oldest remaining range is no longer known as a duplicate.
            params = {"w": warehouse, "s": source}
            for row in self._read(_NEWEST_SURPLUS, **params, most=self._ranges_max):
                first = row[0]
                self._journal.write(
                    lambda connection, p=params | {"f": first}: connection.execute(_DELETE_RANGES, p)  # type: ignore[misc]
                )

    def _delete_letters(self, ids: list[str]) -> None:
        if ids:
            params = [{"i": id_} for id_ in ids]
            self._journal.write(lambda connection: connection.execute(_DELETE_LETTER, params))

    def _read(self, statement: sa.Select[tuple[object, ...]], **params: object) -> list[tuple[str, ...]]:
        return [tuple(row) for row in self._journal.fetch_all(statement, params)]
