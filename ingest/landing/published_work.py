"""What a worker publishes: commits that it sends with the request, or an open transaction that has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from catalog.models import StagedChange
from catalog.names import Namespace
from catalog.services import transactions
from catalog.services.catalog import Catalog
from catalog.services.commits import TableCommit
from catalog.services.publishing import publish_commits
from catalog.services.warehouse_state import document_key
from catalog.store.writes import InTransaction

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
