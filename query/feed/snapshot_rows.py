"""Read the rows of the requested tables at one number, as changes with the operation `read`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

from catalog.errors import Conflict, FileNotFound, Invalid, NoSuchTable, NoSuchWarehouse
from catalog.models import Warehouse
from catalog.moments import AtTime
from catalog.names import Identifier, Namespace, WarehouseRef
from catalog.services.catalog import Catalog
from catalog.services.warehouse_state import WarehouseState
from ingest.store.tables import CHANGES_SUFFIX
from query.feed.cursors import ChangeIndex, Cursor
from query.feed.errors import MustRefetch
from query.feed.events import Message
from query.feed.filters import Filter, Levels
from query.feed.publishes import GONE

if TYPE_CHECKING:
    import pyarrow as pa

    from query.tables.access import TableOpener

CHUNK_ROWS = 500
LISTED_AT_ONCE = 1000


class SnapshotRows:
    def __init__(self, catalog: Catalog, opener: Callable[[], TableOpener], threads: Executor) -> None:
        self._catalog = catalog
        self._opener = opener
        self._threads = threads

    async def messages(self, warehouse: Warehouse, wanted: Filter, cursor: Cursor) -> AsyncIterator[Message]:
        """Yield the rows after the cursor's change_index, then `snapshot-end`."""
        run = asyncio.get_running_loop().run_in_executor
        chunks = self._chunks(warehouse, wanted, cursor)
        try:
            while (chunk := await run(self._threads, next, chunks, None)) is not None:
                for message in chunk:
                    yield message
        except (FileNotFound, NoSuchTable, NoSuchWarehouse) as error:
            raise MustRefetch(GONE) from error
        end = Cursor(cursor.generation, cursor.number, cursor.time_ms)
        yield Message("snapshot-end", {"number": cursor.number, "time": str(AtTime(cursor.time_ms))}, end)

    def followed(self, warehouse: str, wanted: Filter, number: int) -> list[Levels]:
        """Return the requested tables that have a changes table at the number. Conflict or NoSuchTable for a
        named table that has none.
        """
        state = self._catalog.state(WarehouseRef(warehouse, at=str(number)))
        found = {levels for levels in wanted.names if _require_followed(state, levels)}
        if wanted.has_patterns:
            found.update(levels for levels in _listed(state) if wanted.matches_table(levels))
        return sorted(found, key="\x1f".join)

    def require_columns(self, warehouse: str, levels: Levels, wanted: Filter) -> None:
        """Raise Invalid if the predicate or the columns do not fit a table."""
        if wanted.where is None and not wanted.columns:
            return
        from query.tables.predicates import parsed_where
        from query.tables.reading import require_columns

        schema = self._opener().access(warehouse, _identifier(levels)).current().schema()
        parsed_where(wanted.where, schema)
        require_columns(schema, wanted.columns)

    def _chunks(self, warehouse: Warehouse, wanted: Filter, cursor: Cursor) -> Iterator[list[Message]]:
        if self._catalog.pin(WarehouseRef(warehouse.name, at=str(cursor.number))) != cursor.number:
            raise MustRefetch(GONE)  # the moment expired between two reads
        for levels in self.followed(warehouse.name, wanted, cursor.number):
            key, change_index = "\x1f".join(levels), cursor.change_index
            if change_index is not None and key < change_index.table:
                continue
            skipped = change_index.count if change_index is not None and key == change_index.table else 0
            for first, rows in self._rows(warehouse.name, levels, wanted, cursor.number, skipped):
                yield [
                    _message(levels, row, cursor, ChangeIndex(key, count))
                    for count, row in enumerate(rows, first + 1)
                ]

    def _rows(
        self, warehouse: str, levels: Levels, wanted: Filter, number: int, skipped: int
    ) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        """Yield rows of a table, always in the same order, and how many come before them."""
        from query.tables.moments import table_at
        from query.tables.predicates import parsed_where
        from query.tables.reading import batches, json_rows, planned, scan_at, schema_at

        access = self._opener().access(warehouse, _identifier(levels))
        moment = table_at(access, str(number))
        schema = schema_at(moment)
        known = {field.name for field in schema.fields}
        columns = [name for name in wanted.columns if name in known]
        if wanted.columns and not columns:
            return
        try:
            where = parsed_where(wanted.where, schema)
        except Invalid:
            if levels in wanted.names:
                raise
            return  # a table of a pattern that does not have these columns
        scan = scan_at(moment, where, columns or ("*",))
        count = 0
        for batch in batches(scan, planned(scan)):
            for first in range(0, batch.num_rows, CHUNK_ROWS):
                part: pa.RecordBatch = batch.slice(first, CHUNK_ROWS)
                begin, count = count, count + part.num_rows
                if count > skipped:
                    drop = max(0, skipped - begin)
                    yield begin + drop, json_rows(_table(part.slice(drop)))


def _identifier(levels: Levels) -> Identifier:
    return Identifier(Namespace(levels[:-1]), levels[-1])


def _table(batch: pa.RecordBatch) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_batches([batch])


def _message(levels: Levels, row: dict[str, Any], cursor: Cursor, change_index: ChangeIndex) -> Message:
    data = {
        "table": ".".join(levels),
        "operation": "read",
        "before": None,
        "after": row,
        "number": cursor.number,
    }
    return Message(
        "change",
        data,
        Cursor(cursor.generation, cursor.number, cursor.time_ms, change_index, is_snapshot=True),
    )


def _require_followed(state: WarehouseState, levels: Levels) -> bool:
    namespace, name = Namespace(levels[:-1]), levels[-1]
    for found in (name, name + CHANGES_SUFFIX):
        entry = state.entry(namespace.key, found)
        if entry is not None and entry.kind == "table":
            continue
        if found == name:
            raise NoSuchTable(f"Table does not exist: {'.'.join(levels)}")
        raise Conflict(
            f"{'.'.join(levels)} has no table {found}: only changes that come through /cdc are kept row by "
            "row. Use diff to compare two moments"
        )
    return True


def _listed(state: WarehouseState) -> Iterator[Levels]:
    """Return all tables that have a changes table."""
    waiting = [""]
    while waiting:
        parent = waiting.pop()
        waiting += _pages(lambda after, above=parent: state.children(above, after, LISTED_AT_ONCE))  # type: ignore[misc]
        if parent:
            names = set(_pages(lambda after, key=parent: state.names(key, "table", after, LISTED_AT_ONCE)))  # type: ignore[misc]
            levels = Namespace.from_key(parent).levels
            yield from ((*levels, name) for name in names if name + CHANGES_SUFFIX in names)


def _pages(page: Callable[[str], list[str]]) -> list[str]:
    found: list[str] = []
    while chunk := page(found[-1] if found else ""):
        found += chunk
        if len(chunk) < LISTED_AT_ONCE:
            break
    return found
