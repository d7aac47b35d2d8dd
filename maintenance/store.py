"""Rows of maintenance: policies, what was done to each table, and files that wait for their deletion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import sqlalchemy as sa

from catalog.store.database import Database, pack, unpack
from catalog.store.schema import (
    dropped,
    entries,
    expired_files,
    history,
    maintenance_policies,
    maintenance_tables,
    staged,
    transactions,
)

_w: sa.BindParameter[str] = sa.bindparam("w")
_u: sa.BindParameter[str] = sa.bindparam("u")
_POLICIES = sa.select(
    maintenance_policies.c.namespace, maintenance_policies.c.name, maintenance_policies.c.policy
).where(maintenance_policies.c.warehouse == _w)
_SET_POLICY = sa.text(
    "INSERT INTO maintenance_policies (warehouse, namespace, name, policy) VALUES (:w, :ns, :n, :policy) "
    "ON CONFLICT (warehouse, namespace, name) DO UPDATE SET policy = excluded.policy"
)
_of_table = (maintenance_tables.c.warehouse == _w, maintenance_tables.c.uuid == _u)
_columns = (
    maintenance_tables.c.uuid,
    maintenance_tables.c.files_after,
    maintenance_tables.c.requested,
    maintenance_tables.c.retry_after_ms,
    maintenance_tables.c.done,
)
_TABLE = sa.select(*_columns).where(*_of_table)
_TABLES = sa.select(*_columns).where(maintenance_tables.c.warehouse == _w)
_ENSURE_TABLE = sa.text(
    "INSERT INTO maintenance_tables (warehouse, uuid, requested) VALUES (:w, :u, '') ON CONFLICT DO NOTHING"
)
_LOWER_FILES_AFTER = (
    sa.update(maintenance_tables)
    .where(*_of_table, maintenance_tables.c.files_after > sa.bindparam("files"))
    .values(files_after=sa.bindparam("files"))
)
_ADD_FILES = sa.insert(expired_files)
_DUE_TABLES = (
    sa.select(expired_files.c.uuid, sa.func.count())
    .where(expired_files.c.warehouse == _w, expired_files.c.due_ms <= sa.bindparam("now"))
    .group_by(expired_files.c.uuid)
)
_DUE_FILES = (
    sa.select(expired_files.c.id, expired_files.c.files)
    .where(
        expired_files.c.warehouse == _w,
        expired_files.c.uuid == _u,
        expired_files.c.due_ms <= sa.bindparam("now"),
    )
    .order_by(expired_files.c.id)
    .limit(sa.bindparam("limit", type_=sa.Integer))
)
_DELETE_FILES = sa.delete(expired_files).where(expired_files.c.id == sa.bindparam("id"))
_known = (
    sa.select(entries.c.uuid)
    .where(entries.c.warehouse == _w)
    .union(sa.select(dropped.c.uuid).where(dropped.c.warehouse == _w))
)
_FORGET_TABLES = sa.delete(maintenance_tables).where(
    maintenance_tables.c.warehouse == _w, maintenance_tables.c.uuid.not_in(_known)
)
_FORGET_FILES = sa.delete(expired_files).where(
    expired_files.c.warehouse == _w, expired_files.c.uuid.not_in(_known)
)
# A table whose retention after its drop has ended is purged (catalog/services/purge.py).
_END_RETENTION = (
    sa.update(dropped)
    .where(
        dropped.c.warehouse == _w,
        dropped.c.kind == "table",
        dropped.c.expires_ms > 0,
        dropped.c.expires_ms <= sa.bindparam("now"),
    )
    .values(expires_ms=0)
)
_FORGET_VIEWS = sa.delete(dropped).where(
    dropped.c.warehouse == _w,
    dropped.c.kind != "table",
    dropped.c.expires_ms > 0,
    dropped.c.expires_ms <= sa.bindparam("now"),
)
_named: sa.BindParameter[list[str]] = sa.bindparam("locations", expanding=True)
_IN_USE = sa.union(
    sa.select(history.c.metadata_location).where(
        history.c.warehouse == _w, history.c.metadata_location.in_(_named)
    ),
    sa.select(entries.c.metadata_location).where(
        entries.c.warehouse == _w, entries.c.metadata_location.in_(_named)
    ),
    sa.select(dropped.c.metadata_location).where(
        dropped.c.warehouse == _w, dropped.c.metadata_location.in_(_named)
    ),
)
_LOCATIONS_CHUNK = 500
_WAITING = (
    sa.select(expired_files.c.uuid, sa.func.count())
    .where(expired_files.c.warehouse == _w)
    .group_by(expired_files.c.uuid)
)
_PAST_LOCATIONS = sa.select(history.c.metadata_location).where(
    history.c.warehouse == _w, history.c.uuid == _u
)
_DOCUMENTS = sa.union_all(
    sa.select(entries.c.document, entries.c.metadata_location, sa.literal(1)).where(
        entries.c.warehouse == _w, entries.c.uuid == _u
    ),
    sa.select(dropped.c.document, dropped.c.metadata_location, sa.literal(0)).where(
        dropped.c.warehouse == _w, dropped.c.uuid == _u
    ),
    sa.select(staged.c.document, staged.c.metadata_location, sa.literal(0))
    .join(transactions, transactions.c.id == staged.c.transaction_id)
    .where(
        transactions.c.warehouse == _w,
        transactions.c.state == "open",
        staged.c.uuid == _u,
        staged.c.present == 1,
    ),
)


@dataclass(frozen=True, slots=True)
class ExpiredFiles:
    """Files that expired snapshots name: candidates for deletion."""

    manifest_lists: list[str] = field(default_factory=list)
    statistics: list[str] = field(default_factory=list)
    metadata_files: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TableRecord:
    """What maintenance knows of a table. `done` has, for each action, when it ran and what it did."""

    uuid: str
    files_after: int = 0  # data files after the last compaction
    requested: frozenset[str] = frozenset()  # actions that a person has requested
    retry_after_ms: int = 0
    done: Mapping[str, Any] = field(default_factory=dict)


class MaintenanceStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    # -- policies

    def policies(self, warehouse: str) -> dict[tuple[str, str], dict[str, Any]]:
        """(namespace key, name) -> policy; ("", "") is the warehouse."""
        rows = self._database.fetch_all(_POLICIES, {"w": warehouse})
        return {(row[0], row[1]): orjson.loads(row[2]) for row in rows}

    def set_policy(self, warehouse: str, namespace: str, name: str, policy: Mapping[str, Any]) -> None:
        text = orjson.dumps(dict(policy)).decode()
        params = {"w": warehouse, "ns": namespace, "n": name, "policy": text}
        self._database.write(lambda connection: connection.execute(_SET_POLICY, params))

    # -- tables

    def table(self, warehouse: str, uuid: str) -> TableRecord:
        row = self._database.fetch_one(_TABLE, {"w": warehouse, "u": uuid})
        return _record(row) if row is not None else TableRecord(uuid)

    def tables(self, warehouse: str) -> dict[str, TableRecord]:
        return {row[0]: _record(row) for row in self._database.fetch_all(_TABLES, {"w": warehouse})}

    def note(
        self, warehouse: str, uuid: str, action: str, facts: Mapping[str, Any], **values: int | str
    ) -> None:
        """Record what an action did, and set columns of the table's row."""

        def work(connection: sa.Connection) -> None:
            where = {"w": warehouse, "u": uuid}
            connection.execute(_ENSURE_TABLE, where)
            row = connection.execute(_TABLE.with_for_update(), where).one()
            before = _record(row)
            changed = {
                "done": orjson.dumps({**before.done, action: dict(facts)}).decode(),
                "requested": ",".join(sorted(before.requested - {action})),
                **values,
            }
            connection.execute(sa.update(maintenance_tables).where(*_of_table).values(**changed), where)

        self._database.write(work)

    def lower_files_after(self, warehouse: str, uuid: str, files: int) -> None:
        """Record that the table has fewer files than after its last compaction."""
        params = {"w": warehouse, "u": uuid, "files": files}
        self._database.write(lambda connection: connection.execute(_LOWER_FILES_AFTER, params))

    def request(self, warehouse: str, uuid: str, action: str) -> None:
        """Record that a person wants an action soon."""

        def work(connection: sa.Connection) -> None:
            where = {"w": warehouse, "u": uuid}
            connection.execute(_ENSURE_TABLE, where)
            before = _record(connection.execute(_TABLE.with_for_update(), where).one())
            values = {"requested": ",".join(sorted(before.requested | {action})), "retry_after_ms": 0}
            connection.execute(sa.update(maintenance_tables).where(*_of_table).values(**values), where)

        self._database.write(work)

    # -- files

    def add_files(self, warehouse: str, uuid: str, due_ms: int, files: ExpiredFiles) -> None:
        packed = pack(orjson.dumps([files.manifest_lists, files.statistics, files.metadata_files]))
        params = {"warehouse": warehouse, "uuid": uuid, "due_ms": due_ms, "files": packed}
        self._database.write(lambda connection: connection.execute(_ADD_FILES, params))

    def tables_with_due_files(self, warehouse: str, now_ms: int) -> list[str]:
        return [row[0] for row in self._database.fetch_all(_DUE_TABLES, {"w": warehouse, "now": now_ms})]

    def due_files(self, warehouse: str, uuid: str, now_ms: int, limit: int) -> list[tuple[int, ExpiredFiles]]:
        params = {"w": warehouse, "u": uuid, "now": now_ms, "limit": limit}
        rows = self._database.fetch_all(_DUE_FILES, params)
        return [(row[0], ExpiredFiles(*orjson.loads(unpack(row[1])))) for row in rows]

    def delete_files(self, ids: Sequence[int]) -> None:
        params = [{"id": id_} for id_ in ids]
        if params:
            self._database.write(lambda connection: connection.execute(_DELETE_FILES, params))

    def metadata_files_in_use(self, warehouse: str, locations: Sequence[str]) -> set[str]:
        """Those of the metadata files that the history, a table or a dropped table refers to."""
        found: set[str] = set()
        for start in range(0, len(locations), _LOCATIONS_CHUNK):
            chunk = list(locations[start : start + _LOCATIONS_CHUNK])
            found |= {
                row[0] for row in self._database.fetch_all(_IN_USE, {"w": warehouse, "locations": chunk})
            }
        return found

    def waiting_files(self, warehouse: str) -> dict[str, int]:
        """For each table, how many expiries wait for the deletion of their files."""
        return {row[0]: row[1] for row in self._database.fetch_all(_WAITING, {"w": warehouse})}

    def queued_files(self, warehouse: str, uuid: str) -> list[ExpiredFiles]:
        return [files for _, files in self.due_files(warehouse, uuid, 2**62, 1_000_000)]

    # -- everything that refers to files of a table

    def documents(self, warehouse: str, uuid: str) -> list[tuple[bytes, str | None, bool]]:
        """(document, metadata location, whether it is current) of the table, of its dropped forms, and in
        open transactions.
        """
        rows = self._database.fetch_all(_DOCUMENTS, {"w": warehouse, "u": uuid})
        return [(unpack(row[0]), row[1], bool(row[2])) for row in rows]

    def metadata_locations(self, warehouse: str, uuid: str) -> set[str]:
        """The metadata files of past versions that the history names."""
        rows = self._database.fetch_all(_PAST_LOCATIONS, {"w": warehouse, "u": uuid})
        return {row[0] for row in rows if row[0] is not None}

    # -- dropped tables

    def end_retention(self, warehouse: str, now_ms: int) -> int:
        """Queue the purge of tables that can no longer be restored. Returns how many."""

        def work(connection: sa.Connection) -> int:
            params = {"w": warehouse, "now": now_ms}
            connection.execute(_FORGET_VIEWS, params)
            return connection.execute(_END_RETENTION, params).rowcount

        return self._database.write(work)

    def forget_missing_tables(self, warehouse: str) -> None:
        """Delete the rows of tables that exist no longer, not even as dropped tables."""

        def work(connection: sa.Connection) -> None:
            connection.execute(_FORGET_TABLES, {"w": warehouse})
            connection.execute(_FORGET_FILES, {"w": warehouse})

        self._database.write(work)


def _record(row: Any) -> TableRecord:
    requested = frozenset(part for part in row[2].split(",") if part)
    return TableRecord(row[0], row[1], requested, row[3], orjson.loads(row[4]))
