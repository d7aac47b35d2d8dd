"""The description of a job that a worker gets: its tables as they are, or as they will be.

A new table or column is described as it will be; nothing is stored. The worker sends the requirements and
updates back with its publish.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from catalog.errors import AlreadyExists, CommitFailed
from catalog.metadata.commit import apply
from catalog.metadata.tables import creation_updates, with_refs_only
from catalog.names import Identifier, Namespace
from catalog.services import namespaces, tables
from catalog.services.catalog import Catalog, CurrentState
from catalog.services.writes import WriteContext
from ingest.store.mirrors import why_paused
from ingest.store.tables import LandingTables

COMMIT = "commit"  # the kind of a job that lands a batch

# Fields that grow with the age of a table and that no worker needs.
_HISTORY = ("snapshot-log", "metadata-log", "statistics", "partition-statistics")
State = dict[str, Any]


def with_states(catalog: Catalog, principal: str, job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the job with the states of its tables instead of the requests that lead to them.

    CommitFailed or AlreadyExists if a request no longer fits the table: the job must be cut again.
    """
    state = CurrentState(catalog.database, catalog.entries, job["warehouse"], catalog.documents)
    if job["kind"] == COMMIT:
        _require_unchanged_mirrors(catalog, state, job)
    return {**job, "tables": [_with_states(catalog, state, principal, table) for table in job["tables"]]}


def _with_states(
    catalog: Catalog, state: CurrentState, principal: str, table: Mapping[str, Any]
) -> dict[str, Any]:
    namespace = Namespace(tuple(table["namespace"]))
    requests = table["requests"]
    if any("table" not in request for request in requests):
        raise CommitFailed(f"{namespace}.{table['name']} was staged by an older version: it is staged again")
    if any("create" in request for request in requests):
        _ensure_namespace(catalog, state, principal, namespace)
    rejects = table.get("rejects") or {}
    names = [name for name in (table["mirror"], table["changes"], rejects.get("name")) if name is not None]
    states = {
        name: _state(
            catalog,
            state,
            Identifier(namespace, name),
            [request for request in requests if request["table"] == name],
        )
        for name in names
    }
    return {**{key: value for key, value in table.items() if key != "requests"}, "states": states}


def _require_unchanged_mirrors(catalog: Catalog, state: CurrentState, job: Mapping[str, Any]) -> None:
    """CommitFailed if others have rolled a mirror back, emptied or dropped it since the batch was staged.
    Staged again, its changes wait for the owner of the table.
    """
    mirrors = {
        (*table["namespace"], table["name"]): table for table in job["tables"] if table["mirror"] is not None
    }
    rows = LandingTables(catalog.database).some(job["warehouse"], mirrors)
    for name, table in mirrors.items():
        namespace = Namespace(tuple(table["namespace"])).key
        mirror = _metadata(catalog, state, namespace, table["mirror"])
        changes = _metadata(catalog, state, namespace, table["changes"])
        reason = why_paused(replace(rows[name], rebuild=None), mirror, changes)
        if reason is not None:
            raise CommitFailed(reason)


def _metadata(
    catalog: Catalog, state: CurrentState, namespace: str, name: str | None
) -> Mapping[str, Any] | None:
    """Return the metadata of a table; None if there is none, or if the job does not write to it."""
    entry = state.load(namespace, name) if name is not None else None
    return catalog.documents.parsed(entry) if entry is not None and entry.kind == "table" else None


def _ensure_namespace(catalog: Catalog, state: CurrentState, principal: str, namespace: Namespace) -> None:
    """Create a namespace outside the SQL transaction of the publish: two batches that need the same new one
    would wait for each other.
    """
    for depth in range(1, len(namespace.levels) + 1):
        level = Namespace(namespace.levels[:depth])
        if state.entry(level.key, "") is None:
            try:
                namespaces.create(catalog, state, WriteContext(principal), level, {})
            except AlreadyExists:
                continue  # another batch created it meanwhile


def _state(catalog: Catalog, state: CurrentState, identifier: Identifier, requests: list[Any]) -> State:
    entry = state.load(identifier.namespace.key, identifier.name)
    creations = [request["create"] for request in requests if "create" in request]
    if creations:
        metadata = tables.stage(catalog, state, identifier, creations[0])
        return _described(metadata, [{"type": "assert-create"}], creation_updates(metadata))
    if entry is None or entry.kind != "table":
        raise CommitFailed(f"{identifier} was dropped after the batch was staged: the batch is staged again")
    metadata = catalog.documents.parsed(entry)
    requirements = [item for request in requests for item in request["commit"]["requirements"]]
    updates = [item for request in requests for item in request["commit"]["updates"]]
    if updates:
        metadata = apply(metadata, requirements, updates, now_ms=catalog.now_ms())
    return _described(metadata, requirements, updates)


def _described(metadata: Mapping[str, Any], requirements: list[Any], updates: list[Any]) -> State:
    document = {name: value for name, value in metadata.items() if name not in _HISTORY}
    return {
        "metadata": with_refs_only(document),
        "requirements": requirements,
        "updates": updates,
    }
