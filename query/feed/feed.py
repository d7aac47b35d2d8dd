"""The change feed of a server process: opens subscriptions for requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from catalog.errors import Invalid, NoSuchWarehouse
from catalog.models import Warehouse
from catalog.names import check_warehouse_name
from catalog.services.catalog import Catalog
from query.feed import measures
from query.feed.change_log import ChangeLog
from query.feed.cursors import Cursor, cursor_of, is_token
from query.feed.errors import MustRefetch, TooManySubscriptions
from query.feed.filters import Filter, filter_of
from query.feed.followed import FollowedTables
from query.feed.heads import Head, Heads, read_heads
from query.feed.measures import Transport
from query.feed.pinned_tables import PinnedTables
from query.feed.publishes import GONE
from query.feed.rights import Check, Rights, RightsChecks
from query.feed.snapshot_rows import SnapshotRows
from query.feed.subscription import Shared, Subscription
from query.moments import AtToken, requested_moment

if TYPE_CHECKING:
    from query.tables.access import TableOpener

THREADS_MAX = 4
NO_ACKNOWLEDGEMENT = (
    "from: a token of /cdc names no commit; send a token of the change feed, a number or a time"
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """The parameters of a subscription, in any of the protocols."""

    warehouse: str = "main"
    tables: Sequence[str] | None = None
    operations: Sequence[str] | None = None
    where: str | None = None
    columns: Sequence[str] | None = None
    from_: str | None = None  # a token, or a moment; None: the present
    snapshot: bool = False


class Feed:
    def __init__(
        self,
        catalog: Catalog,
        opener: Callable[[], TableOpener],
        check: Check,
        *,
        subscriptions_max: int,
    ) -> None:
        self._catalog = catalog
        self._opener = opener
        self.threads: Executor = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="feed")
        self.heads = Heads(lambda: read_heads(catalog.database), self.threads)
        self.log = ChangeLog(catalog, opener, self.threads)
        self._checks = RightsChecks(check, self.threads)
        self._followed = FollowedTables(catalog, opener)
        self.tables = PinnedTables(opener, self.threads)
        snapshots = SnapshotRows(catalog, self._followed, self.tables, self.threads)
        self._shared = Shared(self.heads, self.log, snapshots, self.threads)
        self._subscriptions_max = subscriptions_max
        self.open_count = 0

    @property
    def now_ms(self) -> Callable[[], int]:
        return self._catalog.now_ms

    def close(self) -> None:
        self.threads.shutdown(wait=True, cancel_futures=True)

    async def run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.threads, work)

    def enter(self, transport: Transport) -> None:
        """Count a connection that stays open."""
        if self.open_count >= self._subscriptions_max:
            raise TooManySubscriptions(
                f"This server process has {self._subscriptions_max} subscriptions: try again later"
            )
        self.open_count += 1
        measures.subscriptions.labels(transport).inc()

    def leave(self, transport: Transport) -> None:
        self.open_count -= 1
        measures.subscriptions.labels(transport).dec()

    async def open(self, request: SubscribeRequest, authorization: str | None) -> Subscription:
        """Open a subscription of a caller. Raises the errors of a refused request."""
        name = check_warehouse_name(request.warehouse)
        return await self.open_with(request, Rights(self._checks, authorization, name))

    async def open_with(self, request: SubscribeRequest, rights: Rights) -> Subscription:
        """Open a subscription with other rights."""
        name = check_warehouse_name(request.warehouse)
        await rights.check()
        wanted = filter_of(request.tables, request.operations, request.where, request.columns)
        head = await self.heads.now(name)
        if head is None:
            raise NoSuchWarehouse(f"Warehouse does not exist: {name}")
        warehouse, cursor = await self.run(lambda: self._begin(name, head, wanted, request))
        return Subscription(self._shared, rights, warehouse, wanted, cursor, head)

    def _begin(
        self, name: str, head: Head, wanted: Filter, request: SubscribeRequest
    ) -> tuple[Warehouse, Cursor]:
        warehouse = self._catalog.warehouse(name)
        text = request.from_
        if text is not None and is_token(text):
            cursor = cursor_of(text)
            self._require_known(warehouse, head, cursor)
            return warehouse, cursor
        number = self._number(warehouse, head, text)
        self._require_usable(warehouse, wanted, head.number)
        time_ms = self._time_ms(warehouse, number)
        return warehouse, Cursor(warehouse.created_ms, number, time_ms, is_snapshot=request.snapshot)

    def _number(self, warehouse: Warehouse, head: Head, text: str | None) -> int:
        if text is None:
            return head.number
        from query.tables.moments import warehouse_moment

        if isinstance(requested_moment(text, self._catalog.now_ms()), AtToken):
            raise Invalid(NO_ACKNOWLEDGEMENT)
        return warehouse_moment(self._catalog, warehouse.name, text, "from")[0]

    def _time_ms(self, warehouse: Warehouse, number: int) -> int:
        """Return the time of a commit. MustRefetch if the history does not have it."""
        if number == 0:
            return warehouse.created_ms
        rows = self._catalog.history.events(warehouse.name, number - 1, 1)
        if not rows:
            raise MustRefetch(GONE)
        return int(rows[0]["time_ms"])

    def _require_known(self, warehouse: Warehouse, head: Head, cursor: Cursor) -> None:
        """Raise MustRefetch unless the cursor belongs to this warehouse in its current state."""
        is_of_this = cursor.generation == warehouse.created_ms and cursor.number <= head.number
        if not is_of_this or self._time_ms(warehouse, cursor.number) != cursor.time_ms:
            raise MustRefetch(GONE)

    def _require_usable(self, warehouse: Warehouse, wanted: Filter, number: int) -> None:
        """Check the filter. Raises for a named table without a changes table, and for a predicate or a column
        that does not fit a named table.
        """
        if not wanted.names:
            return
        named = Filter(tables=tuple("\x1f".join(levels) for levels in wanted.names))
        for levels in self._followed.at(warehouse.name, named, number):
            self._followed.require_columns(warehouse.name, levels, wanted)
