"""List and change the state of a source in the journal, on request of an operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import sqlalchemy as sa

from catalog.errors import NotFound
from catalog.store.database import Database
from ingest.journal.epochs import SourceState, begin_epoch
from ingest.journal.schema import counters, sources
from ingest.journal.sources import decode_state, load_states, store_states

_LOCK = sa.select(counters.c.id).where(counters.c.warehouse == sa.bindparam("w")).with_for_update()
_ONE = sa.select(sources.c.state).where(
    sources.c.warehouse == sa.bindparam("w"), sources.c.source == sa.bindparam("s")
)
_ALL = (
    sa.select(sources.c.source, sources.c.state, sources.c.updated_ms)
    .where(sources.c.warehouse == sa.bindparam("w"))
    .order_by(sources.c.source)
    .limit(sa.bindparam("limit", type_=sa.Integer))
)


def all_states(database: Database, warehouse: str, limit: int) -> list[tuple[str, SourceState, int]]:
    """Return (source, state, last append) of each source."""
    rows = database.fetch_all(_ALL, {"w": warehouse, "limit": limit})
    return [(row[0], decode_state(row[1]), row[2]) for row in rows]


def load_state(database: Database, warehouse: str, source: str) -> SourceState:
    row = database.fetch_one(_ONE, {"w": warehouse, "s": source})
    if row is None:
        raise NotFound(f"Source does not exist: {source}")
    return decode_state(row[0])


def change_state(
    database: Database,
    warehouse: str,
    source: str,
    change: Callable[[SourceState], SourceState],
    now_ms: int,
) -> SourceState:
    """Change the state, under the lock of the appends. NotFound if the source is not known."""

    def work(connection: sa.Connection) -> SourceState:
        connection.execute(_LOCK, {"w": warehouse}).fetchone()
        found = load_states(connection, warehouse, [source]).get(source)
        if found is None:
            raise NotFound(f"Source does not exist: {source}")
        changed = change(found)
        store_states(connection, warehouse, {source: changed}, now_ms)
        return changed

    return database.write(work)


def new_history(state: SourceState, now_ms: int, reason: str) -> SourceState:
    """Begin an epoch on request: known names, servers and GTIDs belong to earlier epochs."""
    return replace(begin_epoch(state, now_ms, reason), names={}, origins={}, gtids={})
