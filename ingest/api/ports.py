"""The interfaces that the API uses: the landing side, and the server's metrics.

The methods of `Landing` may block (they query a database): call them in threads, not on the event loop. They
raise `Unavailable` if the database does not answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Protocol

from ingest.change import TableName


class LandedRow(Protocol):
    """What readers of a table see: the newest publish that brought changes to it."""

    @property
    def landed_id(self) -> int: ...  # the journal id up to which changes of the table are visible

    @property
    def number(self) -> int | None: ...  # of the commit in the warehouse's history; None: there was none yet

    @property
    def commit_us(self) -> int: ...

    @property
    def mirror_snapshot_id(self) -> int | None: ...

    @property
    def changes_snapshot_id(self) -> int | None: ...


class Landing(Protocol):
    def landed(self, warehouse: str, tables: Collection[TableName]) -> Mapping[TableName, int]:
        """The journal id up to which each table is visible; 0, or no entry, where nothing ever landed.

        Every change and every dead letter of the table up to that id is in a snapshot that all engines see.
        The id never falls. It may lie below the journal's head where nothing of the table is pending: the API
        asks only for ids that the table has.
        """

    def rows(self, warehouse: str, tables: Collection[TableName]) -> Mapping[TableName, LandedRow]:
        """The newest publish of each table; a table that nothing has landed in may be missing."""

    def waiting_up_to(self, warehouse: str, journal_id: int) -> Collection[TableName]:
        """Tables with changes or dead letters at or below this id that are not visible yet."""

    def flush(self, warehouse: str, tables: Collection[TableName] | None) -> None:
        """Cut now what is pending, of these tables or of all; returns at once. Harmless if nothing is."""

    def status(self, warehouse: str) -> dict[str, Any]:
        """Jobs, workers, watermarks of each table and source, lag, dead letters: JSON, ready to show.

        The API reads, if present: `last-publish-ms` (when the newest publish was), `next-cut-ms` (when the
        next cut is due), `stalled` (a sentence that says why nothing lands at present; null or absent if all
        is well).
        """

    def explain_table(self, warehouse: str, table: TableName) -> dict[str, Any] | None:
        """What is known of a table, which need not exist yet; None if nothing is.

        `schema` (an Iceberg schema, or null), `key` (its key columns, or null), `settings` (of the table).
        """


class Subscriptions(Protocol):
    """The change feed, for clients of /ws that subscribe."""

    async def run(
        self,
        message: Mapping[str, Any],
        warehouse: str,
        authorization: str | None,
        send: Callable[[list[dict[str, Any]]], Awaitable[None]],
    ) -> None:
        """Send the messages of a subscription until it is cancelled or ends. CatalogError if it is refused.

        Rights are checked here, and again while it runs.
        """
