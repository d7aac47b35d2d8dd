"""The rules and pauses of sources: stored in SQL, and applied to each request."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import orjson
import sqlalchemy as sa

from catalog.errors import NotFound
from catalog.store.database import Database
from ingest.change import (
    Change,
    ParsedRequest,
    Refused,
    Reject,
    TableName,
    checked_table,
    original_of,
    table_key,
    table_name,
)
from ingest.journal.encoded_request import name_key
from ingest.settings import TypeChanges
from ingest.sources.hiding import hashed, hide, hide_content
from ingest.sources.rules import SourceRules, rules_of_table
from ingest.store.schema import landing_pauses, landing_sources

EXCLUDED = "the rules of the source exclude its table"


@dataclass(frozen=True, slots=True)
class WarehouseRules:
    """The rules of all sources of a warehouse, by the name of the source in SQL."""

    by_source: Mapping[str, SourceRules] = field(default_factory=dict)
    salt: bytes = b""

    def of(self, source: str) -> SourceRules | None:
        return self.by_source.get(name_key(source)) if self.by_source else None

    @property
    def hide_columns(self) -> bool:
        return any(rules.hides_columns for rules in self.by_source.values())

    def type_changes(self, sources: Iterable[str]) -> TypeChanges:
        """Return the rule for a table of these sources. If they differ, it is the one that changes least."""
        rules = {own.type_changes for source in sources if (own := self.of(source)) is not None}
        return "reject" if "reject" in rules else "split" if "split" in rules else "convert"


NO_RULES = WarehouseRules()


def apply(parsed: ParsedRequest, rules: WarehouseRules) -> ParsedRequest:
    """Return the request as it may be stored. Excluded changes are kept without their rows: they have been
    received, and a source that numbers its changes or announces the size of a transaction counts them too.
    """
    if not _concerns(parsed, rules):
        return parsed
    found = ParsedRequest(parsed.format, parsed.events, ends=parsed.ends, begins=parsed.begins)
    found.batch, found.epoch, found.load_ends = parsed.batch, parsed.epoch, parsed.load_ends
    found.ignored = dict(parsed.ignored)
    found.excluded = list(parsed.excluded)
    found.rejects = [_reject(reject, rules) for reject in parsed.rejects]
    for change in parsed.changes:
        own = rules.of(change.source)
        if own is None:
            found.changes.append(change)
        else:
            _apply_to(change, own, rules.salt, found)
    stored = {change.index for change in found.changes} | {reject.index for reject in found.rejects}
    found.ignored |= {change.index: EXCLUDED for change in found.excluded if change.index not in stored}
    return found


def hide_columns(changes: Sequence[Change], rules: WarehouseRules) -> list[Change]:
    """Hide columns in changes of events that a user has fixed, or that were stored before the rules
    were set.
    """
    found = []
    for change in changes:
        own = rules.of(change.source)
        table = None if own is None else rules_of_table(own, change.table)
        found.append(hide(change, table, rules.salt) if table is not None and table.hidden else change)
    return found


def _concerns(parsed: ParsedRequest, rules: WarehouseRules) -> bool:
    if not rules.by_source:
        return False
    if parsed.columns is not None and parsed.columns.size == parsed.events:
        return rules.of(parsed.columns.same["source"]) is not None  # otherwise the columns stay columns
    return True


def _apply_to(change: Change, rules: SourceRules, salt: bytes, found: ParsedRequest) -> None:
    own = rules_of_table(rules, change.table)
    if own.is_excluded:
        found.excluded.append(replace(change, before=None, after=None, row_id=None, declared=None))
        return
    try:
        hidden = hide(change, own, salt) if own.hidden else change
        found.changes.append(replace(hidden, table=checked_table(own.table)))
    except Refused as refused:
        found.rejects.append(
            Reject(
                change.index,
                refused.reason,
                original_of({"operation": change.operation, "table": ".".join(change.table)}),
                refused.code,
                None if refused.code == "bad-table" else own.table,
                change.source,
                change.position,
                hashed(change.identity, salt) or "" if change.identity else "",
                change.number,
            )
        )


def _reject(reject: Reject, rules: WarehouseRules) -> Reject:
    own = rules.of(reject.source)
    table = reject.table
    if own is not None and table is not None:
        table = rules_of_table(own, table).table
    hides = own.hides_columns if own is not None else not reject.source and rules.hide_columns
    return replace(hide_content(reject, rules.salt) if hides else reject, table=table)


# -- rules and pauses in SQL

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
    """The paused sources and tables of a warehouse. Sources by their name in SQL."""

    sources: dict[str, Pause]
    tables: dict[TableName, Pause]


class SourceStore:
    def __init__(self, database: Database, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._known: dict[str, tuple[float, WarehouseRules]] = {}
        self._lock = threading.Lock()

    def rules(self, warehouse: str) -> WarehouseRules:
        """Return the rules; at most a second old."""
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
        """Set the rules. All sources of a warehouse share one salt, so that their hashes can be joined."""

        def work(connection: sa.Connection) -> None:
            with self._lock:
                salt = connection.execute(_SALT, {"w": warehouse}).scalar() or secrets.token_bytes(SALT_BYTES)
                values: dict[str, Any] = {"rules": orjson.dumps(rules.as_json()).decode(), "salt": salt}
                where = {"w": warehouse, "s": name_key(source)}
                connection.execute(_SET, where | values | {"now": _now_ms()})

        self._database.write(work)
        self._known.pop(warehouse, None)

    def delete_rules(self, warehouse: str, source: str) -> None:
        """Delete the rules of a source. NoSuchSource if it has none."""
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
        """Pause. A repeated pause gets the new reason, and keeps its time."""
        values = {"w": warehouse, "k": kind, "n": name, "reason": reason, "now": _now_ms()}
        self._database.write(lambda connection: connection.execute(_PAUSE, values))

    def _resume(self, warehouse: str, kind: Kind, name: str) -> None:
        values = {"w": warehouse, "k": kind, "n": name}
        self._database.write(lambda connection: connection.execute(_RESUME, values))

    # -- lifetime

    def forget_others(self, existing: Callable[[], Collection[str]]) -> None:
        """Delete the rows of warehouses that were dropped."""

        def work(connection: sa.Connection) -> None:
            for table in (landing_sources, landing_pauses):
                found = set(connection.execute(sa.select(table.c.warehouse).distinct()).scalars())
                for warehouse in found - set(existing()) if found else ():
                    connection.execute(sa.delete(table).where(table.c.warehouse == warehouse))

        self._database.write(work)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
