"""Check that the journal and the catalog's database belong together and are equally recent.

The catalog's database stores the id of the journal and its head at each publish. Another journal, or an older
copy of this one, would continue with ids that have landed: new changes would be deleted as landed.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

import sqlalchemy as sa

from catalog.store.database import Database
from ingest.journal.adoption import raise_counter, reset_trimmed, shift_ids
from ingest.journal.journal import Journal
from ingest.store.schema import landing_journals
from ingest.store.tables import LandingTables, save_head

_ONE = sa.select(landing_journals.c.journal_id, landing_journals.c.head).where(
    landing_journals.c.warehouse == sa.bindparam("w")
)
_FOREIGN = (
    "the journal is another one, and holds {events} changes of its own. Restore the journal that belongs to "
    "this database, or run `calve journal adopt` to land these changes behind all that has landed"
)
_OLD_JOURNAL = (
    "the journal is an older copy: it ends at {head}, and it has ended at {top}. What was acknowledged since "
    "and has not landed is lost. Run `calve journal adopt` to go on, and send it again from the source"
)
_OLD_DATABASE = (
    "the catalog's database is an older copy: changes up to {trimmed} have landed and were deleted from the "
    "journal, but the database knows of {landed}. Run `calve journal adopt` to go on, and send what is "
    "missing again from the source"
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Mismatch:
    """What is wrong in one warehouse, and up to which id changes have landed."""

    warehouse: str
    reason: str
    landed_id: int
    known_head: int
    is_foreign: bool


def find_mismatches(
    database: Database, journal: Journal, tables: LandingTables, warehouses: Collection[str]
) -> list[Mismatch]:
    """Return the problems that the operator must decide about. An empty journal in place of a lost one
    continues its ids.
    """
    found = []
    for warehouse in warehouses:
        # In this order: other servers may publish and trim meanwhile.
        trimmed = journal.trimmed(warehouse)
        landed = max((row.landed_id for row in tables.all(warehouse).values()), default=0)
        row = database.fetch_one(_ONE, {"w": warehouse})
        known_id, known_head = (str(row[0]), int(row[1])) if row is not None else (None, 0)
        top, head = max(landed, known_head), journal.head(warehouse)
        # Without a row, an older version landed the changes and stored no journal id.
        is_foreign = known_id != journal.id if known_id is not None else bool(landed) and not head
        reason = None
        if is_foreign:
            events = sum(waiting.events for waiting in journal.pending(warehouse))
            if not events:
                _begin(database, journal, warehouse, top)
            else:
                reason = _FOREIGN.format(events=events)
        elif head < top:
            reason = _OLD_JOURNAL.format(head=head, top=top)
        elif trimmed > landed:
            reason = _OLD_DATABASE.format(trimmed=trimmed, landed=landed)
        if reason is not None:
            found.append(Mismatch(warehouse, reason, landed, top, is_foreign))
    return found


def _begin(database: Database, journal: Journal, warehouse: str, top: int) -> None:
    raise_counter(journal.database, warehouse, top)
    database.write(lambda connection: save_head(connection, warehouse, journal.id, top))
    _log.warning(
        "the journal is a new one: what the old one had not landed is lost",
        extra={"warehouse": warehouse, "first-id": top + 1},
    )


def adopt(database: Database, journal: Journal, mismatch: Mismatch) -> None:
    """Continue with this journal. Its changes land after all that has landed."""
    if mismatch.is_foreign:
        shift_ids(journal.database, mismatch.warehouse, mismatch.known_head)
    raise_counter(journal.database, mismatch.warehouse, mismatch.known_head)
    trimmed = min(journal.trimmed(mismatch.warehouse), mismatch.landed_id)
    reset_trimmed(journal.database, mismatch.warehouse, trimmed)
    head = journal.head(mismatch.warehouse)
    database.write(lambda connection: save_head(connection, mismatch.warehouse, journal.id, head))
