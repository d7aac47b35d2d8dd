"""The tables in which changes land, in SQL: their settings, how far each has landed, watermarks."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson
import sqlalchemy as sa

from catalog.errors import CommitFailed
from catalog.store.database import Database
from ingest.change import RESERVED_SUFFIXES, TableName
from ingest.settings import TableSettings
from ingest.store.resyncs import RUNNING_RESYNCS, Resync, publish_resync, resyncs_of
from ingest.store.schema import (
    OF_A_WAREHOUSE,
    claims,
    jobs,
    landing_mirrors,
    landing_tables,
    landing_watermarks,
)

CHANGES_SUFFIX, REJECTS_SUFFIX = RESERVED_SUFFIXES
_of_table = (
    landing_tables.c.warehouse == sa.bindparam("w"),
    landing_tables.c.table_key == sa.bindparam("t"),
)
_shown = sa.select(
    *(column for column in landing_tables.c if column.name != "warehouse"),
    landing_mirrors.c.rebuild,
    landing_mirrors.c.key_history,
    landing_mirrors.c.key_reason,
).select_from(
    landing_tables.outerjoin(
        landing_mirrors,
        sa.and_(
            landing_mirrors.c.warehouse == landing_tables.c.warehouse,
            landing_mirrors.c.table_key == landing_tables.c.table_key,
        ),
    )
)
_ALL = _shown.where(landing_tables.c.warehouse == sa.bindparam("w"))
_ONE = _shown.where(*_of_table)
_WATERMARKS = sa.select(
    landing_watermarks.c.table_key,
    landing_watermarks.c.source,
    landing_watermarks.c.position,
    landing_watermarks.c.time_ms,
    landing_watermarks.c.updated_ms,
).where(landing_watermarks.c.warehouse == sa.bindparam("w"))
# Two processes may see a new table at once; both databases support this clause.
_ENSURE = sa.text("INSERT INTO landing_tables (warehouse, table_key) VALUES (:w, :t) ON CONFLICT DO NOTHING")
_SET_SETTINGS = sa.update(landing_tables).where(*_of_table).values(settings=sa.bindparam("settings"))
_LAND = (
    sa.update(landing_tables)
    .where(*_of_table, landing_tables.c.landed_id == sa.bindparam("from_id"))
    .values(
        landed_id=sa.bindparam("to_id"),
        number=sa.bindparam("number"),
        commit_us=sa.bindparam("commit_us"),
        # A batch of rejects alone writes neither table.
        mirror_snapshot_id=sa.func.coalesce(
            sa.bindparam("mirror", type_=sa.BigInteger), landing_tables.c.mirror_snapshot_id
        ),
        changes_snapshot_id=sa.func.coalesce(
            sa.bindparam("changes", type_=sa.BigInteger), landing_tables.c.changes_snapshot_id
        ),
        load_key=sa.bindparam("load_key"),
        events=landing_tables.c.events + sa.bindparam("events"),
        rejects=landing_tables.c.rejects + sa.bindparam("rejects"),
        notice=sa.bindparam("notice"),
    )
)
_SKIP = (
    sa.update(landing_tables)
    .where(
        *_of_table,
        landing_tables.c.landed_id == sa.bindparam("from_id"),
        ~sa.exists().where(claims.c.warehouse == sa.bindparam("w"), claims.c.table_key == sa.bindparam("t")),
    )
    .values(landed_id=sa.bindparam("to_id"))
)
_of_source = (
    landing_watermarks.c.warehouse == sa.bindparam("w"),
    landing_watermarks.c.table_key == sa.bindparam("t"),
    landing_watermarks.c.source == sa.bindparam("s"),
)
_POSITION = sa.select(landing_watermarks.c.position).where(*_of_source)
_INSERT_WATERMARK = sa.insert(landing_watermarks)
_MOVE_WATERMARK = (
    sa.update(landing_watermarks)
    .where(*_of_source)
    .values(
        position=sa.bindparam("position"),
        time_ms=sa.bindparam("time_ms"),
        updated_ms=sa.bindparam("updated_ms"),
    )
)


def key_of(table: TableName) -> str:
    return "\x1f".join(table)


def name_of(key: str) -> TableName:
    return tuple(key.split("\x1f")) if key else ()  # (): events that name no table


@dataclass(frozen=True, slots=True)
class LandedTable:
    """One row: the settings, and what is visible."""

    table: TableName
    settings: TableSettings
    landed_id: int
    number: int | None
    commit_us: int
    mirror_snapshot_id: int | None
    changes_snapshot_id: int | None
    load_key: str | None
    events: int
    rejects: int
    notice: str | None
    rebuild: str | None = None  # why the mirror must be rebuilt; nothing lands before that
    keys: str | None = None  # JSON; all keys that the mirror had, the newest last
    key_reason: str | None = None

    @property
    def known_key(self) -> tuple[str, ...]:
        """Return the key of the mirror; empty if it has none, or nothing has landed."""
        return tuple((orjson.loads(self.keys or "[]") or [()])[-1])


@dataclass(frozen=True, slots=True)
class Watermark:
    table: TableName
    source: str
    position: str
    time_ms: int | None
    updated_ms: int


@dataclass(frozen=True, slots=True)
class TableAdvance:
    """How a publish advances one table: from one journal id to the next, and what is visible afterwards."""

    table: TableName
    from_id: int
    to_id: int
    events: int
    rejects: int
    load_key: str | None
    notice: str | None
    watermarks: Mapping[str, tuple[str, int | None]]  # source -> newest position, time at the source
    oldest_ms: int = 0  # when the oldest of its changes was acknowledged
    resync: int | None = None  # the generation of the resync that it publishes
    keeps_changes: bool = True  # the changes table gets the changes
    key: tuple[str, ...] = ()
    key_reason: str | None = None
    columns: tuple[str, ...] = ()  # of the table, if its key is a guess
    evidence: Mapping[str, Any] | None = None  # about a guessed key
    doubt: str | None = None  # why the mirror may be wrong after it


class LandingTables:
    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self, warehouse: str) -> dict[TableName, LandedTable]:
        found = map(_landed, self._database.fetch_all(_ALL, {"w": warehouse}))
        return {row.table: row for row in found}

    def one(self, warehouse: str, table: TableName) -> LandedTable:
        row = self._database.fetch_one(_ONE, {"w": warehouse, "t": key_of(table)})
        return _landed(row) if row is not None else _unseen(table)

    def some(self, warehouse: str, tables: Collection[TableName]) -> dict[TableName, LandedTable]:
        if len(tables) == 1:
            return {table: self.one(warehouse, table) for table in tables}
        known = self.all(warehouse)
        return {table: known.get(table) or _unseen(table) for table in tables}

    def watermarks(self, warehouse: str) -> list[Watermark]:
        found = self._database.fetch_all(_WATERMARKS, {"w": warehouse})
        return [Watermark(name_of(key), *more) for key, *more in found]

    def resyncs(self, warehouse: str) -> dict[TableName, Resync]:
        """Return the running resyncs."""
        rows = self._database.fetch_all(RUNNING_RESYNCS, {"w": warehouse})
        return resyncs_of(rows) if rows else {}

    def set_settings(
        self,
        warehouse: str,
        table: TableName,
        settings: TableSettings,
        also: Callable[[sa.Connection], None] = lambda _: None,  # in the same SQL transaction
    ) -> None:
        def work(connection: sa.Connection) -> None:
            also(connection)
            where = {"w": warehouse, "t": key_of(table)}
            connection.execute(_ENSURE, where)
            text = orjson.dumps(settings.as_json()).decode()
            connection.execute(_SET_SETTINGS, where | {"settings": text})

        self._database.write(work)

    def skip(self, warehouse: str, table: TableName, from_id: int, to_id: int) -> bool:
        """Advance a table past changes that will not land. Returns False if a batch of it is being landed."""

        def work(connection: sa.Connection) -> bool:
            where = {"w": warehouse, "t": key_of(table)}
            connection.execute(_ENSURE, where)
            moved = connection.execute(_SKIP, where | {"from_id": from_id, "to_id": to_id})
            return moved.rowcount == 1

        return self._database.write(work)

    def forget_warehouse(self, warehouse: str) -> None:
        """Delete the rows of a warehouse that was dropped."""

        def work(connection: sa.Connection) -> None:
            for table in OF_A_WAREHOUSE:
                connection.execute(sa.delete(table).where(table.c.warehouse == warehouse))
            connection.execute(sa.delete(jobs).where(jobs.c.warehouse == warehouse, jobs.c.state != "done"))

        self._database.write(work)


def land(
    connection: sa.Connection,
    warehouse: str,
    step: TableAdvance,
    *,
    number: int,
    commit_us: int,
    snapshots: tuple[int | None, int | None],
) -> None:
    """Advance one table inside a publish. CommitFailed if it has not landed up to where the batch began."""
    where = {"w": warehouse, "t": key_of(step.table)}
    connection.execute(_ENSURE, where)
    moved = connection.execute(
        _LAND,
        where
        | {
            "from_id": step.from_id,
            "to_id": step.to_id,
            "number": number,
            "commit_us": commit_us,
            "mirror": snapshots[0],
            "changes": snapshots[1],
            "load_key": step.load_key,
            "events": step.events,
            "rejects": step.rejects,
            "notice": step.notice,
        },
    )
    if moved.rowcount != 1:
        raise CommitFailed(f"{'.'.join(step.table)} has landed beyond {step.from_id}: the batch is not due")
    if step.resync is not None:
        publish_resync(connection, warehouse, step.table, step.resync, number)
    for source, (position, time_ms) in step.watermarks.items():
        _move_watermark(connection, where | {"s": source}, position, time_ms)


def _move_watermark(
    connection: sa.Connection, where: dict[str, str], position: str, time_ms: int | None
) -> None:
    found = connection.execute(_POSITION, where).fetchone()
    values = {"position": position, "time_ms": time_ms, "updated_ms": time.time_ns() // 1_000_000}
    if found is None:
        row = {"warehouse": where["w"], "table_key": where["t"], "source": where["s"], **values}
        connection.execute(_INSERT_WATERMARK, row)
    elif position > found[0]:
        connection.execute(_MOVE_WATERMARK, where | values)


def _landed(row: tuple[object, ...]) -> LandedTable:
    key, settings, *rest = row
    return LandedTable(name_of(str(key)), _settings(str(settings)), *rest)  # type: ignore[arg-type]


@lru_cache(maxsize=1_000)
def _settings(text: str) -> TableSettings:
    """Parse settings once: each look for work reads those of all tables, and most have the same."""
    return TableSettings.of(orjson.loads(text))


def _unseen(table: TableName) -> LandedTable:
    return LandedTable(table, _settings("{}"), 0, None, 0, None, None, None, 0, 0, None)


_SAVE_HEAD = sa.text(
    "INSERT INTO landing_journals (warehouse, journal_id, head) VALUES (:w, :j, :head)"
    " ON CONFLICT (warehouse) DO UPDATE SET journal_id = excluded.journal_id, head = excluded.head"
)


def save_head(connection: sa.Connection, warehouse: str, journal_id: str, head: int) -> None:
    """Save the head of the journal, inside a publish."""
    connection.execute(_SAVE_HEAD, {"w": warehouse, "j": journal_id, "head": head})
