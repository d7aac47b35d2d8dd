"""Read the rows of the requested tables at one number, as changes with the operation `read`.

A subscriber that was disconnected resumes after the last row that it got, at the same number. So a number is
pinned if it has many rows to send, or if a subscriber returns to it, and the pin is renewed while rows are
read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from catalog.errors import FileNotFound, NoSuchTable, NoSuchWarehouse
from catalog.models import Warehouse
from catalog.moments import AtTime
from catalog.names import WarehouseRef
from catalog.services.catalog import Catalog
from query.feed.cursors import ChangeIndex, Cursor
from query.feed.errors import MustRefetch
from query.feed.events import Message
from query.feed.filters import Filter, Levels
from query.feed.followed import FollowedTables
from query.feed.pinned_tables import Piece, PinnedTable, PinnedTables
from query.feed.sharing import CHUNKS_MAX, LruCache, SharedReads, chunk_rows

PINS_MAX = 1000
PINNED_ROWS = 10_000  # a snapshot with at least as many rows is pinned
RENEW_S = 60.0
PATIENCE_S = 10.0  # a read that takes longer is reported
ROW_INDEX = "\x1findex"  # no column has this name
NOT_KEPT = (
    "The rows at the number of this token are no longer kept. Begin again with snapshot=true; after a "
    "disconnect go on with the last token within the time of the setting reader_pin_s"
)

T = TypeVar("T")


class WantedPiece(NamedTuple):
    levels: Levels
    table: PinnedTable
    rows: Piece
    before: int  # the index before its first row


@dataclass(frozen=True, slots=True)
class SnapshotChunk:
    """Some wanted rows of a piece, as messages."""

    messages: list[Message]
    is_last: bool


class SnapshotRows:
    def __init__(
        self, catalog: Catalog, followed: FollowedTables, tables: PinnedTables, threads: Executor
    ) -> None:
        self._catalog = catalog
        self._followed = followed
        self._tables = tables
        self._threads = threads
        self._chunks: LruCache[Any, SnapshotChunk] = LruCache(CHUNKS_MAX)
        self._pins: LruCache[Any, float] = LruCache(PINS_MAX)
        self._shared = SharedReads()

    async def chunks(
        self, warehouse: Warehouse, wanted: Filter, cursor: Cursor
    ) -> AsyncIterator[list[Message]]:
        """Yield the rows after the cursor, some at a time; `snapshot-end` is the last message. An empty list
        comes while there is nothing to send for a while.
        """
        rows = 0
        try:
            async for piece in self._pieces(warehouse, wanted, cursor):
                if piece is None:
                    yield []
                    continue
                rows += piece.rows.rows.num_rows
                if rows >= PINNED_ROWS:
                    await self._pin(warehouse, cursor.number)
                number, is_last = 0, False
                while not is_last:
                    chunk = await self._chunk(warehouse, wanted, cursor, piece, number)
                    yield [message for message in chunk.messages if _is_after(message, cursor)]
                    number, is_last = number + 1, chunk.is_last
        except (FileNotFound, NoSuchTable, NoSuchWarehouse) as error:
            raise MustRefetch(NOT_KEPT) from error
        end = Cursor(cursor.generation, cursor.number, cursor.time_ms)
        yield [Message("snapshot-end", {"number": cursor.number, "time": str(AtTime(cursor.time_ms))}, end)]

    async def require_kept(self, warehouse: Warehouse, wanted: Filter, cursor: Cursor) -> list[Levels]:
        """Return the requested tables. MustRefetch if the number is not kept any more."""
        if cursor.change_index is not None:
            await self._pin(warehouse, cursor.number)
        return await self._run(lambda: self._kept(warehouse, wanted, cursor))

    def _kept(self, warehouse: Warehouse, wanted: Filter, cursor: Cursor) -> list[Levels]:
        try:
            kept = self._catalog.pin(WarehouseRef(warehouse.name, at=str(cursor.number)))
        except NoSuchWarehouse as error:
            raise MustRefetch(NOT_KEPT) from error
        if kept != cursor.number:
            raise MustRefetch(NOT_KEPT)
        return self._followed.at(warehouse.name, wanted, cursor.number)

    async def _pin(self, warehouse: Warehouse, number: int) -> None:
        """Pin the number, so that a subscriber can continue to read it after a disconnect."""
        key = (warehouse.name, warehouse.created_ms, number)
        pinned_s = self._pins.get(key)
        if pinned_s is not None and time.monotonic() - pinned_s < RENEW_S:
            return

        async def pin() -> None:
            until_ms = self._catalog.now_ms() + self._catalog.limits.pin_s * 1000
            found = await self._run(lambda: self._catalog.moments.pin(warehouse.name, number, until_ms))
            if found != number:
                raise MustRefetch(NOT_KEPT)
            self._pins.put(key, time.monotonic())

        await self._shared.once(("pin", *key), pin)

    async def _pieces(
        self, warehouse: Warehouse, wanted: Filter, cursor: Cursor
    ) -> AsyncIterator[WantedPiece | None]:
        """Yield the pieces that have rows after the cursor; None while a read takes long."""
        last = cursor.change_index or ChangeIndex("", 0)
        for levels in await self.require_kept(warehouse, wanted, cursor):
            key = "\x1f".join(levels)
            if key < last.table:
                continue
            skipped = last.count if key == last.table else 0
            table = await self._tables.open(warehouse, levels, wanted, cursor.number)
            for file in range(table.file_of(skipped), len(table.files)):
                start, size = table.starts[file], self._tables.piece_rows(table, file)
                number, is_last = max(0, skipped - start) // size, not table.is_wanted(file)
                while not is_last:
                    async for piece in _patiently(self._tables.piece(table, file, number)):
                        if piece is None:
                            yield None
                            continue
                        yield WantedPiece(levels, table, piece, start + number * size)
                        is_last = piece.is_last
                    number += 1

    async def _chunk(
        self, warehouse: Warehouse, wanted: Filter, cursor: Cursor, piece: WantedPiece, number: int
    ) -> SnapshotChunk:
        """Return some rows of a piece. They are made once for all subscribers of the same snapshot."""
        key = (warehouse.name, cursor.generation, cursor.number, piece.levels, wanted.where, wanted.columns)
        key_of_chunk = (*key, piece.before, number)
        found = self._chunks.get(key_of_chunk)
        if found is not None:
            return found

        async def make() -> SnapshotChunk:
            made = await self._run(lambda: _chunk_of(piece, cursor, number))
            self._chunks.put(key_of_chunk, made)
            return made

        return await self._shared.once(key_of_chunk, make)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


async def _patiently(read: Coroutine[Any, Any, T]) -> AsyncIterator[T | None]:
    """Yield the result of a read; before it, None each time it takes longer."""
    reading = asyncio.ensure_future(read)
    try:
        while not (await asyncio.wait({reading}, timeout=PATIENCE_S))[0]:
            yield None
    finally:
        reading.cancel()
    yield reading.result()


def _chunk_of(piece: WantedPiece, cursor: Cursor, number: int) -> SnapshotChunk:
    import pyarrow as pa

    from query.tables.reading import json_rows

    table, rows = piece.table, piece.rows.rows
    size = chunk_rows(rows)
    rows = rows.append_column(ROW_INDEX, pa.arange(piece.before + 1, piece.before + 1 + rows.num_rows))
    if table.predicate is not None:
        rows = rows.filter(table.predicate)
    first = number * size
    part = rows.slice(first, size)
    indices = part.column(ROW_INDEX).to_pylist()
    shown = part.select(table.columns) if table.columns else part.drop_columns([ROW_INDEX])
    messages = [
        _message(piece.levels, row, cursor, index)
        for index, row in zip(indices, json_rows(shown), strict=True)
    ]
    return SnapshotChunk(messages, is_last=first + size >= rows.num_rows)


def _message(levels: Levels, row: dict[str, Any], cursor: Cursor, index: int) -> Message:
    data = {
        "table": ".".join(levels),
        "operation": "read",
        "before": None,
        "after": row,
        "number": cursor.number,
    }
    change_index = ChangeIndex("\x1f".join(levels), index)
    return Message(
        "change",
        data,
        Cursor(cursor.generation, cursor.number, cursor.time_ms, change_index, is_snapshot=True),
    )


def _is_after(message: Message, cursor: Cursor) -> bool:
    index = message.cursor.change_index
    return cursor.change_index is None or (index is not None and index > cursor.change_index)
