"""Read tables at one number, once for all subscribers of this server process, in pieces of bounded size.

The files of a table have an order, which is that of their paths. A row has an index: the rows that the files
before its own had when they were written, and its place among the rows of its file that are not deleted. So
the index depends on no filter, and the file of an index is found without reading the files before it.

PyIceberg reads a file as a whole. Few files are read at a time, and about `AHEAD_BYTES` of each are kept for
those who go on. A subscriber holds one piece.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Hashable
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from catalog.errors import Invalid
from catalog.models import Warehouse
from catalog.names import Identifier, Namespace
from query.feed.filters import Filter, Levels
from query.feed.sharing import LruCache, SharedReads

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyiceberg.table import DataScan, FileScanTask

    from query.tables.access import TableOpener

PIECE_ROWS = 10_000
PIECE_BYTES = 1024 * 1024  # of a file; in memory they may be several times as many
PIECES_BYTES_MAX = 64 * 1024 * 1024
AHEAD_BYTES = 32 * 1024 * 1024
FILES_MAX = 20_000  # of all plans that are kept
READS_AT_ONCE = 2


@dataclass(frozen=True, slots=True, eq=False)
class PinnedTable:
    """A table at a number, and which of its rows are wanted."""

    scan: DataScan
    files: list[FileScanTask]
    starts: list[int]  # for each file, the index before its first row
    matching: frozenset[str] | None  # paths of the files that may have rows for the predicate; None: all
    predicate: pc.Expression | None
    columns: list[str]  # none: all

    def file_of(self, index: int) -> int:
        """Return the file of the row that follows an index."""
        return max(0, bisect_right(self.starts, index) - 1)

    def is_wanted(self, file: int) -> bool:
        return self.matching is None or self.files[file].file.file_path in self.matching

    def key(self, file: int) -> Hashable:
        """Return what the rows that are read of a file depend on."""
        task = self.files[file]
        deletes = tuple(sorted(one.file_path for one in task.delete_files))
        metadata = self.scan.table_metadata
        fields = self.scan.selected_fields
        return metadata.table_uuid, self.scan.projection().schema_id, fields, task.file.file_path, deletes


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows of a file."""

    rows: pa.Table
    is_last: bool  # of its file


class PinnedTables:
    def __init__(
        self, opener: Callable[[], TableOpener], threads: Executor, *, piece_rows_max: int = PIECE_ROWS
    ) -> None:
        self._piece_rows_max = piece_rows_max
        self._opener = opener
        self._threads = threads
        self._tables: LruCache[Hashable, PinnedTable] = LruCache(FILES_MAX, lambda one: len(one.files) + 1)
        self._pieces: LruCache[Hashable, Piece] = LruCache(
            PIECES_BYTES_MAX, lambda piece: int(piece.rows.nbytes) + 1
        )
        self._shared = SharedReads()
        self._turns = asyncio.Semaphore(READS_AT_ONCE)
        self.reads = 0  # of files, for tests and metrics

    async def open(self, warehouse: Warehouse, levels: Levels, wanted: Filter, number: int) -> PinnedTable:
        """Return the table at a number. NoSuchTable or NoSuchWarehouse if it is not kept."""
        key = (warehouse.name, warehouse.created_ms, number, levels, wanted.where, wanted.columns)
        found = self._tables.get(key)

        async def read() -> PinnedTable:
            run = asyncio.get_running_loop().run_in_executor
            opened = await run(self._threads, self._opened, warehouse.name, levels, wanted, number)
            self._tables.put(key, opened)
            return opened

        return found if found is not None else await self._shared.once(key, read)

    def _opened(self, warehouse: str, levels: Levels, wanted: Filter, number: int) -> PinnedTable:
        from pyiceberg.expressions.visitors import bind
        from pyiceberg.io.pyarrow import expression_to_pyarrow

        from query.tables.moments import table_at
        from query.tables.predicates import parsed_where
        from query.tables.reading import ALWAYS, planned, scan_at, schema_at

        access = self._opener().access(warehouse, Identifier(Namespace(levels[:-1]), levels[-1]))
        moment = table_at(access, str(number))
        schema = schema_at(moment)
        known = {field.name for field in schema.fields}
        columns = [name for name in wanted.columns if name in known]
        is_empty = bool(wanted.columns) and not columns
        try:
            where = parsed_where(wanted.where, schema)
        except Invalid:
            if levels in wanted.names:
                raise
            where, is_empty = ALWAYS, True  # a table of a pattern that does not have these columns
        has_predicate = where != ALWAYS
        # The predicate may need columns that are not shown.
        scan = scan_at(moment, columns=("*",) if has_predicate or not columns else tuple(columns))
        files = [] if is_empty else planned(scan)
        starts = list(accumulate((task.file.record_count for task in files), initial=0))[:-1]
        if not has_predicate:
            return PinnedTable(scan, files, starts, None, None, columns)
        matching = frozenset(task.file.file_path for task in planned(scan_at(moment, where)))
        predicate = expression_to_pyarrow(bind(schema, where, case_sensitive=True), schema)
        return PinnedTable(scan, files, starts, matching, predicate, columns)

    def piece_rows(self, table: PinnedTable, file: int) -> int:
        """Return the number of rows of a piece of a file: few, if they are wide."""
        found = table.files[file].file
        few = PIECE_BYTES * found.record_count // max(1, found.file_size_in_bytes)
        return max(1, min(self._piece_rows_max, few))

    async def piece(self, table: PinnedTable, file: int, number: int) -> Piece:
        """Return a piece of a file by its number; an empty one after the last row."""
        key = table.key(file)
        found = self._pieces.get((key, number))
        if found is not None:
            return found
        return await self._shared.once((key, number), lambda: self._read(table, file, key, number))

    async def _read(self, table: PinnedTable, file: int, key: Hashable, number: int) -> Piece:
        async with self._turns:
            found = self._pieces.get((key, number))  # by the read of a piece before it
            if found is not None:
                return found
            self.reads += 1
            run = asyncio.get_running_loop().run_in_executor
            size = self.piece_rows(table, file)
            pieces = await run(self._threads, _pieces, table.scan, table.files[file], number * size, size)
            # In reverse, so that the piece that is needed first is used last and stays.
            for index, piece in reversed(list(enumerate(pieces, number))):
                self._pieces.put((key, index), piece)
            return pieces[0]


def _pieces(scan: DataScan, task: FileScanTask, first: int, piece_rows: int) -> list[Piece]:
    """Return the pieces of a file from a row on, as many as are read ahead."""
    import pyarrow as pa

    from query.tables.reading import read

    rows = read(scan, [task])
    found: list[Piece] = []
    size = 0
    for start in range(first, max(rows.num_rows, first + 1), piece_rows):
        part = rows.slice(start, piece_rows)
        copied = part.take(pa.arange(0, part.num_rows))  # a slice would keep the whole file in memory
        found.append(Piece(copied, is_last=start + piece_rows >= rows.num_rows))
        size += copied.nbytes
        if size >= AHEAD_BYTES:
            break
    return found
