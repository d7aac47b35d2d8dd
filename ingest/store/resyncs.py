"""Resyncs in SQL: the source sends all rows of a table again.

From its beginning on, the changes of the table wait. The end appends a marker to the journal, and everything
between the two lands in one batch, which replaces the rows of the mirror.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import sqlalchemy as sa

from catalog.errors import CommitFailed, Conflict, NotFound
from catalog.store.database import Database
from ingest.change import TableName, table_key, table_name
from ingest.store.schema import landing_resyncs

State = Literal["open", "ending", "published", "aborted", "expired"]
RUNNING: tuple[State, ...] = ("open", "ending")
KEPT_MS = 30 * 86_400_000  # how long the last resync of a table is kept

_of_table = (
    landing_resyncs.c.warehouse == sa.bindparam("w"),
    landing_resyncs.c.table_key == sa.bindparam("t"),
)
_shown = [column for column in landing_resyncs.c if column.name != "warehouse"]
_ONE = sa.select(*_shown).where(*_of_table)
_ALL = sa.select(*_shown).where(landing_resyncs.c.warehouse == sa.bindparam("w"))
RUNNING_RESYNCS = _ALL.where(landing_resyncs.c.state.in_(RUNNING))
_BEGIN = sa.text(
    "INSERT INTO landing_resyncs (warehouse, table_key, generation, state, begin_id, began_ms, changed_ms)"
    " VALUES (:w, :t, 1, 'open', :begin_id, :now, :now)"
    " ON CONFLICT (warehouse, table_key) DO UPDATE SET generation = landing_resyncs.generation + 1,"
    " state = 'open', begin_id = excluded.begin_id, end_id = NULL, began_ms = excluded.began_ms,"
    " changed_ms = excluded.changed_ms, reason = NULL, number = NULL"
    " WHERE landing_resyncs.state NOT IN ('open', 'ending')"
)
_BEGIN_LATER = (
    sa.update(landing_resyncs)
    .where(*_of_table, landing_resyncs.c.generation == sa.bindparam("g"))
    .values(begin_id=sa.bindparam("begin_id"))
)
_END = (
    sa.update(landing_resyncs)
    .where(*_of_table, landing_resyncs.c.generation == sa.bindparam("g"), landing_resyncs.c.state == "open")
    .values(state="ending", end_id=sa.bindparam("end_id"), changed_ms=sa.bindparam("now"))
)
_GIVE_UP = (
    sa.update(landing_resyncs)
    .where(
        *_of_table,
        landing_resyncs.c.generation == sa.bindparam("g"),
        landing_resyncs.c.state.in_(sa.bindparam("states", expanding=True)),
    )
    .values(state=sa.bindparam("state"), reason=sa.bindparam("reason"), changed_ms=sa.bindparam("now"))
)
_PUBLISH = (
    sa.update(landing_resyncs)
    .where(*_of_table, landing_resyncs.c.generation == sa.bindparam("g"), landing_resyncs.c.state == "ending")
    .values(state="published", number=sa.bindparam("number"), changed_ms=sa.bindparam("now"))
)
_FORGET = sa.delete(landing_resyncs).where(
    ~landing_resyncs.c.state.in_(RUNNING), landing_resyncs.c.changed_ms < sa.bindparam("before")
)


class NoSuchResync(NotFound):
    type = "NoSuchResyncException"


@dataclass(frozen=True, slots=True)
class Resync:
    """`begin_id` and `end_id` are journal ids: the changes between them replace the rows of the mirror."""

    table: TableName
    generation: int
    state: State
    begin_id: int
    end_id: int | None
    began_ms: int
    changed_ms: int
    reason: str | None
    number: int | None

    @property
    def is_running(self) -> bool:
        return self.state in RUNNING


def ended(resync: Resync | None, to_id: int) -> Resync | None:
    """Return the resync that a batch up to this id ends."""
    return resync if resync is not None and resync.end_id is not None and resync.end_id <= to_id else None


class Resyncs:
    def __init__(self, database: Database) -> None:
        self._database = database

    def one(self, warehouse: str, table: TableName) -> Resync | None:
        row = self._database.fetch_one(_ONE, {"w": warehouse, "t": table_key(table)})
        return _resync(row) if row is not None else None

    def all(self, warehouse: str) -> dict[TableName, Resync]:
        """Return the last resync of each table."""
        return resyncs_of(self._database.fetch_all(_ALL, {"w": warehouse}))

    def running(self, warehouse: str) -> dict[TableName, Resync]:
        return resyncs_of(self._database.fetch_all(RUNNING_RESYNCS, {"w": warehouse}))

    def begin(self, warehouse: str, table: TableName, begin_id: int) -> Resync:
        """Begin a resync. Conflict if one is running."""
        values = {"w": warehouse, "t": table_key(table), "begin_id": begin_id, "now": _now_ms()}
        begun = self._database.write(lambda connection: connection.execute(_BEGIN, values).rowcount)
        if begun != 1:
            raise Conflict(
                f"a resync of {'.'.join(table)} is running: end it with POST .../resync/end, "
                "or give it up with POST .../resync/abort"
            )
        return self.known(warehouse, table)

    def begin_later(self, warehouse: str, resync: Resync, begin_id: int) -> None:
        """Set the id after which its changes are."""
        values = {"w": warehouse, "t": table_key(resync.table), "g": resync.generation, "begin_id": begin_id}
        self._database.write(lambda connection: connection.execute(_BEGIN_LATER, values))

    def end(self, warehouse: str, resync: Resync, end_id: int) -> bool:
        """End a resync. Returns False if it is no longer open."""
        values = {"w": warehouse, "t": table_key(resync.table), "g": resync.generation, "end_id": end_id}
        values["now"] = _now_ms()
        return self._database.write(lambda connection: connection.execute(_END, values).rowcount == 1)

    def give_up(
        self, warehouse: str, resync: Resync, state: State, reason: str, of: tuple[State, ...] = RUNNING
    ) -> bool:
        """Abort or expire a resync. Returns False if its state has changed."""
        values = {
            "w": warehouse,
            "t": table_key(resync.table),
            "g": resync.generation,
            "states": list(of),
            "state": state,
            "reason": reason,
            "now": _now_ms(),
        }
        return self._database.write(lambda connection: connection.execute(_GIVE_UP, values).rowcount == 1)

    def known(self, warehouse: str, table: TableName) -> Resync:
        found = self.one(warehouse, table)
        if found is None:
            raise NoSuchResync(f"{'.'.join(table)} has no resync: begin one with POST .../resync")
        return found

    def forget_old(self, now_ms: int) -> None:
        values = {"before": now_ms - KEPT_MS}
        self._database.write(lambda connection: connection.execute(_FORGET, values))


def publish_resync(
    connection: sa.Connection, warehouse: str, table: TableName, generation: int, number: int
) -> None:
    """Record the publish of a resync, inside the publish. CommitFailed if it was aborted after its batch was
    staged.
    """
    values = {"w": warehouse, "t": table_key(table), "g": generation, "number": number, "now": _now_ms()}
    if connection.execute(_PUBLISH, values).rowcount != 1:
        raise CommitFailed(f"the resync of {'.'.join(table)} was given up: the batch is not due")


def resyncs_of(rows: Iterable[tuple[object, ...]]) -> dict[TableName, Resync]:
    found = (_resync(row) for row in rows)
    return {resync.table: resync for resync in found}


def _resync(row: tuple[object, ...]) -> Resync:
    return Resync(table_name(str(row[0])), *row[1:])  # type: ignore[arg-type]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
