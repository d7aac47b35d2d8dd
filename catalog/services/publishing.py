"""Commits to several tables together with rows of the caller, in one SQL transaction, under one number.

Unlike an open transaction, nothing is stored before: the caller has written all files and sends the
requirements and updates of all tables at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from catalog import locations
from catalog.errors import Conflict, NoSuchTable
from catalog.models import CatalogEntry, WriteRequest
from catalog.services.catalog import Catalog, CurrentState
from catalog.services.commits import (
    TableCommit,
    add_to_plan,
    check_commits,
    remove_outdated,
)
from catalog.services.writes import WriteContext, WritePlan, write_with_retry
from catalog.store.entries import InTransaction
from catalog.store.entries import write as write_changes


class TableChanged(Conflict):
    """A table is not what the commit was made for; nothing was written."""

    type = "CommitFailedException"


def publish_commits(
    catalog: Catalog,
    warehouse: str,
    principal: str,
    commits: Sequence[TableCommit],
    in_transaction: InTransaction,
) -> int | None:
    """Apply all commits and run `in_transaction`, or nothing. Returns the number, None if no table changed.

    `in_transaction` then gets the newest number. TableChanged names the table whose requirement does not
    hold.
    """
    state = _PublishState(catalog, warehouse, in_transaction)
    check_commits(list(commits))
    for commit in commits:
        locations.check_updates(state.warehouse, commit.updates)
    outdated: list[str] = []
    write_with_retry(
        catalog, state, WriteContext(principal), lambda: _make_plan(catalog, state, commits, outdated)
    )
    if state.written is None:
        number = state.number() or 0
        catalog.database.write(lambda connection: in_transaction(connection, number))
    if outdated:
        remove_outdated(catalog, outdated)
    return state.written


class _PublishState(CurrentState):
    """The current state; a write of it also writes the rows of the caller, and remembers its number."""

    def __init__(self, catalog: Catalog, warehouse: str, in_transaction: InTransaction) -> None:
        super().__init__(catalog.database, catalog.entries, warehouse, catalog.documents)
        self._in_transaction = in_transaction
        self.written: int | None = None

    def write(self, request: WriteRequest) -> int:
        written = write_changes(self._database, self.prefix, request, self._in_transaction)
        self.written = written.number
        return written.first_version


def _make_plan(
    catalog: Catalog, state: _PublishState, commits: Sequence[TableCommit], outdated: list[str]
) -> WritePlan[list[CatalogEntry]]:
    plan: WritePlan[list[CatalogEntry]] = WritePlan(result=[])
    outdated.clear()
    now_ms = catalog.now_ms()
    for commit in commits:
        try:
            add_to_plan(catalog, state, commit, state.load(*commit.key), plan, outdated, now_ms)
        except (Conflict, NoSuchTable) as error:
            raise TableChanged(
                f"{commit.identifier} has changed since the batch was leased: {error.message}. "
                "Nothing was published. Load the tables and do the batch again"
            ) from error
    return plan
