"""What the journal remembers of each source, in SQL: its epoch, its newest position, why it is held."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, replace
from typing import Any

import orjson
import sqlalchemy as sa

from catalog.errors import NotFound
from catalog.store.database import Database
from catalog.store.statements import among, listed, run_many
from ingest.epochs import Hold, Run, SourceState, assign, begin_epoch
from ingest.journal.encoded_request import EncodedRequest
from ingest.journal.receipts import SourceHeld
from ingest.journal.schema import counters, sources
from ingest.journal.sources import counter_name, has_seen_any

KEPT_MS = 30 * 24 * 3600 * 1000  # a source in its first epoch that is silent for so long is forgotten

_LOCK = sa.select(counters.c.id).where(counters.c.warehouse == sa.bindparam("w")).with_for_update()
_SOME = sa.select(sources.c.source, sources.c.state).where(
    sources.c.warehouse == sa.bindparam("w"), among(sources.c.source, "names")
)
_ONE = sa.select(sources.c.state).where(
    sources.c.warehouse == sa.bindparam("w"), sources.c.source == sa.bindparam("s")
)
_ALL = (
    sa.select(sources.c.source, sources.c.state, sources.c.updated_ms)
    .where(sources.c.warehouse == sa.bindparam("w"))
    .order_by(sources.c.source)
    .limit(sa.bindparam("limit", type_=sa.Integer))
)
_SET = sa.text(
    "INSERT INTO journal_sources (warehouse, source, state, epoch, updated_ms)"
    " VALUES (:w, :s, :state, :epoch, :now) ON CONFLICT (warehouse, source)"
    " DO UPDATE SET state = excluded.state, epoch = excluded.epoch, updated_ms = excluded.updated_ms"
)
# A later epoch must be remembered: without it, new changes would sort before those that have landed.
_EXPIRE = sa.delete(sources).where(sources.c.epoch == 0, sources.c.updated_ms < sa.bindparam("before"))


class SourceStates:
    """The sources of one group commit, in one warehouse. Under the lock of the head."""

    def __init__(self, connection: sa.Connection, warehouse: str, names: Collection[str]) -> None:
        self._connection = connection
        self._warehouse = warehouse
        self._before = load_states(connection, warehouse, names)
        self._now = dict(self._before)

    def assign(self, request: EncodedRequest, now_ms: int) -> SourceHeld | None:
        """Set the epochs of a request; or why nothing of it may be stored."""
        request.epochs = {}
        states = dict(self._now)
        for run in request.runs:
            state = states.get(run.source, SourceState())
            found = assign(run, state, now_ms, request.epoch)
            if isinstance(found, Hold) and run.is_counted and not self._is_repeated(run, state):
                # Requests of one source may arrive in another order than its numbers.
                found = assign(replace(run, may_fall=True), state, now_ms, request.epoch)
            if isinstance(found, Hold):
                self._now[run.source] = replace(state, held=found.reason, held_ms=now_ms)
                return SourceHeld(self._warehouse, run.source, found.reason)
            epoch, states[run.source] = found
            if epoch:
                request.epochs[run.source, run.origin] = epoch
        self._now = states
        return None

    def _is_repeated(self, run: Run, state: SourceState) -> bool:
        """Whether the source has sent one of these numbers before."""
        counter = counter_name(run.source, state.epoch)
        return has_seen_any(self._connection, self._warehouse, counter, int(run.low, 16), int(run.high, 16))

    def store(self, now_ms: int) -> None:
        changed = {name: state for name, state in self._now.items() if self._before.get(name) != state}
        store_states(self._connection, self._warehouse, changed, now_ms)


def load_states(connection: sa.Connection, warehouse: str, names: Collection[str]) -> dict[str, SourceState]:
    rows = connection.execute(_SOME, {"w": warehouse, "names": listed(connection, names)}).fetchall()
    return {row[0]: _decode(row[1]) for row in rows}


def store_states(
    connection: sa.Connection, warehouse: str, states: Mapping[str, SourceState], now_ms: int
) -> None:
    rows = [
        {"w": warehouse, "s": name, "state": _encode(state), "epoch": state.epoch, "now": now_ms}
        for name, state in sorted(states.items())
    ]
    run_many(_SET, connection, rows)


def all_states(database: Database, warehouse: str, limit: int) -> list[tuple[str, SourceState, int]]:
    """(source, state, last append)."""
    rows = database.fetch_all(_ALL, {"w": warehouse, "limit": limit})
    return [(row[0], _decode(row[1]), row[2]) for row in rows]


def load_state(database: Database, warehouse: str, source: str) -> SourceState:
    row = database.fetch_one(_ONE, {"w": warehouse, "s": source})
    if row is None:
        raise NotFound(f"Source does not exist: {source}")
    return _decode(row[0])


def change_state(
    database: Database,
    warehouse: str,
    source: str,
    change: Callable[[SourceState], SourceState],
    now_ms: int,
) -> SourceState:
    """Under the lock of the appends. NotFound if the source is not known."""

    def work(connection: sa.Connection) -> SourceState:
        connection.execute(_LOCK, {"w": warehouse}).fetchone()
        found = load_states(connection, warehouse, [source]).get(source)
        if found is None:
            raise NotFound(f"Source does not exist: {source}")
        changed = change(found)
        store_states(connection, warehouse, {source: changed}, now_ms)
        return changed

    return database.write(work)


def expire_states(connection: sa.Connection, now_ms: int) -> None:
    connection.execute(_EXPIRE, {"before": now_ms - KEPT_MS})


def new_history(state: SourceState, now_ms: int, reason: str) -> SourceState:
    """An epoch that a person begins: names and servers that were known belong to earlier ones."""
    return replace(begin_epoch(state, now_ms, reason), names={}, origins={})


def _encode(state: SourceState) -> str:
    values: dict[str, Any] = asdict(state)
    values["newest"] = {str(epoch): position for epoch, position in state.newest.items()}
    return orjson.dumps(values).decode()


def _decode(text: str) -> SourceState:
    values = orjson.loads(text)
    values["newest"] = {int(epoch): position for epoch, position in values["newest"].items()}
    values["history"] = tuple(values["history"])
    return SourceState(**values)
