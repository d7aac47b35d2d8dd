"""Tables that are published together, because they once shared a source transaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import sqlalchemy as sa

from catalog.store.database import Database
from ingest.change import TableName
from ingest.journal.keys import table_name
from ingest.journal.schema import companions
from ingest.journal.statements import run_many

Groups = Mapping[str, str]  # table key -> the key of its group

_ALL = sa.select(companions.c.table_key, companions.c.group_key).where(
    companions.c.warehouse == sa.bindparam("w")
)
_SET = sa.text(
    "INSERT INTO journal_companions (warehouse, table_key, group_key) VALUES (:w, :t, :g)"
    " ON CONFLICT (warehouse, table_key) DO UPDATE SET group_key = excluded.group_key"
)


def are_together(known: Groups, tables: Collection[str]) -> bool:
    """True stays true: groups only ever grow together."""
    keys = {known.get(table) for table in tables}
    return len(keys) == 1 and None not in keys


def union(known: Groups, shared: Iterable[Collection[str]]) -> dict[str, str]:
    """All tables with the key of their group (the least of its tables), after these have met."""
    leader = dict(known)
    members: dict[str, set[str]] = {}
    for table, key in leader.items():
        members.setdefault(key, set()).add(table)
    for tables in shared:
        keys = {leader.get(table, table) for table in tables}
        joined = set(tables).union(*(members.pop(key, set()) for key in keys))
        key = min(joined)
        members[key] = joined
        leader |= dict.fromkeys(joined, key)
    return leader


def join(connection: sa.Connection, warehouse: str, shared: Iterable[Collection[str]]) -> dict[str, str]:
    """Put these sets of tables together, inside an append. Answers all groups as they are then."""
    before = {row[0]: row[1] for row in connection.execute(_ALL, {"w": warehouse})}
    after = union(before, shared)
    rows = [
        {"w": warehouse, "t": table, "g": key} for table, key in after.items() if before.get(table) != key
    ]
    run_many(_SET, connection, rows)
    return after


def groups(database: Database, warehouse: str) -> list[frozenset[TableName]]:
    found: dict[str, set[TableName]] = {}
    for table, key in database.fetch_all(_ALL, {"w": warehouse}):
        found.setdefault(key, set()).add(table_name(table))
    return [frozenset(tables) for tables in found.values() if len(tables) > 1]
