"""The rules of sources in SQL, and what is paused.

Rules are read for every request, so each process keeps them for a second; the process that sets them uses
them at once.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal

import orjson
import sqlalchemy as sa

from catalog.errors import NotFound
from catalog.store.database import Database
from ingest.change import TableName, table_key, table_name
from ingest.journal.encoded_request import name_key
from ingest.sources.applying import WarehouseRules
from ingest.sources.rules import SourceRules
from ingest.store.schema import landing_pauses, landing_sources

AGE_S_MAX = 1.0
SALT_BYTES = 32

_of_source = (
    landing_sources.c.warehouse == sa.bindparam("w"),
    landing_sources.c.source == sa.bindparam("s"),
)
_ALL = sa.select(landing_sources.c.source, landing_sources.c.rules, landing_sources.c.salt).where(
    landing_sources.c.warehouse == sa.bindparam("w")
)
_SALT = sa.select(landing_sources.c.salt).where(landing_sources.c.warehouse == sa.bindparam("w")).limit(1)
_SET = sa.text(
    "INSERT INTO landing_sources (warehouse, source, rules, salt, changed_ms)"
    " VALUES (:w, :s, :rules, :salt, :now)"
    " ON CONFLICT (warehouse, source) DO UPDATE SET rules = excluded.rules, changed_ms = excluded.changed_ms"
)
_DELETE = sa.delete(landing_sources).where(*_of_source)
_PAUSES = sa.select(
    landing_pauses.c.kind, landing_pauses.c.name, landing_pauses.c.reason, landing_pauses.c.since_ms
).where(landing_pauses.c.warehouse == sa.bindparam("w"))
_PAUSE = sa.text(
    "INSERT INTO landing_pauses (warehouse, kind, name, reason, since_ms) VALUES (:w, :k, :n, :reason, :now)"
    " ON CONFLICT (warehouse, kind, name) DO UPDATE SET reason = excluded.reason"
)
_RESUME = sa.delete(landing_pauses).where(
    landing_pauses.c.warehouse == sa.bindparam("w"),
    landing_pauses.c.kind == sa.bindparam("k"),
    landing_pauses.c.name == sa.bindparam("n"),
)

Kind = Literal["source", "table"]


class NoSuchSource(NotFound):
    type = "NoSuchSourceException"


@dataclass(frozen=True, slots=True)
class Pause:
    reason: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class Pauses:
    """What is paused in a warehouse. Sources by their name in SQL."""

    sources: dict[str, Pause]
    tables: dict[TableName, Pause]


class SourceStore:
    def __init__(self, database: Database, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._known: dict[str, tuple[float, WarehouseRules]] = {}
        self._lock = threading.Lock()

    def rules(self, warehouse: str) -> WarehouseRules:
        """At most a second old."""
        known = self._known.get(warehouse)
        now_s = self._clock()
        if known is not None and now_s - known[0] < AGE_S_MAX:
            return known[1]
        rows = self._database.fetch_all(_ALL, {"w": warehouse})
        by_source = {row[0]: SourceRules.of(orjson.loads(row[1])) for row in rows}
        found = WarehouseRules(by_source, bytes(rows[0][2]) if rows else b"")
        self._known[warehouse] = (now_s, found)
        return found

    def set_rules(self, warehouse: str, source: str, rules: SourceRules) -> None:
        """All sources of a warehouse have one salt, so that their hashes can be joined."""

        def work(connection: sa.Connection) -> None:
            with self._lock:
                salt = connection.execute(_SALT, {"w": warehouse}).scalar() or secrets.token_bytes(SALT_BYTES)
                values: dict[str, Any] = {"rules": orjson.dumps(rules.as_json()).decode(), "salt": salt}
                where = {"w": warehouse, "s": name_key(source)}
                connection.execute(_SET, where | values | {"now": _now_ms()})

        self._database.write(work)
        self._known.pop(warehouse, None)

    def delete_rules(self, warehouse: str, source: str) -> None:
        """NoSuchSource if it has none."""
        where = {"w": warehouse, "s": name_key(source)}
        deleted = self._database.write(lambda connection: connection.execute(_DELETE, where).rowcount)
        self._known.pop(warehouse, None)
        if not deleted:
            raise NoSuchSource(f"The source has no rules: {source}")

    # -- pauses

    def pauses(self, warehouse: str) -> Pauses:
        found = Pauses({}, {})
        for kind, name, reason, since_ms in self._database.fetch_all(_PAUSES, {"w": warehouse}):
            pause = Pause(reason, since_ms)
            if kind == "source":
                found.sources[name] = pause
            else:
                found.tables[table_name(name)] = pause
        return found

    def pause_source(self, warehouse: str, source: str, reason: str) -> None:
        self._pause(warehouse, "source", name_key(source), reason)

    def resume_source(self, warehouse: str, source: str) -> None:
        self._resume(warehouse, "source", name_key(source))

    def pause_table(self, warehouse: str, table: TableName, reason: str) -> None:
        self._pause(warehouse, "table", table_key(table), reason)

    def resume_table(self, warehouse: str, table: TableName) -> None:
        self._resume(warehouse, "table", table_key(table))

    def _pause(self, warehouse: str, kind: Kind, name: str, reason: str) -> None:
        """A pause that is repeated gets the new reason, and keeps its time."""
        values = {"w": warehouse, "k": kind, "n": name, "reason": reason, "now": _now_ms()}
        self._database.write(lambda connection: connection.execute(_PAUSE, values))

    def _resume(self, warehouse: str, kind: Kind, name: str) -> None:
        values = {"w": warehouse, "k": kind, "n": name}
        self._database.write(lambda connection: connection.execute(_RESUME, values))

    # -- lifetime

    def forget_others(self, existing: Callable[[], Collection[str]]) -> None:
        """Delete what is left of warehouses that were dropped."""

        def work(connection: sa.Connection) -> None:
            for table in (landing_sources, landing_pauses):
                found = set(connection.execute(sa.select(table.c.warehouse).distinct()).scalars())
                for warehouse in found - set(existing()) if found else ():
                    connection.execute(sa.delete(table).where(table.c.warehouse == warehouse))

        self._database.write(work)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
