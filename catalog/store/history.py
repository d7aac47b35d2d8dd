"""The history: the state of a warehouse at any number, and commits as ordered events.

The newest history row of a name at or below a number is its state then. If that row is not `present`, the
name did not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import sqlalchemy as sa

from catalog.models import CatalogEntry, Kind, PastEntry
from catalog.store.database import Database
from catalog.store.entries import READ_NUMBER
from catalog.store.schema import heads, history

_older = history.alias("older")
_warehouse = history.c.warehouse == sa.bindparam("warehouse")
_namespace = history.c.namespace == sa.bindparam("namespace")
_newest_then = history.c.number == (
    sa.select(sa.func.max(_older.c.number))
    .where(
        _older.c.warehouse == history.c.warehouse,
        _older.c.namespace == history.c.namespace,
        _older.c.name == history.c.name,
        _older.c.number <= sa.bindparam("number"),
    )
    .scalar_subquery()
)
READ_ENTRY_AT = (
    sa.select(
        history.c.present,
        history.c.kind,
        history.c.uuid,
        history.c.version,
        history.c.metadata_location,
        history.c.detail,
    )
    .where(
        _warehouse,
        _namespace,
        history.c.name == sa.bindparam("name"),
        history.c.number <= sa.bindparam("number"),
    )
    .order_by(history.c.number.desc())
    .limit(1)
)
READ_NAMES_AT = (
    sa.select(history.c.name)
    .where(
        _warehouse,
        _namespace,
        history.c.kind == sa.bindparam("kind"),
        history.c.present == 1,
        history.c.name > sa.bindparam("after"),
        history.c.number <= sa.bindparam("number"),
        _newest_then,
    )
    .order_by(history.c.name)
    .limit(sa.bindparam("limit", type_=sa.Integer))
)
READ_NAMESPACES_AT = (
    sa.select(history.c.namespace)
    .where(
        _warehouse,
        history.c.kind == "namespace",
        history.c.present == 1,
        history.c.namespace > sa.bindparam("after"),
        history.c.namespace < sa.bindparam("before"),
        history.c.number <= sa.bindparam("number"),
        _newest_then,
    )
    .order_by(history.c.namespace)
    .limit(sa.bindparam("limit", type_=sa.Integer))
)
READ_NUMBER_AT = (
    sa.select(history.c.number)
    .where(_warehouse, history.c.time_ms <= sa.bindparam("time_ms"))
    .order_by(history.c.time_ms.desc(), history.c.number.desc())
    .limit(1)
)
_CLOSE = (
    sa.update(heads)
    .where(heads.c.warehouse == sa.bindparam("w"), heads.c.time_ms < sa.bindparam("earliest_ms"))
    .values(time_ms=sa.bindparam("earliest_ms"))
)
# The numbers of old commits have gaps: maintenance deletes the rows that no kept moment needs.
_numbers = (
    sa.select(history.c.number)
    .where(_warehouse, history.c.number > sa.bindparam("after"))
    .group_by(history.c.number)
    .order_by(history.c.number)
    .limit(sa.bindparam("limit", type_=sa.Integer))
    .subquery()
)
READ_EVENTS = (
    sa.select(history)
    .where(
        _warehouse,
        history.c.number > sa.bindparam("after"),
        history.c.number <= sa.select(sa.func.max(_numbers.c.number)).scalar_subquery(),
    )
    .order_by(history.c.number, history.c.ordinal)
)
READ_VERSIONS = (
    sa.select(history)
    .where(
        _warehouse,
        _namespace,
        history.c.name == sa.bindparam("name"),
        history.c.number < sa.bindparam("before"),
    )
    .order_by(history.c.number.desc())
    .limit(sa.bindparam("limit", type_=sa.Integer))
)

READ_TABLES_BETWEEN = (
    sa.select(history.c.namespace, history.c.name)
    .where(
        _warehouse,
        history.c.number > sa.bindparam("after"),
        history.c.number <= sa.bindparam("until"),
        history.c.kind == "table",
    )
    .distinct()
)
READ_ROWS_OF_NAME = (
    sa.select(history.c.number, history.c.present, history.c.uuid, history.c.detail)
    .where(_warehouse, _namespace, history.c.name == sa.bindparam("name"))
    .order_by(history.c.number)
)
_same_name = (
    _older.c.warehouse == history.c.warehouse,
    _older.c.namespace == history.c.namespace,
    _older.c.name == history.c.name,
)
SCAN = (
    sa.select(
        history.c.number,
        history.c.ordinal,
        history.c.kind,
        history.c.present,
        history.c.uuid,
        history.c.metadata_location,
        history.c.detail,
        sa.select(sa.func.min(_older.c.number))
        .where(*_same_name, _older.c.number > history.c.number)
        .scalar_subquery(),
        sa.exists().where(*_same_name, _older.c.number < history.c.number),
    )
    .where(_warehouse, history.c.number > sa.bindparam("after"), history.c.number <= sa.bindparam("until"))
    .order_by(history.c.number, history.c.ordinal)
    .limit(sa.bindparam("limit", type_=sa.Integer))
)
_DELETE_ROW = sa.delete(history).where(
    _warehouse, history.c.number == sa.bindparam("n"), history.c.ordinal == sa.bindparam("o")
)

CHUNK_ROWS = 1000
NUMBER_MAX = 2**62


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """A row of the history, with the number of the next row of its name, if there is one."""

    number: int
    ordinal: int
    kind: Kind
    present: bool
    uuid: str
    metadata_location: str | None
    detail: dict[str, Any]
    next_number: int | None
    is_first: bool  # no earlier row of its name is left


class HistoryStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    def entry(self, warehouse: str, number: int, namespace: str, name: str) -> PastEntry | None:
        params = {"warehouse": warehouse, "number": number, "namespace": namespace, "name": name}
        row = self._database.fetch_one(READ_ENTRY_AT, params)
        if row is None or not row[0]:
            return None
        detail: dict[str, Any] = orjson.loads(row[5])
        document = orjson.dumps(detail.get("properties", {})) if row[1] == "namespace" else None
        return PastEntry(CatalogEntry(row[1], namespace, name, row[2], row[3], row[4], document), detail)

    def names(
        self, warehouse: str, number: int, namespace: str, kind: Kind, after: str, limit: int
    ) -> list[str]:
        params: dict[str, Any] = {
            "warehouse": warehouse,
            "number": number,
            "namespace": namespace,
            "kind": kind,
        }
        return [
            row[0]
            for row in self._database.fetch_all(READ_NAMES_AT, params | {"after": after, "limit": limit})
        ]

    def children(self, warehouse: str, number: int, parent: str, after: str, limit: int) -> list[str]:
        prefix = parent + "\x1f" if parent else ""
        before = parent + "\x20" if parent else "\U0010ffff"
        found: list[str] = []
        after = max(after, prefix)
        while len(found) < limit:
            params = {
                "warehouse": warehouse,
                "number": number,
                "after": after,
                "before": before,
                "limit": CHUNK_ROWS,
            }
            chunk = [row[0] for row in self._database.fetch_all(READ_NAMESPACES_AT, params)]
            found += [key for key in chunk if "\x1f" not in key[len(prefix) :]]
            if len(chunk) < CHUNK_ROWS:
                break
            after = chunk[-1]
        return found[:limit]

    def number_at(self, warehouse: str, time_ms: int) -> int:
        """The newest number at or before a time; 0 before the first commit. Repeated calls return the same
        number.
        """
        self._close(warehouse, time_ms)
        row = self._database.fetch_one(READ_NUMBER_AT, {"warehouse": warehouse, "time_ms": time_ms})
        return row[0] if row else 0

    def _close(self, warehouse: str, time_ms: int) -> None:
        """Ensure that no later commit gets this time or an earlier one.

        A commit takes its time shortly before it is visible. So this waits for the commit that holds the
        counter's lock, and raises the earliest time of later commits.
        """
        head = self._database.fetch_one(READ_NUMBER, {"warehouse": warehouse})
        if head is not None and head[1] <= time_ms:
            params = {"w": warehouse, "earliest_ms": time_ms + 1}
            self._database.write(lambda connection: connection.execute(_CLOSE, params).rowcount)

    def events(self, warehouse: str, after: int, limit: int) -> list[dict[str, Any]]:
        """Commits after a number, whole and in order: at most `limit` numbers."""
        rows = self._database.fetch_all(READ_EVENTS, {"warehouse": warehouse, "after": after, "limit": limit})
        return [_event(row) for row in rows]

    def written_with(
        self, warehouse: str, namespace: str, name: str, snapshot_ids: list[int]
    ) -> set[tuple[str, str]]:
        """The names that were written by the commit which added these snapshots to a table; empty if there is
        none.
        """
        wanted, before = set(snapshot_ids), NUMBER_MAX
        while rows := self.versions(warehouse, namespace, name, before, CHUNK_ROWS):
            for row in rows:
                if wanted <= set(row["detail"].get("added-snapshots", [])):
                    found = self.events(warehouse, row["number"] - 1, 1)
                    return {(event["namespace"], event["name"]) for event in found}
            before = rows[-1]["number"]
        return set()

    def rows_of(
        self, warehouse: str, namespace: str, name: str
    ) -> list[tuple[int, bool, str, dict[str, Any]]]:
        """(number, present, uuid, detail) of all rows of a name, in order."""
        params = {"warehouse": warehouse, "namespace": namespace, "name": name}
        rows = self._database.fetch_all(READ_ROWS_OF_NAME, params)
        return [(row[0], bool(row[1]), row[2], orjson.loads(row[3])) for row in rows]

    def newest_before(self, warehouse: str, time_ms: int) -> int:
        """The newest number at or before a time, as of now: unlike `number_at`, a later call may return
        another one.
        """
        row = self._database.fetch_one(READ_NUMBER_AT, {"warehouse": warehouse, "time_ms": time_ms})
        return row[0] if row else 0

    def tables_between(self, warehouse: str, after: int, until: int) -> list[tuple[str, str]]:
        """(namespace key, name) of the tables that were changed in (after, until]."""
        params = {"warehouse": warehouse, "after": after, "until": until}
        return [(row[0], row[1]) for row in self._database.fetch_all(READ_TABLES_BETWEEN, params)]

    def scan(self, warehouse: str, after: int, until: int, limit: int) -> list[HistoryRow]:
        """The rows of the numbers in (after, until], in order."""
        params = {"warehouse": warehouse, "after": after, "until": until, "limit": limit}
        return [
            HistoryRow(
                row[0], row[1], row[2], bool(row[3]), row[4], row[5], orjson.loads(row[6]), row[7], not row[8]
            )
            for row in self._database.fetch_all(SCAN, params)
        ]

    def delete(self, warehouse: str, rows: Sequence[HistoryRow]) -> None:
        """Delete rows that no kept moment needs."""
        params = [{"warehouse": warehouse, "n": row.number, "o": row.ordinal} for row in rows]
        if params:
            self._database.write(lambda connection: connection.execute(_DELETE_ROW, params))

    def versions(
        self, warehouse: str, namespace: str, name: str, before: int, limit: int
    ) -> list[dict[str, Any]]:
        """The history of one name, newest first."""
        params = {
            "warehouse": warehouse,
            "namespace": namespace,
            "name": name,
            "before": before,
            "limit": limit,
        }
        return [_event(row) for row in self._database.fetch_all(READ_VERSIONS, params)]


_COLUMNS = [column.name for column in history.columns]


def _event(row: Any) -> dict[str, Any]:
    event = dict(zip(_COLUMNS, row, strict=True))
    event["detail"] = orjson.loads(event["detail"])
    return event
