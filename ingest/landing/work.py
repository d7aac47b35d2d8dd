"""What a worker gets and sends back: the states of a job's tables, and the commits that it publishes.

A new table is described as it will be, and so is a new column. Nothing of it is stored: the worker sends the
requirements and updates back with its publish.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from catalog.errors import AlreadyExists, CommitFailed
from catalog.metadata.commit import apply
from catalog.metadata.tables import creation_updates, with_refs_only
from catalog.models import StagedChange, document_key
from catalog.names import Identifier, Namespace
from catalog.services import namespaces, tables, transactions
from catalog.services.catalog import Catalog, CurrentState
from catalog.services.commits import TableCommit
from catalog.services.publishing import publish_commits
from catalog.services.writes import WriteContext
from catalog.store.entries import InTransaction

# What grows with the age of a table, and no worker needs.
_HISTORY = ("snapshot-log", "metadata-log", "statistics", "partition-statistics")
State = dict[str, Any]


def with_states(catalog: Catalog, principal: str, job: Mapping[str, Any]) -> dict[str, Any]:
    """The job with the states of its tables instead of the requests that lead to them.

    CommitFailed or AlreadyExists if a request does not fit the table any more: the job must be cut again.
    """
    state = CurrentState(catalog.database, catalog.entries, job["warehouse"], catalog.documents)
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


def _ensure_namespace(catalog: Catalog, state: CurrentState, principal: str, namespace: Namespace) -> None:
    """Not in the SQL transaction of the publish: two batches that need the same new namespace would wait for
    each other.
    """
    for depth in range(1, len(namespace.levels) + 1):
        level = Namespace(namespace.levels[:depth])
        if state.entry(level.key, "") is None:
            try:
                namespaces.create(catalog, state, WriteContext(principal), level, {})
            except AlreadyExists:
                continue  # another batch made it meanwhile


def _state(catalog: Catalog, state: CurrentState, identifier: Identifier, requests: list[Any]) -> State:
    entry = state.load(identifier.namespace.key, identifier.name)
    creations = [request["create"] for request in requests if "create" in request]
    if creations:
        metadata = tables.stage(catalog, state, identifier, creations[0])
        return _described(metadata, [{"type": "assert-create"}], creation_updates(metadata))
    if entry is None or entry.kind != "table":
        raise CommitFailed(f"{identifier} was dropped after the batch was staged: the batch is staged again")
    metadata = catalog.documents.parsed(document_key(entry), entry.document or b"{}")
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


# -- what a worker publishes

Snapshots = Mapping[tuple[tuple[str, ...], str], int | None]  # by namespace and name


class Work(Protocol):
    def snapshots(self, catalog: Catalog, warehouse: str) -> Snapshots:
        """The current snapshot of each table after the publish."""
        ...

    def publish(
        self, catalog: Catalog, warehouse: str, principal: str, in_transaction: InTransaction
    ) -> int | None:
        """Make it visible and run `in_transaction`, in one SQL transaction; the number."""
        ...


@dataclass(frozen=True, slots=True)
class SentCommits:
    """The commits of all tables, as the request has them."""

    commits: Sequence[TableCommit]

    def snapshots(self, catalog: Catalog, warehouse: str) -> Snapshots:
        return {
            (tuple(commit.identifier.namespace.levels), commit.identifier.name): commit.added_snapshots[-1]
            for commit in self.commits
            if commit.added_snapshots
        }

    def publish(
        self, catalog: Catalog, warehouse: str, principal: str, in_transaction: InTransaction
    ) -> int | None:
        return publish_commits(catalog, warehouse, principal, self.commits, in_transaction)


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The name of an open transaction: a MERGE stages its commits in it."""

    name: str

    def snapshots(self, catalog: Catalog, warehouse: str) -> Snapshots:
        transaction = catalog.open_transaction(warehouse, self.name)
        return {
            (tuple(Namespace.from_key(item.namespace).levels), item.name): _snapshot_id(catalog, item)
            for item in transactions.all_staged(catalog, transaction)
        }

    def publish(
        self, catalog: Catalog, warehouse: str, principal: str, in_transaction: InTransaction
    ) -> int | None:
        return transactions.publish(catalog, warehouse, principal, self.name, in_transaction)[0]


def _snapshot_id(catalog: Catalog, item: StagedChange) -> int | None:
    after = item.after
    if after is None or after.document is None or item.kind != "table":
        return None
    metadata = catalog.documents.parsed(document_key(after), after.document)
    found: int | None = metadata.get("current-snapshot-id")
    return found if found != -1 else None
