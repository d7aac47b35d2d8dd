"""One subscriber: its filter, and how far it has read.

subscription = await feed.open(request)
while True:
    async for message in subscription.pending():   # everything there is now
        ...
    await subscription.wait(20)                     # for the next commit
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from catalog.errors import Invalid, NoSuchWarehouse
from catalog.models import Warehouse
from query.feed import events
from query.feed.change_log import ChangeLog, Chunk
from query.feed.cursors import Cursor
from query.feed.errors import MustRefetch
from query.feed.events import Message
from query.feed.filters import Filter, Predicate, never, predicate
from query.feed.heads import Head, Heads
from query.feed.publishes import GONE, ChangedTable, Publish
from query.feed.rights import Rights
from query.feed.snapshot_rows import SnapshotRows

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

SILENT_S = 10.0  # a snapshot that has no row to send for this time sends a heartbeat


@dataclass(frozen=True, slots=True)
class Shared:
    """The objects that all subscriptions of a process share."""

    heads: Heads
    log: ChangeLog
    snapshots: SnapshotRows
    threads: Executor


class Subscription:
    def __init__(
        self, shared: Shared, rights: Rights, warehouse: Warehouse, wanted: Filter, cursor: Cursor, head: Head
    ) -> None:
        self.warehouse = warehouse
        self.cursor = cursor
        self._wanted = wanted
        self._head = head
        self._rights = rights
        self._heads, self._log = shared.heads, shared.log
        self._snapshots, self._threads = shared.snapshots, shared.threads
        self._predicates: dict[tuple[str, int], Predicate] = {}
        self._has_token = cursor.is_snapshot  # a subscriber has a token from the beginning

    async def wait(self, timeout_s: float) -> bool:
        """Wait for a commit that has not been read. Returns False after the timeout, or if the server
        stops.
        """
        if self.cursor.number < self._head.number:
            return True
        found = await self._heads.wait(self.warehouse.name, self._head, timeout_s)
        if found is None:
            raise NoSuchWarehouse(f"Warehouse does not exist: {self.warehouse.name}")
        self._head = found
        return self.cursor.number < found.number

    async def prepare(self) -> None:
        """Raise now the error that the first message would raise, such as MustRefetch, before the response
        begins.
        """
        if self.cursor.is_snapshot:
            await self._snapshots.require_kept(self.warehouse, self._wanted, self.cursor)
            return
        former = Cursor(self.cursor.generation, self.cursor.number, self.cursor.time_ms)
        last = self.cursor.change_index
        while former.number < self._head.number:
            publish = await self._publish_after(former)
            wanted = [one for one in publish.tables if self._wanted.matches_table(one.levels)]
            for changed in wanted:
                row = last.count if last is not None and last.table == changed.key else 0
                await self._log.chunk(self.warehouse, former, publish, changed, row)
            if wanted:
                return  # later commits are kept for longer
            former = Cursor(former.generation, publish.number, publish.time_ms)

    async def _publish_after(self, former: Cursor) -> Publish:
        publish = await self._log.publish_after(self.warehouse, former.number)
        if publish is None:
            raise MustRefetch(GONE)  # the head is newer: this commit has been deleted from the history
        return publish

    async def pending(self) -> AsyncIterator[Message]:
        """Yield everything that was published and not read yet, in order. Ends when there is nothing more."""
        await self._rights.check()
        self._require_same_history()
        if self.cursor.is_snapshot:
            sent_s = time.monotonic()
            async for chunk in self._snapshots.chunks(self.warehouse, self._wanted, self.cursor):
                await self._rights.check()
                for message in chunk:
                    self.cursor = message.cursor
                    yield message
                if chunk:
                    sent_s = time.monotonic()
                elif time.monotonic() - sent_s >= SILENT_S:
                    sent_s = time.monotonic()
                    yield Message("heartbeat", {}, self.cursor)
        if not self._has_token:
            self._has_token = True
            yield events.progress(self.cursor, 0, self._head.number)
        while self.cursor.number < self._head.number:
            async for message in self._next_publish():
                self.cursor = message.cursor
                yield message
            await self._rights.check()

    def _require_same_history(self) -> None:
        if self._head.generation != self.cursor.generation or self.cursor.number > self._head.number:
            raise MustRefetch(GONE)

    async def _next_publish(self) -> AsyncIterator[Message]:
        """Yield the changes of the next commit with its boundaries. Of several commits without a matching
        change, only the last one is reported.
        """
        former, count = self.cursor, 0
        while True:
            publish = await self._publish_after(former)
            async for message in self._of_publish(former, publish):
                count += message.kind == "change"
                yield message
            former = Cursor(former.generation, publish.number, publish.time_ms)
            if count or publish.number >= self._head.number:
                yield events.progress(former, count, self._head.number)
                return

    async def _of_publish(self, former: Cursor, publish: Publish) -> AsyncIterator[Message]:
        is_begun = former.change_index is not None
        for reset in publish.resets:
            if self._wanted.matches_table(reset.levels) and not is_begun:
                data = {"table": ".".join(reset.levels), "number": publish.number, "reason": reset.reason}
                yield Message("must-refetch", data, former)
        for changed in publish.tables:
            if not self._wanted.matches_table(changed.levels):
                continue
            async for message in self._of_table(former, publish, changed):
                if not is_begun:
                    is_begun = True
                    yield events.begin(former, publish)
                yield message

    async def _of_table(
        self, former: Cursor, publish: Publish, changed: ChangedTable
    ) -> AsyncIterator[Message]:
        change_index = former.change_index
        if change_index is not None and changed.key < change_index.table:
            return
        skipped = change_index.count if change_index is not None and changed.key == change_index.table else 0
        start = Cursor(former.generation, former.number, former.time_ms)
        row, is_last = skipped, False
        while not is_last:
            chunk = await self._log.chunk(self.warehouse, start, publish, changed, row)
            await self._rights.check()
            for message in await self._selected(changed, chunk):
                if message.cursor.change_index is not None and message.cursor.change_index.count > skipped:
                    yield message.with_columns(self._wanted)
            row, is_last = chunk.end, chunk.is_last

    async def _selected(self, changed: ChangedTable, chunk: Chunk) -> list[Message]:
        wanted = self._wanted
        found = [one for one in chunk.messages if wanted.matches_operation(one.data["operation"])]
        if wanted.where is None:
            return found
        holds = self._predicate(changed, chunk.schema)

        def is_wanted(change: Message) -> bool:
            row = change.data
            return row["operation"] == "truncate" or holds(row["after"]) or holds(row["before"])

        return await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: [change for change in found if is_wanted(change)]
        )

    def _predicate(self, changed: ChangedTable, schema: Schema) -> Predicate:
        """Return the predicate for a table. It is false for all rows of a table without its columns."""
        key = (changed.key, schema.schema_id)
        if key not in self._predicates:
            try:
                self._predicates[key] = predicate(self._wanted.where, schema)
            except Invalid:
                self._predicates[key] = never
        return self._predicates[key]
