"""The view `<table>__history` over the changes table: the versions of each row, with the time in which each
was valid.

`Housekeeping` maintains the views of all tables that have the setting `history-view`: it creates them, adds
new columns, and drops them when the changes table is gone.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from catalog.errors import CatalogError, Conflict
from catalog.names import Identifier, Namespace
from catalog.services import tables, views
from catalog.services.catalog import Catalog, CurrentState
from catalog.services.writes import WriteContext
from ingest.change import TableName
from ingest.identity import current_schema, key_of_table
from ingest.settings import TableSettings
from ingest.store.tables import CHANGES_SUFFIX, LandedTable

HISTORY_SUFFIX = "__history"
VALID_FROM, VALID_TO = "_valid_from", "_valid_to"
_OWN = "calve.history-of"  # a property of the view: the table whose history it shows
_DIGEST = "calve.history-digest"
_PRINCIPAL = "calve"
_QUOTES = {"spark": "`", "trino": '"'}
_TRUNCATES = {
    "spark": "collect_list(named_struct('s', {s}, 'p', {p}, 'c', {c}, 't', {t}))",
    "trino": "array_agg(CAST(ROW({s}, {p}, {c}, {t}) AS ROW(s varchar, p varchar, "
    "c timestamp(6) with time zone, t timestamp(6) with time zone)))",
}

_log = logging.getLogger(__name__)


def history_sql(
    dialect: str, table: str, columns: Sequence[str], key: Sequence[str], names: Mapping[str, str]
) -> str:
    """Return the query of the view. `table` is the changes table, `names` are its columns about changes.

    Versions of a key are in the order of their positions, if all have one and are of one source; else in the
    order of their commits. They are valid from the time at the source, if all have one, else from the commit.
    A version ends with the next one, with a delete, or with a truncate.
    """
    mark = _QUOTES[dialect]

    def quoted(name: str) -> str:
        return mark + name.replace(mark, mark * 2) + mark

    own = {name: quoted(column) for name, column in names.items()}
    of_key = f"OVER (PARTITION BY {', '.join(quoted(column) for column in key)})"
    source, commit, time = own["source"], own["commit-timestamp"], own["source-timestamp"]
    position = f"coalesce({own['position']}, '')"
    facts = {"s": source, "p": position, "c": commit, "t": f"coalesce({time}, {commit})"}
    listed = _TRUNCATES[dialect].format(**facts)
    ends = (
        f"array_min(transform(filter(calve_truncates, x -> CASE WHEN x.s = {source} AND x.p > '' AND "
        f"{position} > '' THEN x.p > {position} ELSE x.c > {commit} END), x -> x.t))"
    )
    shown = ", ".join(quoted(column) for column in columns)
    is_ordered = f"min({source}) {of_key} = max({source}) {of_key} AND min({position}) {of_key} > ''"
    # The names are quoted, and the view has no parameters.
    return (
        "WITH calve_truncated AS ("  # noqa: S608
        f"SELECT {listed} AS calve_truncates FROM {quoted(table)} WHERE {own['operation']} = 'truncate'), "
        "calve_ordered AS ("
        f"SELECT *, CASE WHEN {is_ordered} THEN {own['position']} ELSE '' END AS calve_order, "
        f"CASE WHEN count(*) {of_key} = count({time}) {of_key} THEN {time} ELSE {commit} END AS calve_time "
        f"FROM {quoted(table)} WHERE {own['operation']} <> 'truncate'), "
        "calve_versions AS ("
        f"SELECT calve_ordered.*, calve_truncates, lead(calve_time) {of_key[:-1]} ORDER BY calve_order, "
        f"{commit}, {position}, {own['event-id']}) AS calve_next "
        "FROM calve_ordered CROSS JOIN calve_truncated), "
        f"calve_ended AS (SELECT *, {ends} AS calve_emptied FROM calve_versions) "
        f"SELECT {shown}, {own['operation']}, {source}, {own['position']}, {commit}, "
        f"calve_time AS {quoted(VALID_FROM)}, "
        "CASE WHEN calve_emptied IS NULL OR calve_next <= calve_emptied THEN calve_next ELSE calve_emptied "
        f"END AS {quoted(VALID_TO)} FROM calve_ended WHERE {own['operation']} <> 'delete'"
    )


class HistoryViews:
    """Maintains the views. Several servers may do this: a view that another has changed is left as it is."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._failed: dict[tuple[str, TableName], str] = {}  # reasons that were logged

    def keep(self, warehouse: str, landed: LandedTable) -> None:
        """Create, change or drop the view of a table, by its settings and its changes table. Conflict if
        another table or view has its name.
        """
        table, settings = landed.table, landed.settings
        state = CurrentState(
            self._catalog.database, self._catalog.entries, warehouse, self._catalog.documents
        )
        view = Identifier(Namespace(table[:-1]), table[-1] + HISTORY_SUFFIX)
        wanted = self._request(state, table, settings) if settings.history_view else None
        found = state.load(view.namespace.key, view.name)
        known = orjson.loads(found.document or b"{}") if found is not None else None
        is_own = known is not None and (known.get("properties") or {}).get(_OWN) == table[-1]
        context = WriteContext(_PRINCIPAL)
        if wanted is None:
            if is_own:
                tables.drop(self._catalog, state, context, view, "view")
        elif known is None:
            views.create(self._catalog, state, context, view, {**wanted, "name": view.name})
        elif not is_own:
            raise Conflict(f"{view} exists and is no history of {table[-1]}: rename or drop it")
        elif known["properties"].get(_DIGEST) != wanted["properties"][_DIGEST]:
            updates = [
                {"action": "add-schema", "schema": wanted["schema"]},
                {"action": "add-view-version", "view-version": {**wanted["view-version"], "schema-id": -1}},
                {"action": "set-current-view-version", "view-version-id": -1},
                {"action": "set-properties", "updates": wanted["properties"]},
            ]
            uuid = {"type": "assert-view-uuid", "uuid": known["view-uuid"]}
            views.replace(self._catalog, state, context, view, [uuid], updates)

    def keep_all(self, warehouse: str, landed: Mapping[TableName, LandedTable]) -> None:
        for row in landed.values():
            if not row.settings.history_view or not row.table:
                continue
            try:
                self.keep(warehouse, row)
            except CatalogError as error:
                self._note(warehouse, row.table, error.message)

    def _note(self, warehouse: str, table: TableName, reason: str) -> None:
        """Log each reason once."""
        if self._failed.get((warehouse, table)) != reason:
            self._failed[warehouse, table] = reason
            name = ".".join(table)
            _log.warning(
                "a history view was not updated",
                extra={"warehouse": warehouse, "table": name, "reason": reason},
            )

    def _request(
        self, state: CurrentState, table: TableName, settings: TableSettings
    ) -> dict[str, Any] | None:
        """Return the view as a CreateViewRequest without its name. None without a changes table or a key."""
        namespace, changes_name = Namespace(table[:-1]).key, table[-1] + CHANGES_SUFFIX
        changes = _schema(state, namespace, changes_name)
        mirror = _schema(state, namespace, table[-1])
        key = key_of_table(settings.key, mirror, ())
        if changes is None or not key:
            return None
        added = set(settings.names.values())
        fields = [field for field in changes["fields"] if field["name"] not in added]
        about = {field["name"]: field for field in changes["fields"]}
        shown = ("operation", "source", "position", "commit-timestamp")
        fields += [about[settings.names[name]] for name in shown if settings.names[name] in about]
        last = max(_ids(changes["fields"]))
        columns = [field["name"] for field in fields if field["name"] not in added]
        schema = {
            "type": "struct",
            "schema-id": 0,
            "fields": [
                *({**field, "required": False} for field in fields),
                {"id": last + 1, "name": VALID_FROM, "type": "timestamptz", "required": False},
                {"id": last + 2, "name": VALID_TO, "type": "timestamptz", "required": False},
            ],
        }
        sql = {
            dialect: history_sql(dialect, changes_name, columns, key, settings.names) for dialect in _QUOTES
        }
        version = {
            "version-id": 1,
            "timestamp-ms": self._catalog.now_ms(),
            "schema-id": 0,
            "summary": {"engine-name": "calve"},
            "representations": [
                {"type": "sql", "sql": text, "dialect": dialect} for dialect, text in sql.items()
            ],
            "default-namespace": list(table[:-1]),
        }
        digest = hashlib.sha256(orjson.dumps([schema, sql])).hexdigest()[:16]
        properties = {
            _OWN: table[-1],
            _DIGEST: digest,
            "comment": f"Versions of the rows of {'.'.join(table)}",
        }
        return {"schema": schema, "view-version": version, "properties": properties}


def _schema(state: CurrentState, namespace: str, name: str) -> dict[str, Any] | None:
    entry = state.load(namespace, name)
    if entry is None or entry.kind != "table":
        return None
    return current_schema(orjson.loads(entry.document or b"{}"))


def _ids(given: Any) -> list[int]:
    """Return all field ids in a schema, at any depth."""
    if isinstance(given, list):
        return [number for part in given for number in _ids(part)]
    if not isinstance(given, dict):
        return []
    own = [value for name, value in given.items() if name in ("id", "element-id", "key-id", "value-id")]
    return own + [number for value in given.values() for number in _ids(value)]
